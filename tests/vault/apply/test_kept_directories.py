"""The user renames directories while an apply or an undo holds one of them open: nothing lands where it was not meant.

Each test renames at one moment, between two files of one directory. ``test_second_writer.py`` has every moment at which
something is written; here are those at which something is only read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.stage.beneath import LastDirectory, open_root
from mudroom.vault.apply.execution import Executor
from tiers import pairs

NAMES = ("d/f1", "d/f2", "d/f3")
Act = Callable[[Path], None]


def move_away(project: Path) -> None:
    os.rename(project / "d", project / "moved")


def put_a_link(project: Path) -> None:
    """A link to the directory itself: every file is still found by its path."""
    move_away(project)
    os.symlink("moved", project / "d")


def put_outside(project: Path) -> None:
    os.rename(project / "d", project.parent / "outside")
    os.symlink(project.parent / "outside", project / "d")


def put_another(project: Path) -> None:
    move_away(project)
    (project / "d").mkdir()
    for name in NAMES:
        (project / name).write_text("another\n")


ACTS: tuple[Act, ...] = (move_away, put_a_link, put_outside, put_another)


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()} if directory.is_dir() else {}


def everything(place: Place) -> dict[str, dict[str, str]]:
    """The files of the directories in which the three may be now, links not followed."""
    places = {"d": place.project / "d", "moved": place.project / "moved", "outside": place.root / "outside"}
    return {name: {} if path.is_symlink() else contents(path) for name, path in places.items()}


def acting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int, act: Callable[[], None]) -> list[str]:
    """Do the act after call ``number`` of a method. Return the list of the paths that it is called with."""
    real, seen = getattr(owner, name), list[str]()

    def called(self: Any, about: Any) -> Any:
        result = real(self, about)
        seen.append(os.fsdecode(about if isinstance(about, bytes) else about.path))
        if len(seen) == number:
            act()
        return result

    monkeypatch.setattr(owner, name, called)
    return seen


SCRIPTS = {
    "modified": "for f in d/f?; do echo fork > $f; done",
    "deleted": "rm d/f?; touch d/stays",
    "new": "for f in d/f?; do echo fork > $f.new; done",
}


def check(place: Place, before: dict[str, str], done: set[str], act: Act) -> None:
    """Only files of the operations that were over have changed in the directory, wherever it is now."""
    now = everything(place)
    held = now["outside" if act is put_outside else "moved"]
    changed = {name for name in {*held, *before} if held.get(name) != before.get(name)}
    assert changed <= done, "something has landed in a directory that had been renamed away"
    if act is put_another:
        assert all(now["d"][os.path.basename(name)] == "another\n" for name in NAMES), "the user's new files are theirs"


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("kind", "number"), pairs(list(SCRIPTS), [1, 2]))
def test_between_two_operations(
    place: Place, monkeypatch: pytest.MonkeyPatch, act: Act, kind: str, number: int
) -> None:
    for name in NAMES:
        place.write(name, "base\n")
    session, result = place.sh(SCRIPTS[kind])
    before = everything(place)["d"]
    with monkeypatch.context() as patch:
        seen = acting(patch, Executor, "_perform", number, lambda: act(place.project))
        landed = session.changes.apply(result.fork)
    check(place, before, {os.path.basename(name) for name in seen[:number]}, act)
    assert len(seen) >= 3
    if kind == "modified":  # a file to delete that is gone is no conflict, and a new one may have its place again
        assert {os.fsdecode(conflict.path) for conflict in landed.conflicts} >= set(seen[number:])


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("kind", "number"), pairs(list(SCRIPTS), [1, 2]))
def test_while_the_plan_is_made(
    place: Place, monkeypatch: pytest.MonkeyPatch, act: Act, kind: str, number: int
) -> None:
    """The directory is held open meanwhile. The operations find out."""
    for name in NAMES:
        place.write(name, "base\n")
    session, result = place.sh(SCRIPTS[kind])
    before = everything(place)["d"]
    with monkeypatch.context() as patch:
        seen = acting(patch, LastDirectory, "look", number, lambda: act(place.project))
        session.changes.apply(result.fork)
    assert len(seen) > number
    check(place, before, set(), act)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("kind", "number"), pairs(list(SCRIPTS), [1, 2]))
def test_while_an_undo_is_planned(
    place: Place, monkeypatch: pytest.MonkeyPatch, act: Act, kind: str, number: int
) -> None:
    for name in NAMES:
        place.write(name, "base\n")
    session, result = place.sh(SCRIPTS[kind])
    session.changes.apply(result.fork)
    before = everything(place)["d"]
    with monkeypatch.context() as patch:
        seen = acting(patch, LastDirectory, "look", number, lambda: act(place.project))
        session.changes.undo()
    assert len(seen) >= number
    # what is put back is looked at afterwards, when all are there
    check(place, before, {"f1", "f2", "f3", "stays"} if kind == "deleted" else set(), act)


def test_a_directory_that_is_kept_is_entered_anew_by_the_next_plan(place: Place) -> None:
    """As after a verify command, which takes its time."""
    place.write("d/f", "base\n")
    root = open_root(os.fsencode(place.project))
    with LastDirectory(root) as reader:
        assert reader.look(b"d/f") is not None
        os.rename(place.project / "d", place.project / "moved")
        assert reader.look(b"d/f") is not None, "the descriptor is of the directory, not of the path"
        reader.close()
        assert reader.look(b"d/f") is None
        assert reader.look(b"moved/f") is not None
    os.close(root)


@pytest.mark.parametrize("link", ["moved", "/"])
def test_a_link_is_not_entered(place: Place, link: str) -> None:
    place.write("moved/f", "base\n")
    os.symlink(link, place.project / "d")
    root = open_root(os.fsencode(place.project))
    with LastDirectory(root) as reader:
        assert reader.look(b"d/f") is None
        assert reader.look(b"d") is not None
        with pytest.raises(OSError, match=r"symbolic|Not a directory"):
            reader.open_file(b"d/f")
        with pytest.raises(OSError, match=r"symbolic|Not a directory"):
            reader.open_file(b"d")
    os.close(root)


def test_no_descriptor_is_left(place: Place) -> None:
    for number in range(40):
        place.write(f"d{number}/f", "base\n")
    session, result = place.sh("for f in d*/f; do echo fork > $f; done")
    session.changes.apply(result.fork)
    before = len(os.listdir("/proc/self/fd"))
    session.changes.undo()
    session.changes.redo()
    assert len(os.listdir("/proc/self/fd")) == before
