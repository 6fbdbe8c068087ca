"""The cold path: what a command loads. The budget of a command is its list of modules in ``cold_modules.toml``; the
failure names a module more or less.

Each module costs 0.1 ms and more of each command that a hook or an agent's tool call starts, so a new row needs a
reason. ``.venv/bin/python tests/cli/test_cold_start.py > tests/cli/cold_modules.toml`` writes the lists anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Place

SOURCE = Path(__file__).resolve().parents[2] / "src"
LISTS = Path(__file__).with_name("cold_modules.toml")

COMMANDS: dict[str, tuple[str, ...]] = {
    "version": ("--version",),
    "status": ("status",),
    "run": ("run", "--yes", "--", "true"),
    "exec": ("exec", "--json", "--fork", "a", "--", "true"),
    "exec-agent": ("exec", "--json", "--agent", "bot", "--fork", "a", "--", "true"),
}

# As the console script does it, in an interpreter of its own: prints what was loaded beyond the interpreter's own
# start, and the classes whose constructor was compiled from a string.
PROGRAM = """
import os, sys
place = sys.argv.pop(1)
before = set(sys.modules)
end = os._exit
def leave(code):
    new = sorted(set(sys.modules) - before)
    made = [f"{name}.{kind.__name__}" for name in new if name.startswith("mudroom")
            for kind in vars(sys.modules[name]).values()
            if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
            and kind.__new__.__code__.co_filename == "<string>"]
    with open(place, "w") as stream:
        stream.write("\\n".join([" ".join(new), " ".join(made)]))
    end(code)
os._exit = leave
from mudroom.cli import main
main()
"""

LIBRARY = frozenset(
    (
        "__future__", "_blake2", "_collections", "_ctypes", "_functools", "_json", "_operator", "_socket", "_sqlite3",
        "_struct", "collections", "collections.abc", "contextlib", "ctypes", "ctypes._endian", "errno", "fcntl",
        "functools", "gc", "itertools", "keyword", "operator", "reprlib", "resource", "select", "struct", "types",
        "binascii",  # forms of the secrets in the environment
        "_sha2", "_sha256",  # by the version of Python
        "unicodedata",  # names of files that run later
        "_sre", "argparse", "copyreg", "enum", "gettext", "re", "re._casefix", "re._compiler",
        "re._constants", "re._parser", "warnings",
    )
)  # fmt: skip
"""All modules of the standard library that these commands load: no ``typing``, ``json``, ``hashlib``, ``threading`` or
``signal``. ``argparse`` loads the last rows."""


def loaded(words: tuple[str, ...], top: Path, project: Path, state: Path) -> tuple[list[str], list[str]]:
    """Run a command. Return the modules that it has loaded, and the classes that it has compiled from strings."""
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(top), "MUDROOM_STATE": str(state), "LC_ALL": "C.UTF-8",
        "PWD": str(project), "MUDROOM_KEEPER": "0", "SOME_TOKEN": "abcdefgh-1234",
    }  # fmt: skip
    program = f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(top / "loaded"), *words],
        cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    modules, classes = (top / "loaded").read_text().split("\n")
    return modules.split(), classes.split()


def listed(command: str) -> set[str]:
    rooms: dict[str, str] = tomllib.loads(LISTS.read_text())[command]
    names = ((room, name) for room, text in rooms.items() for name in text.split())
    found = {f"mudroom.{name}" if room == "rooms" else f"mudroom.{room}.{name}" for room, name in names}
    return {"mudroom", *(name for name in found if is_there(name))}


def is_there(name: str) -> bool:
    """Return False for a module of a satellite that is absent."""
    return not name.startswith("mudroom.ext") or (SOURCE / "/".join(name.split(".")[:3])).is_dir()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loads_what_its_list_says(command: str, place: Place, tmp_path: Path) -> None:
    loaded(COMMANDS["run" if command == "status" else command], tmp_path, place.project, place.state)  # makes the vault
    modules, classes = loaded(COMMANDS[command], tmp_path, place.project, place.state)
    own = {name for name in modules if name.partition(".")[0] == "mudroom"}
    wanted = listed(command)
    assert {"more": sorted(own - wanted), "not loaded": sorted(wanted - own)} == {"more": [], "not loaded": []}
    assert sorted(set(modules) - own - LIBRARY) == []
    assert classes == [], "mudroom/typing.py has no constructor for that number of fields"


def test_the_package_itself_loads_nothing() -> None:
    program = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); before = set(sys.modules); import mudroom"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{program}; print(*set(sys.modules) - before)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["mudroom"]


LAUNCHES = """
import os, sys
spawn = os.posix_spawn
def noted(*words, **options):
    os.write(2, b"launched %d\\n" % ("mudroom.session" in sys.modules))
    return spawn(*words, **options)
os.posix_spawn = noted
from mudroom.cli import main
main()
"""


@pytest.mark.parametrize(
    ("line", "launched"),
    [
        ("run --yes -- true", ["launched 0"]),
        ("exec --json --fork a -- true", ["launched 0"]),
        ("run --explain -- true", []),
        ("run --help", []),
        ("exec -h", []),
        ("status", []),
        ("run --no-such-option -- true", ["launched 0"]),
        ("run --yes --", ["launched 0"]),
    ],
)
def test_a_launcher_starts_before_its_verb_is_loaded(
    line: str, launched: list[str], place: Place, tmp_path: Path
) -> None:
    """Once, and it is gone when the command has ended, also if that ran nothing."""
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MUDROOM_STATE": str(place.state), "MUDROOM_KEEPER": "0",
    }  # fmt: skip
    reader, writer = os.pipe()
    program = f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{LAUNCHES}"
    done = subprocess.run(
        [sys.executable, "-c", program, *line.split()],
        cwd=place.project, env=environment, stdin=writer, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(writer)
    os.set_blocking(reader, False)
    assert os.read(reader, 1) == b"", "a process is left that holds the standard input"
    os.close(reader)
    assert [word for word in done.stderr.split("\n") if word.startswith("launched")] == launched


def as_toml(modules: list[str]) -> Iterator[str]:
    """Yield the lines of a command's list: the modules by room, at most 110 characters a line."""
    rooms: dict[str, list[str]] = {}
    for name in sorted(modules):
        package, _dot, rest = name.partition(".")
        room, _dot, inner = rest.partition(".")
        if package == "mudroom" and room:
            rooms.setdefault(room if inner else "rooms", []).append(inner or room)
    for room, names in sorted(rooms.items()):
        yield f'{room} = """'
        line = ""
        for name in names:
            if len(line) + len(name) > 110:
                yield line.rstrip()
                line = ""
            line += name + " "
        yield line.rstrip() + '"""'


def write_lists() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        top = Path(directory)
        (top / "project").mkdir()
        for command, words in COMMANDS.items():
            for each in (COMMANDS["run"], words, words):  # the first makes the vault
                modules, _classes = loaded(each, top, top / "project", top / "state")
            text = "\n".join(as_toml(modules))
            sys.stdout.write(f"[{command}]  # mudroom {' '.join(words)}\n{text}\n\n")


if __name__ == "__main__":
    write_lists()
