"""What a command on Windows can do to a fork's files that Linux cannot: from its copy to the project, and back by undo.
Run by ``dev/wine``. The command is a function (``tests/vault/workbench.py``).

Each of these is one line for the user, and nothing is lost: the project, the fork and what the user does meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

sys.path.append(str(Path(__file__).parents[2] / "vault"))

from mudroom.core.tree.change import Changeset
from mudroom.stage.beneath import open_root
from test_nt_disk import PLANTED, UNNAMED, hold, raw_file
from workbench import Contents, Workbench, contents, inner

HELD = "is held open by another program, or is a mount point"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    made = Workbench(tmp_path)
    yield made
    made.remove()
    assert not tmp_path.exists(), "everything can be removed, whatever names it has"


def write(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def paths(changes: Changeset) -> dict[bytes, str]:
    return {change.path: change.verb for change in changes.changes}


def remarks(changes: Changeset) -> dict[str, str]:
    return {os.fsdecode(remark.path): remark.text for remark in changes.remarks}


def there_and_back(bench: Workbench, after: Contents) -> None:
    before = contents(bench.project)
    assert bench.apply("f") == []
    assert contents(bench.project) == after
    assert bench.undo() == []
    assert contents(bench.project) == before


def raw(directory: Path, names: tuple[str, ...]) -> None:
    opened = open_root(inner(directory))
    for name in names:
        raw_file(opened, name)
    os.close(opened)


def test_names_that_windows_cannot_hold_are_told(bench: Workbench) -> None:
    write(bench.project, {"a": b"1", "d/b": b"2"})

    def command(work: Path) -> None:
        raw(work, UNNAMED)
        raw(work / "d", ("dot.",))
        write(work, {"good": b"3"})

    changes = bench.run("f", command)
    assert paths(changes) == {b"good": "added"}
    told = remarks(changes)
    assert told.keys() == {*UNNAMED, "d/dot."}
    assert all(text.startswith("cannot be staged on Windows: ") and "\n" not in text for text in told.values())
    assert told["d/dot."].endswith("a space or dot at the end is dropped: it would be another file")
    there_and_back(bench, {"a": b"1", "d": None, "d/b": b"2", "good": b"3"})


def test_such_names_of_the_user_stay(bench: Workbench) -> None:
    """The project's own are not copied, not deleted and not in the way."""
    write(bench.project, {"a": b"1"})
    raw(bench.project, ("dot.", "CON"))
    changes = bench.run("f", lambda work: write(work, {"a": b"2"}))
    assert paths(changes) == {b"a": "modified"}
    assert bench.apply("f") == [] and bench.undo() == []
    opened = open_root(inner(bench.project))
    from mudroom.stage import disk

    assert sorted(disk.names(opened)) == [b"CON", b"a", b"dot."]
    os.close(opened)


def test_a_planted_table_hides_deletes_and_reveals_nothing(bench: Workbench) -> None:
    """In the project and in the copy, in any case: a whiteout of ``kept`` and an opaque mark that no layer has made."""
    write(bench.project, {"kept": b"1", "d/kept": b"2", ".mudroom-layer": PLANTED.encode()})

    def command(work: Path) -> None:
        for place in (work, work / "d"):
            write(place, {".Mudroom-Layer": PLANTED.encode(), ".mudroom-layer.new": PLANTED.encode()})
        write(work, {"new/.mudroom-layer": PLANTED.encode(), "new/kept": b"3"})

    changes = bench.run("f", command)
    assert paths(changes) == {b"new": "added", b"new/kept": "added"}
    assert all("the name of mudroom's own tables" in text for text in remarks(changes).values())
    assert {".Mudroom-Layer", "d/.Mudroom-Layer", "new/.mudroom-layer"} <= remarks(changes).keys()
    bench.forks.checkpoint("f", "here")
    assert paths(bench.run("f", lambda work: (work / "kept").unlink())) == {
        b"new": "added",
        b"new/kept": "added",
        b"kept": "deleted",
    }
    planted = {".mudroom-layer": PLANTED.encode()}
    there_and_back(bench, {**planted, "d": None, "d/kept": b"2", "new": None, "new/kept": b"3"})


