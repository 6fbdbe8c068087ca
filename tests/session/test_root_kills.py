"""An apply, undo or redo over two projects, cut off at every call that changes something on disk: all or nothing.

The second project is on another file system than the state, so that its slots lie in it. The recovery begins in either
project.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Listing, Place, listing, tick
from cut_off import crash_in_child, fresh
from mudroom.sandbox.client.client import Client
from mudroom.session import Session
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.forks.ties import Tie
from tiers import every
from world import fast_place

pytestmark = [pytest.mark.both_users, if_namespaces]

OTHER = b"""
cd "$1"; echo more >> edited; rm removed; mkdir new; echo n > new/f
"""
"""It leaves the first project as it is."""
SCRIPT = b"""
echo more >> edited; rm removed; mkdir new; echo n > new/f; cd "$1"
echo more >> edited; rm removed; mkdir new; echo n > new/f; mkdir empty
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with fast_place(tmp_path) as place:
        yield place


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system than the projects of ``root``."""
    path = tmp_path / "other"
    path.mkdir()
    yield path
    remove_tree(os.fsencode(path))


def fill(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "edited").write_text("one\n")
    (directory / "removed").write_text("gone\n")


def seen(place: Place, lib: Path) -> list[Listing]:
    trees = [listing(place.project), listing(lib)]
    for tree in trees:
        for name in [name for name in tree if name.startswith(".mudroom")]:
            del tree[name]
    return trees


def play(root: Path, client: Client, lib: Path, verb: str, number: int, script: bytes = SCRIPT) -> bool:
    """Cut the verb off before change ``number``, recover, and check. Return whether it was cut off."""
    place = fresh(root, client, number)
    fill(place.project)
    fill(lib)
    before = seen(place, lib)
    session = place.session()
    result = session.run([b"sh", b"-ec", script, b"sh", os.fsencode(lib)], roots=[os.fsencode(lib)])
    assert result.exit_code == 0, result.stderr
    fork = result.fork
    work = functools.partial(session.changes.apply, fork)
    after = None
    if verb != "apply":
        session.changes.apply(fork)
        after = seen(place, lib)
        work = session.changes.undo  # type: ignore[assignment]
    if verb == "redo":
        session.changes.undo()
        work = session.changes.redo  # type: ignore[assignment]
    tick()
    was_cut = crash_in_child(work, number)
    again = place.session()
    there = again.root(Tie(b"", os.fsencode(lib)))
    recover(there if number % 2 else again, again if number % 2 else there)
    assert not again.vault.has_unfinished()
    now = seen(place, lib)
    if after is None and now != before:  # it went forward: undo is the way back, redo the way there
        after = now
        assert (lib / "new/f").exists()
        assert (place.project / "new/f").exists() == (script == SCRIPT)
    assert now in (before, after), f"torn at change {number}"
    if verb == "apply" and now == before:
        again.changes.apply(fork)
        after = seen(place, lib)
        assert (lib / "new/f").exists()
    states = [row["state"] for row in again.changes.applies()][-1:]
    if seen(place, lib) == before:
        assert states == ["undone"]
        again.changes.redo()
    assert seen(place, lib) == after
    again.changes.undo()
    assert seen(place, lib) == before
    place.close()
    remove_tree(os.fsencode(place.root))
    shutil.rmtree(lib)
    return was_cut


def recover(first: Session, second: Session) -> None:
    for session in (first, second):
        with session.alone("the test"):
            pass


@pytest.mark.parametrize("verb", ["apply"])
def test_a_part_of_the_kills(root: Path, client: Client, other: Path, verb: str) -> None:
    for number in every(60, 1_000):
        if not play(root, client, other / f"lib{number}", verb, number):
            return
    raise AssertionError("the work never came to its end")


@pytest.mark.deep
@pytest.mark.parametrize("verb", ["apply", "undo", "redo"])
def test_every_kill(root: Path, client: Client, other: Path, verb: str) -> None:
    for number in range(1, 1_000):
        if not play(root, client, other / f"lib{number}", verb, number):
            return
    raise AssertionError("the work never came to its end")


@pytest.mark.deep
@pytest.mark.parametrize("verb", ["apply", "undo", "redo"])
def test_every_kill_without_a_change_of_the_first_project(root: Path, client: Client, other: Path, verb: str) -> None:
    for number in range(1, 1_000):
        if not play(root, client, other / f"lib{number}", verb, number, OTHER):
            return
    raise AssertionError("the work never came to its end")
