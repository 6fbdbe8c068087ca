"""Apply and undo, cut off at every single call that changes something on disk, and with every such call failing.

The child process does the work with counted calls and ends itself (as SIGKILL would) before call N; the parent then
recovers, as the next mudroom command would. Whatever N is: the project is as before or as after, never torn, the
user's files are all there, and what did not land is still in the fork.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Listing, Place, listing, tick
from cut_off import counted, crash_in_child, fresh, points
from mudroom.errors import ApplyUnwritten
from mudroom.sandbox.client.client import Client
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.apply.landing import LandingResult
from tiers import QUICK
from world import fast_place

SCRIPT = (
    "echo more >> edited; rm -r gone removed; mkdir -p new/sub; echo n > new/sub/f; chmod +x mode;"
    "rm kind; mkdir kind; echo k > kind/k; mkdir -m 555 closed; echo s > single; mv moved there"
)


def project(place: Place) -> None:
    for name in ("edited", "gone/a", "gone/b/c", "removed", "mode", "kind", "moved", "untouched"):
        place.write(name, f"{name}\n")


class Fault(Exception):
    pass


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with fast_place(tmp_path) as place:
        yield place


def test_apply_killed_anywhere(root: Path, client: Client) -> None:
    outcomes = set()
    for number in points():
        place = fresh(root, client, number)
        project(place)
        before = listing(place.project)
        session, result = place.sh(SCRIPT)
        assert result.exit_code == 0, result.stderr
        after = _expected(before)
        crashed = crash_in_child(functools.partial(session.changes.apply, result.fork), number)
        again = place.session()
        recovered = again.changes.recover()
        outcomes |= {outcome.outcome for outcome in recovered}
        assert all(not outcome.applied.conflicts for outcome in recovered)
        now = listing(place.project)
        assert now in (before, after), f"torn at change {number}"
        if now == before:
            landed: LandingResult = again.changes.apply(result.fork)
            assert not landed.conflicts
            assert listing(place.project) == after
        undone = again.changes.undo()
        assert not undone.conflicts
        assert listing(place.project) == before
        assert again.changes.recover() == []
        place.close()
        remove_tree(os.fsencode(place.root))
        if not crashed:
            break
    assert outcomes == {"deferred", "finished"} or (QUICK and outcomes <= {"deferred", "finished"})
    assert number > 30


def test_redo_killed_anywhere(root: Path, client: Client) -> None:
    outcomes = set()
    for number in points():
        place = fresh(root, client, number)
        project(place)
        before = listing(place.project)
        session, result = place.sh(SCRIPT)
        session.changes.apply(result.fork)
        after = listing(place.project)
        session.changes.undo()
        crashed = crash_in_child(session.changes.redo, number)
        again = place.session()
        outcomes |= {outcome.outcome for outcome in again.changes.recover()}
        now = listing(place.project)
        assert now in (before, after), f"torn at change {number}"
        if now == before:
            assert not again.changes.redo().conflicts
        assert listing(place.project) == after
        assert not again.changes.undo().conflicts
        assert listing(place.project) == before
        place.close()
        remove_tree(os.fsencode(place.root))
        if not crashed:
            break
    assert outcomes == {"finished"} or (QUICK and not outcomes)


@pytest.mark.parametrize("script", ["echo theirs > edited", "echo theirs > edited; echo n > new"])
@pytest.mark.parametrize("verb", ["apply", "undo", "redo"])
def test_what_is_dropped_survives_being_killed_anywhere(root: Path, client: Client, verb: str, script: str) -> None:
    """Whatever happens, either the fork has its change, or there is an apply to be undone that brings it back."""
    for number in points():
        place = fresh(root, client, number)
        project(place)
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


def test_undo_killed_anywhere(root: Path, client: Client) -> None:
    outcomes = set()
    for number in points():
        place = fresh(root, client, number)
        project(place)
        before = listing(place.project)
        session, result = place.sh(SCRIPT)
        session.changes.apply(result.fork)
        after = listing(place.project)
        crashed = crash_in_child(session.changes.undo, number)
        again = place.session()
        recovered = again.changes.recover()
        outcomes |= {outcome.outcome for outcome in recovered}
        now = listing(place.project)
        assert now in (before, after), f"torn at change {number}"
        if now == after:
            assert not again.changes.undo().conflicts
        assert listing(place.project) == before
        place.close()
        remove_tree(os.fsencode(place.root))
        if not crashed:
            break
    assert outcomes == {"undone"} or (QUICK and not outcomes)


@pytest.mark.parametrize("number_of_error", [errno.ENOSPC, errno.EIO])
def test_a_full_or_failing_disk_anywhere(
    root: Path, client: Client, monkeypatch: pytest.MonkeyPatch, number_of_error: int
) -> None:
    for number in points():
        place = fresh(root, client, number)
        project(place)
        before = listing(place.project)
        session, result = place.sh(SCRIPT)
        failed: list[int] = []

        def fail(count: int, number: int = number, failed: list[int] = failed) -> None:
            if count == number:
                failed.append(count)
                raise OSError(number_of_error, os.strerror(number_of_error))

        with monkeypatch.context() as patch:
            counted(patch, fail)
            try:
                session.changes.apply(result.fork)
            except ApplyUnwritten as error:
                assert os.strerror(number_of_error) in error.why
                assert listing(place.project) == _expected(before), f"{number}: {error}"
            except OSError as error:
                assert error.errno == number_of_error
        again = place.session()
        again.changes.recover()
        after = _expected(before)
        now = listing(place.project)
        assert now in (before, after), f"torn when change {number} failed"
        if now == before:
            again.changes.apply(result.fork)
            assert listing(place.project) == after
        assert not again.changes.undo().conflicts
        assert listing(place.project) == before
        place.close()
        remove_tree(os.fsencode(place.root))
        if not failed:
            break


def _expected(before: Listing) -> Listing:
    after = {name: entry for name, entry in before.items() if not name.startswith(("gone", "removed", "moved"))}
    after["edited"] = ("file", 0o644, b"edited\nmore\n")
    after |= {"new": ("directory", 0o755, b""), "new/sub": ("directory", 0o755, b"")}
    after |= {"new/sub/f": ("file", 0o644, b"n\n"), "mode": ("file", 0o755, b"mode\n")}
    after |= {"kind": ("directory", 0o755, b""), "kind/k": ("file", 0o644, b"k\n")}
    after |= {"closed": ("directory", 0o555, b""), "single": ("file", 0o644, b"s\n")}
    return after | {"there": ("file", 0o644, b"moved\n")}


def test_a_second_writer_during_apply_loses_nothing(place: Place) -> None:
    """While files are applied, somebody else rewrites them: every version they wrote last is there afterwards,
    in the project or, if apply came later, in the backup that undo brings back."""
    names = [f"f{number}" for number in range(200)]
    for name in names:
        place.write(name, "base\n")
    session, result = place.sh("for f in f*; do echo fork > $f; done")
    pid = os.fork()
    if pid == 0:
        for name in reversed(names):
            beside = place.project / f"{name}.tmp"
            beside.write_text("user\n")
            os.rename(beside, place.project / name)
        os._exit(0)
    landed = session.changes.apply(result.fork)
    os.waitpid(pid, 0)
    conflicts = {conflict.path.decode() for conflict in landed.conflicts}
    for name in names:
        content = (place.project / name).read_text()
        assert content == "user\n", "the user's rename came last, or was kept as a conflict"
        assert name in conflicts or content == "user\n"
    if landed.applied.name:
        session.changes.undo()
    assert all((place.project / name).read_text() == "user\n" for name in names)