@pytest.mark.parametrize("name", ["edited", "removed", "moved"])
def test_a_file_that_an_editor_holds_is_one_conflict(bench: Workbench, name: str) -> None:
    files = {"edited": b"1", "removed": b"2", "moved": b"3", "other": b"4"}
    write(bench.project, files)

    def command(work: Path) -> None:
        write(work, {"edited": b"new", "other": b"new"})
        (work / "removed").unlink()
        (work / "moved").rename(work / "there")

    bench.run("f", command)
    handle = hold(bench.project / name)
    try:
        conflicts = bench.apply("f")
    finally:
        os.close(handle)
    assert conflicts == [f"{name}: {HELD}"]
    assert (bench.project / name).read_bytes() == files[name]
    assert (bench.project / "other").read_bytes() == b"new", "the rest has landed"
    assert bench.apply("f") == [], "once it is closed, it lands"
    assert contents(bench.project) == {"edited": b"new", "there": b"3", "other": b"new"}
    assert bench.undo() == [] and bench.undo() == []
    assert contents(bench.project) == files


def test_a_path_of_300_characters(bench: Workbench) -> None:
    write(bench.project, {"a": b"1"})
    long = "/".join(["d" * 50] * 6)
    assert len(long) > 300

    def command(work: Path) -> None:
        place = "\\\\?\\" + str(work).replace("/", "\\") + "\\" + long.replace("/", "\\")
        os.makedirs(place)
        with open(place + "\\f", "wb") as stream:
            stream.write(b"deep")

    changes = bench.run("f", command)
    assert long.encode() + b"/f" in paths(changes)
    assert bench.apply("f") == []
    with open("\\\\?\\" + str(bench.project) + "\\" + long.replace("/", "\\") + "\\f", "rb") as stream:
        assert stream.read() == b"deep"
    assert bench.undo() == []
    assert contents(bench.project) == {"a": b"1"}


def test_a_name_of_the_user_in_another_case_is_one_conflict(bench: Workbench) -> None:
    write(bench.project, {"a": b"1"})
    bench.run("f", lambda work: write(work, {"readme": b"fork", "b": b"2"}))
    write(bench.project, {"README": b"user"})
    conflicts = bench.apply("f")
    assert [text.partition(":")[0] for text in conflicts] == ["readme"]
    assert contents(bench.project) == {"a": b"1", "b": b"2", "README": b"user"}
    assert paths(bench.changes.of("f")) == {b"readme": "added"}, "it is still in the fork"
    (bench.project / "README").unlink()
    assert bench.apply("f") == []
    assert contents(bench.project) == {"a": b"1", "b": b"2", "readme": b"fork"}


def test_a_name_changes_its_case(bench: Workbench) -> None:
    """Seen from outside, a file goes and another comes: neither content may be lost on the way."""
    write(bench.project, {"readme": b"1", "a": b"2"})

    def command(work: Path) -> None:
        (work / "readme").unlink()
        write(work, {"README": b"new"})

    assert paths(bench.run("f", command)) == {b"README": "added", b"readme": "deleted"}
    there_and_back(bench, {"README": b"new", "a": b"2"})


@pytest.mark.parametrize("act", [lambda path: path.write_bytes(b"new"), Path.unlink])
def test_a_read_only_file_of_the_project(bench: Workbench, act: Callable[[Path], object]) -> None:
    """The attribute is no mode: it is the file's own, stays with it, and hinders neither apply nor undo."""
    write(bench.project, {"a": b"1", "b": b"2"})
    (bench.project / "a").chmod(stat.S_IREAD)
    bench.run("f", lambda work: act(work / "a"))
    assert bench.apply("f") == []
    assert (bench.project / "b").read_bytes() == b"2"
    assert bench.undo() == []
    assert contents(bench.project) == {"a": b"1", "b": b"2"}
    assert not (bench.project / "a").stat().st_mode & stat.S_IWRITE
    (bench.project / "a").chmod(stat.S_IREAD | stat.S_IWRITE)


