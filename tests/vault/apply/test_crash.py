"""An apply, undo or redo whose decision drops a change, cut off at every call that changes something on disk.

The child process does the work with counted calls and ends itself (as SIGKILL would) before call N; the parent then
recovers, as the next mudroom command would. ``test_faults.py`` does it to all else, with calls that the kernel counts.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import listing, tick
from cut_off import crash_in_child, fresh, points
from mudroom.sandbox.client.client import Client
from mudroom.stage.layers.layer import remove_tree
from world import fast_place


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with fast_place(tmp_path) as place:
        yield place


@pytest.mark.parametrize("script", ["echo theirs > edited", "echo theirs > edited; echo n > new"])
@pytest.mark.parametrize("verb", ["apply", "undo", "redo"])
def test_what_is_dropped_survives_being_killed_anywhere(root: Path, client: Client, verb: str, script: str) -> None:
    """Whatever happens, either the fork has its change, or there is an apply to be undone that brings it back."""
    for number in points():
        place = fresh(root, client, number)
        place.write("edited", "edited\n")
        before = listing(place.project)
        session, result = place.sh(script)
        fork = result.fork
        tick()
        place.write("edited", "ours\n")
        (conflict,) = session.changes.conflicts(fork)
        session.changes.decide(fork, conflict, "ours")
        held = [change.path for change in session.changes.of(fork).changes]
        work: Callable[[], object] = functools.partial(session.changes.apply, fork)
        if verb != "apply":
            session.changes.apply(fork)
            work = session.changes.undo
        if verb == "redo":
            session.changes.undo()
            work = session.changes.redo
        crashed = crash_in_child(work, number)
        again = place.session()
        again.changes.recover()
        assert not again.vault.has_unfinished()
        done = [one for one in again.changes.applies() if one["state"] == "applied"]
        left = [change.path for change in again.changes.of(fork).changes]
        assert left == ([] if done else held), f"torn at change {number}"
        if done:
            again.changes.undo()
        assert [change.path for change in again.changes.of(fork).changes] == held
        assert again.forks.files(fork).read(b"edited") == b"theirs\n"
        (conflict,) = again.changes.conflicts(fork)
        assert conflict.take == "ours"
        assert listing(place.project).keys() == before.keys()
        place.close()
        remove_tree(os.fsencode(place.root))
        if not crashed:
            return
