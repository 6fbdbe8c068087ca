"""Programs really run a file that a fork brings; what ran and has no flag is a failing test.

A row: the program, the project's files, the fork's file with what it holds, and the command that the user then gives.
``NAME`` stands for a path with a directory and an ending that are drawn anew each day.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom.core.tree.change import Change
from mudroom.core.tree.flag import flags_of
from mudroom.core.tree.path import sort_key
from mudroom.stage.originals.later_flags import flag_later
from mudroom.stage.originals.repository_flags import flag_repositories
from mudroom.stage.source import OpenSource, walk
from mudroom.typing import NamedTuple
from tiers import SEED, half

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shells and tools of POSIX")

SH = 'echo x > "$MARK"\n'
PY = "import os; open(os.environ['MARK'], 'w')\n"
JS = "require('fs').writeFileSync(process.env.MARK, '')\n"


class Row(NamedTuple):
    program: str
    project: dict[str, str]
    path: str
    holds: str
    command: str


ROWS = [
    Row("make", {"Makefile": "include NAME\nall:\n\t@true\n"}, "NAME", "$(shell touch $(MARK))\n", "make"),
    Row("make", {"Makefile": "all:\n\tsh NAME\n"}, "NAME", SH, "make"),
    Row("make", {"Makefile": "all:\n\t. ./NAME\n"}, "NAME", SH, "make"),
    Row("make", {"Makefile": "all:\n\tcd DIR && sh ./LAST\n"}, "NAME", SH, "make"),
    Row("make", {"Makefile": "T := .\nall:\n\tsh $(T)/NAME\n"}, "NAME", SH, "make"),
    Row(
        "make", {"sub/Makefile": "include ../NAME\nall:\n\t@true\n"}, "NAME", "$(shell touch $(MARK))\n", "make -C sub"
    ),
    Row("make", {}, "GNUmakefile", "all:\n\ttouch $(MARK)\n", "make"),
    Row("npm", {"package.json": '{"scripts": {"test": "sh NAME"}}'}, "NAME", SH, "npm test --offline"),
    Row("npm", {"package.json": '{"scripts": {"test": "sh .\\/NAME"}}'}, "NAME", SH, "npm test --offline"),
    Row("npm", {"package.json": '{"scripts": {"pretest": "node tools/x", "test": ""}}'}, "tools/x.js", JS, "npm test"),
    Row("node", {"package.json": '{"main": "tools/x"}'}, "tools/x.js", JS, "node ."),
    Row("git", {".git/hooks/pre-commit": "#!/bin/sh\nsh NAME\n"}, "NAME", SH, "git commit -qm x --allow-empty"),
    Row(
        "git",
        {".husky/pre-commit": "#!/bin/sh\nsh NAME\n"},
        "NAME",
        SH,
        "git -c core.hooksPath=.husky hook run pre-commit",
    ),
    Row(
        "git",
        {"own/pre-commit": "#!/bin/sh\n. own/h\n", "own/h": "sh NAME\n"},
        "NAME",
        SH,
        "OWN git commit -qm x --allow-empty",
    ),
    Row("git", {}, "own/pre-commit", f"#!/bin/sh\n{SH}", "OWN git commit -qm x --allow-empty"),
    Row("git", {".git/hooks/post-commit": '#!/bin/sh\nsh "$PWD/NAME"\n'}, "NAME", SH, "git commit -qm x --allow-empty"),
    Row("python3", {}, "sitecustomize.py", PY, "PYTHONPATH=. python3 -c 1"),
    Row("python3", {}, "sitecustomize/__init__.py", PY, "PYTHONPATH=. python3 -c 1"),
    Row("python3", {}, "setup.py", PY, "python3 setup.py"),
    Row("python3", {"setup.py": "exec(open('NAME').read())"}, "NAME", PY, "python3 setup.py"),
    Row(
        "python3",
        {},
        "x.pth",
        "import os; open(os.environ['MARK'], 'w')\n",
        "python3 -c \"import site; site.addsitedir('.')\"",
    ),
    Row("pytest", {"t_a.py": "def test_a(): pass"}, "conftest.py", PY, "pytest t_a.py"),
    Row("pytest", {"pytest.ini": "[pytest]\naddopts = -p plug.own\n"}, "plug/own.py", PY, "PYTHONPATH=. pytest"),
    Row(
        "pytest",
        {"pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p plug"\n'},
        "plug.py",
        PY,
        "PYTHONPATH=. pytest",
    ),
    Row(
        "cmake", {"CMakeLists.txt": "include(NAME)\n"}, "NAME", 'file(TOUCH "$ENV{MARK}")\n', "cmake -P CMakeLists.txt"
    ),
    Row("cmake", {"x.cmake": "execute_process(COMMAND sh NAME)\n"}, "NAME", SH, "cmake -P x.cmake"),
    Row("ninja", {"build.ninja": "include NAME\n"}, "NAME", 'rule r\n command = touch "$$MARK"\nbuild x: r\n', "ninja"),
    Row("bash", {}, ".bashrc", SH, "bash -ic true"),
    Row("bash", {".bashrc": ". ./NAME\n"}, "NAME", SH, "bash -ic true"),
    Row("zsh", {}, ".zshenv", SH, "zsh -c true"),
    Row("fish", {}, ".config/fish/config.fish", 'touch "$MARK"\n', "fish -c true"),
    Row("vim", {}, ".vimrc", "call writefile([], $MARK)\n", "vim --not-a-term -T dumb +q"),
    Row("vim", {".vimrc": "source NAME\n"}, "NAME", "call writefile([], $MARK)\n", "vim --not-a-term -T dumb +q"),
    Row(
        "vim",
        {".vimrc": "set exrc\n"},
        "in/.exrc",
        "call writefile([], $MARK)\n",
        "cd in && vim --not-a-term -T dumb +q",
    ),
    Row("gdb", {}, ".gdbinit", 'shell touch "$MARK"\n', "gdb --batch"),
    Row("gdb", {".gdbinit": "source NAME\n"}, "NAME", 'shell touch "$MARK"\n', "gdb --batch"),
    Row("perl", {"Makefile": "all:\n\tperl NAME\n"}, "NAME", 'open(F, ">", $ENV{MARK});\n', "make"),
    Row("run-parts", {"Makefile": "all:\n\trun-parts ci\n"}, "ci/it", f"#!/bin/sh\n{SH}", "chmod +x ci/it; make"),
]
PROGRAMS = [row for row in ROWS if shutil.which(row.program) or row.program == "pytest"]
ENDINGS = ("", ".txt", ".inc", ".dat", ".foo", ".c", ".md", ".x.y", ".json5")


@pytest.mark.parametrize("number", half(range(len(PROGRAMS))))
def test_what_a_program_runs_has_a_flag(tmp_path: Path, number: int) -> None:
    row = PROGRAMS[number]
    name, text = _drawn(row, number), row.holds
    project, fork, mark = tmp_path / "project", tmp_path / "fork", tmp_path / "mark"
    for top, files in ((project, row.project), (fork, {row.path: text})):
        top.mkdir()
        for path, content in files.items():
            _write(top / _filled(path, name), _filled(content, name))
    environment = _environment(tmp_path, project, mark)
    if row.program == "git":
        own = "; git config core.hooksPath own" if "OWN" in row.command else ""
        subprocess.run(["sh", "-c", f"git init -q{own}"], cwd=project, env=environment, check=True)
    flagged = _flagged(project, fork, executable="chmod +x" in row.command)
    shutil.copytree(fork, project, dirs_exist_ok=True)
    command = row.command.removeprefix("OWN ").replace("pytest", f"{sys.executable} -m pytest -q -p no:cacheprovider")
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=100,
        check=False,
    )
    assert mark.exists(), (row, name, done.stdout, done.stderr)
    assert _filled(row.path, name) in flagged, (row, name)


def _drawn(row: Row, number: int) -> str:
    draw = random.Random(f"{SEED} {number}")
    name = "".join(draw.choices("abcdefgh", k=5))
    ending = draw.choice(ENDINGS)
    return f"{draw.choice(['tools', 'ci', 'x-y', 'a.b', 'lib'])}/{name}{ending}"


def _filled(text: str, name: str) -> str:
    directory, _slash, last = name.rpartition("/")
    return text.replace("NAME", name).replace("DIR", directory).replace("LAST", last)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if text.startswith("#!"):
        path.chmod(0o755)


def _environment(tmp_path: Path, project: Path, mark: Path) -> dict[str, str]:
    who = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    own = {"HOME": str(project), "MARK": str(mark), "PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    return (
        who
        | own
        | {"npm_config_cache": str(tmp_path / "cache"), "XDG_CONFIG_HOME": str(project / ".config"), "TERM": "dumb"}
    )


def _flagged(project: Path, fork: Path, *, executable: bool) -> set[str]:
    """Return the fork's files with the flag, as a collection flags them."""
    with OpenSource(os.fsencode(project)) as base, OpenSource(os.fsencode(fork)) as staged:
        files = sorted(walk(staged), key=lambda item: sort_key(item[0]))
        modes = 0o755 if executable else 0o644
        changes = [
            Change(path, "added", None, entry._replace(mode=modes), flags=flags_of(path))
            for path, entry in files
            if entry.kind == "file"
        ]
        changes, _remarks = flag_repositories(changes, staged, base, os.fsencode(project))
        return {
            os.fsdecode(change.path) for change in flag_later(changes, staged, base) if "executes-later" in change.flags
        }