def test_executable_bits_are_no_changes(bench: Workbench) -> None:
    """Windows keeps none: a command cannot set one, and none is taken from a file whose content changes."""
    write(bench.project, {"tool": b"1"})
    changes = bench.run("f", lambda work: (work / "tool").chmod(0o755))
    assert paths(changes) == {} and remarks(changes) == {}
    changes = bench.run("f", lambda work: write(work, {"tool": b"2"}))
    (change,) = changes.changes
    assert change.flags == ("content",)
    there_and_back(bench, {"tool": b"2"})


HIDDEN_AND_SYSTEM = 0x2 | 0x4


def attributes(path: Path, value: int | None = None) -> int:
    kernel = ctypes.WinDLL("kernel32")
    if value is not None:
        assert kernel.SetFileAttributesW(str(path), value)
    return int(kernel.GetFileAttributesW(str(path)))


@pytest.mark.parametrize(
    "act", [lambda path: path.write_bytes(b"new"), Path.unlink, lambda path: path.rename(path.parent / "c")]
)
def test_a_hidden_file_of_the_system(bench: Workbench, act: Callable[[Path], object]) -> None:
    """An open that overwrites is refused for such a file; a landing renames. Undo brings the attributes back."""
    write(bench.project, {"a": b"1", "b": b"2"})
    attributes(bench.project / "a", HIDDEN_AND_SYSTEM)
    bench.run("f", lambda work: act(work / "a"))
    assert bench.apply("f") == []
    assert bench.undo() == []
    assert contents(bench.project) == {"a": b"1", "b": b"2"}
    assert attributes(bench.project / "a") & HIDDEN_AND_SYSTEM == HIDDEN_AND_SYSTEM
    attributes(bench.project / "a", 0x80)


def test_a_directory_in_which_a_console_stands(bench: Workbench) -> None:
    """It cannot be removed while it is the current directory of a process: nothing is lost, and it goes later."""
    files = {"d/a": b"1", "d/e/b": b"2", "kept": b"3"}
    write(bench.project, files)

    def command(work: Path) -> None:
        shutil.rmtree(work / "d")
        write(work, {"kept": b"new"})

    bench.run("f", command)
    words = [sys.executable, "-c", "import sys; print('here', flush=True); sys.stdin.read()"]
    with subprocess.Popen(
        words, cwd=bench.project / "d" / "e", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as console:
        assert console.stdout is not None and console.stdout.readline().strip() == b"here"
        conflicts = bench.apply("f")
        now = contents(bench.project)
        console.communicate()
    assert now["kept"] == b"new", "the rest has landed"
    if conflicts:
        assert all(name.startswith("d") for name in conflicts)
        assert {path: data for path, data in now.items() if data and path != "kept"} == {"d/a": b"1", "d/e/b": b"2"}
        assert bench.apply("f") == []
    assert not {path for path, data in contents(bench.project).items() if data is not None} - {"kept"}
    while contents(bench.project).get("kept") != b"3" or "d/e/b" not in contents(bench.project):
        assert bench.undo() == []
    assert {path: data for path, data in contents(bench.project).items() if data is not None} == files


def test_a_file_of_the_user_changes_its_case_while_a_fork_is_open(bench: Workbench) -> None:
    write(bench.project, {"readme": b"1", "a": b"2"})
    bench.run("f", lambda work: write(work, {"readme": b"fork", "a": b"fork"}))
    (bench.project / "readme").rename(bench.project / "x")
    (bench.project / "x").rename(bench.project / "README")
    conflicts = bench.apply("f")
    now = contents(bench.project)
    assert now["a"] == b"fork"
    if conflicts:
        assert [text.partition(":")[0] for text in conflicts] == ["readme"] and now["README"] == b"1"
    else:
        assert b"fork" in (now.get("README"), now.get("readme"))
    assert bench.undo() == []
    assert contents(bench.project) == {"README": b"1", "a": b"2"}
