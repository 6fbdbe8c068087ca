"""Apply, undo and redo, cut off or failing at any system call that changes something on disk; the kernel counts them.

A child does what ``mudroom apply``, ``undo`` or ``redo`` does, and at call N one of the ``MODES`` strikes. Afterwards
the next command recovers. Whatever N is, and whichever way project, fork and vault lie to each other (``WAYS``):

* the project is exactly as before, to the inode, or exactly as the script would have made it; no file is torn;
* nothing is left in it or in the vault that is not part of a finished apply; ``mudroom vault check`` finds nothing;
* what has not landed is in the fork, and a second apply lands it;
* undo brings back what was there, to the inode; after it and ``gc`` the vault is empty;
* a call that fails is one error that names its reason, never another crash, never silence.

A run takes a sample: for each mode, evenly spread calls, others for each and others each day (``tiers.SEED``), and
every call on a plan; in the quick tier, one call for each and one on a plan, and half of the pairs of a way and a mode.
``MUDROOM_FAULTS=all`` takes every call, and prints how many runs that were (MUDROOM_TEST_SECONDS=3600 with it).
"""

from __future__ import annotations

import errno
import functools
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults import (
    INTERRUPT,
    KILL_AFTER,
    KILL_BEFORE,
    PASS,
    Call,
    Decider,
    Outcome,
    at,
    dead_from,
    full_from,
    passing,
    short_at,
    watched,
    without_flags,
)
from faults import why_impossible as why_not_watched
from mudroom.sandbox.client.launcher_client import LauncherClient
from tiers import QUICK, SEED, pairs, sample
from world import (
    SCRIPT,
    SMALL,
    TOGETHER,
    WAYS,
    Portraits,
    Way,
    World,
    fast_place,
    load_modules,
    portraits,
    why_impossible,
)

ALL = os.environ.get("MUDROOM_FAULTS") == "all"
SAMPLE = sample(3)
"""Calls of each kind of run; twice as many where all is on one file system."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not_watched()), reason=why_not_watched())]


def _killed_before(number: int) -> Decider:
    return at(number, KILL_BEFORE)


def _killed_after(number: int) -> Decider:
    return at(number, KILL_AFTER)


def _no_space(number: int) -> Decider:
    return at(number, -errno.ENOSPC)


def _io_error(number: int) -> Decider:
    return at(number, -errno.EIO)


def _interrupted(number: int) -> Decider:
    return at(number, INTERRUPT)


MODES: dict[str, Callable[[int], Decider]] = {
    "killed-before": _killed_before,
    "killed-after": _killed_after,
    "no-space-once": _no_space,
    "io-error-once": _io_error,
    "short-write": short_at,
    "full-from-here": full_from,
    "dead-from-here": dead_from,
    "ctrl-c": _interrupted,
}


_OF_SQLITE = "|disk I/O error|unable to open database file|attempt to write a readonly database"
"""Its words for a failed call on one of its files, whatever the system's reason."""
_FULL, _BROKEN = "No space left on device|disk is full" + _OF_SQLITE, "Input/output error" + _OF_SQLITE
REASONS = {"no-space-once": _FULL, "full-from-here": _FULL, "io-error-once": _BROKEN}
"""The system's words, and SQLite's, in an error about what has landed."""
SOME = list(MODES) if ALL else ["killed-before", "dead-from-here"]
"""For what goes the way that something else has gone before."""


def every_way_and(name: str, kinds: list[str]) -> pytest.MarkDecorator:
    chosen = pairs(WAYS, kinds, 6)
    ids = [f"{way.name}-{kind}" for way, kind in chosen]
    return pytest.mark.parametrize(("way", name), chosen, indirect=["way"], ids=ids)


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    if why_impossible(found):
        pytest.skip(why_impossible(found))
    return found


@functools.cache
def _measured(client: LauncherClient, root: Path, way: Way, script: str, what: str) -> tuple[list[Call], Portraits]:
    """The calls of an undisturbed apply, undo or redo, and what the apply makes of the project."""
    world = World(root / f"measure-{way.name}-{what}-{zlib.crc32(script.encode()):x}", client, way, script)
    decide = _for(way, passing)
    outcome = watched(world.apply, decide)
    after = portraits(world.project)
    if what != "apply":
        outcome = watched(world.undo, decide)
        assert world.is_as_before()
    if what == "redo":
        outcome = watched(world.redo, decide)
        assert portraits(world.project) == after
    assert outcome.error is None, outcome.error
    assert not outcome.unknown, f"faults.c does not know the calls {outcome.unknown}"
    world.remove()
    return [call for call in outcome.calls if call.number], after


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, client: LauncherClient) -> Iterator[Path]:
    with fast_place(tmp_path_factory.mktemp("faults")) as place:
        load_modules(client)
        yield place


def _numbers(calls: list[Call], mode: str, salt: str) -> list[int]:
    """Which calls are struck: all of those that the mode can strike, or the sample."""
    possible = [call.number for call in calls if _can_strike(mode, call)]
    if ALL or not possible:
        return possible
    offset = zlib.crc32(f"{SEED} {mode} {salt}".encode()) % 1000 / 1000
    count = SAMPLE * (2 if salt.startswith("together") else 1)
    found = {possible[int((index + offset) * len(possible) / count)] for index in range(count)}
    if mode.startswith("killed") and salt.startswith("together"):
        on_a_plan = [call.number for call in calls if "/plan." in call.what or "/pending" in call.what]
        found |= {on_a_plan[int(offset * len(on_a_plan))]} if QUICK else set(on_a_plan)
    return sorted(found)


def _can_strike(mode: str, call: Call) -> bool:
    if mode == "short-write":
        return call.can_be_short
    return call.needs_space if mode in ("no-space-once", "full-from-here") else True


def check_error(outcome: Outcome, mode: str, where: str) -> None:
    if outcome.error is None:
        return
    kind, text, trace = outcome.error
    if kind == "KeyboardInterrupt" and mode == "ctrl-c":
        return
    clear = ("OSError", "MudroomError", "UsageError", "Unsupported", "ForkMoved", "PermissionError", "ApplyUnwritten")
    assert kind in clear, f"{where}: {kind}: {text}\n{trace}"
    assert text and "\n" not in text, f"{where}: {kind}: {text!r}"
    if kind == "ApplyUnwritten" and mode in REASONS:
        assert re.search(REASONS[mode], text), f"{where}: {text}"


def was_told_as_done(outcome: Outcome) -> bool:
    return outcome.value is not None or (outcome.error is not None and outcome.error[0] == "ApplyUnwritten")


def check_apply(world: World, outcome: Outcome, after: Portraits, where: str) -> str:
    """All that must be true after an apply that something happened to. Returns what became of it."""
    recovered = world.recover()
    assert all(not one.applied.conflicts for one in recovered), f"{where}: {recovered}"
    now = portraits(world.project)
    landed = now == after
    assert landed or world.is_as_before(), f"{where}: torn, {_difference(now, world.before, after)}"
    assert world.unfinished() == [], where
    if outcome.value is not None:
        assert outcome.value == (0, 0), where
    assert landed or not was_told_as_done(outcome), f"{where}: it was said that all had landed"
    assert world.still_there() != landed, f"{where}: the fork {'still' if landed else 'no longer'} has its changes"
    if not landed:
        assert world.apply() == (0, 0), where
        assert portraits(world.project) == after, where
    check_undo_and_nothing_left(world, where)
    return "landed" if landed else "untouched"


def check_undo(world: World, outcome: Outcome, after: Portraits, where: str) -> str:
    undone = _check_turn(world, outcome, after, where, wanted=world.before)
    if not undone:
        assert world.undo() == 0, where
    assert world.is_as_before(), f"{where}: not the same files"
    assert world.leftovers() == [], where
    return "undone" if undone else "untouched"


def check_redo(world: World, outcome: Outcome, after: Portraits, where: str) -> str:
    redone = _check_turn(world, outcome, after, where, wanted=after)
    if not redone:
        assert world.is_as_before(), f"{where}: not the same files"
        assert world.redo() == 0, where
        assert portraits(world.project) == after, where
    check_undo_and_nothing_left(world, where)
    return "redone" if redone else "untouched"


def _check_turn(world: World, outcome: Outcome, after: Portraits, where: str, wanted: Portraits) -> bool:
    """Recover. Whether it is done."""
    recovered = world.recover()
    assert all(not one.applied.conflicts for one in recovered), f"{where}: {recovered}"
    now = portraits(world.project)
    assert now in (world.before, after), f"{where}: torn, {_difference(now, world.before, after)}"
    assert world.unfinished() == [], where
    if outcome.value is not None:
        assert outcome.value == 0, where
    assert now == wanted or not was_told_as_done(outcome), f"{where}: it was said that all was done"
    return now == wanted


def check_undo_and_nothing_left(world: World, where: str) -> None:
    assert world.undo() == 0, where
    assert world.is_as_before(), f"{where}: undo brought back {_difference(portraits(world.project), world.before, {})}"
    assert world.unfinished() == [], where
    assert world.leftovers() == [], where


def _difference(now: Portraits, before: Portraits, after: Portraits) -> str:
    names = sorted({*now, *before, *after})
    old = [name for name in names if now.get(name) != before.get(name)]
    new = [name for name in names if now.get(name) != after.get(name)]
    return f"not as before: {old[:6]}; not as after: {new[:6]}"


CHECKS = {"apply": check_apply, "undo": check_undo, "redo": check_redo}


def _strike(
    root: Path,
    client: LauncherClient,
    way: Way,
    what: str,
    mode: str,
    capsys: pytest.CaptureFixture[str],
    script: str = SCRIPT,
) -> None:
    calls, after = _measured(client, root, way, script, what)
    became: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    numbers = _numbers(calls, mode, f"{way.name} {what}")
    for number in numbers:
        world = World(root / f"{way.name}-{what}-{mode}-{number}", client, way, script)
        struck = calls[number - 1]
        where = f"{what}, {way.name}, {mode} {number} of {len(calls)} ({struck.name} {struck.what})"
        if what != "apply":
            world.apply()
        if what == "redo":
            world.undo()
        decide = MODES[mode](number)
        outcome = watched(getattr(world, what), _for(way, decide))
        assert outcome.killed == mode.startswith("killed"), where
        check_error(outcome, mode, where)
        errors[outcome.error[0] if outcome.error else "killed" if outcome.killed else "no error"] += 1
        became[CHECKS[what](world, outcome, after, where)] += 1
        world.remove()
    _tell(capsys, f"{what:5} {way.name:10} {mode:14} {len(numbers):4} runs {dict(became)} {dict(errors)}")


@every_way_and("mode", list(MODES))
def test_apply_struck_at_any_call(
    root: Path, client: LauncherClient, way: Way, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _strike(root, client, way, "apply", mode, capsys)


@every_way_and("mode", list(MODES))
def test_undo_struck_at_any_call(
    root: Path, client: LauncherClient, way: Way, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _strike(root, client, way, "undo", mode, capsys)


@every_way_and("mode", SOME)
def test_redo_struck_at_any_call(
    root: Path, client: LauncherClient, way: Way, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _strike(root, client, way, "redo", mode, capsys)


# --- with conflicts and merges ---

MEANWHILE = """
sed -i '1i first' edited; echo mine >> removed; echo mine > single; echo mine > gone/mine; rm big; echo mine > moved
"""
"""What the user has done to the project since the command ran: merged, kept, in the way, gone, moved along."""


@functools.cache
def _measured_in_conflict(
    client: LauncherClient, root: Path, way: Way
) -> tuple[list[Call], Portraits, tuple[int, int], list[bytes]]:
    """As ``_measured``, with what the apply says, and what stays in the fork."""
    world = World(root / f"measure-{way.name}-conflict", client, way, meanwhile=MEANWHILE)
    outcome = watched(world.apply, _for(way, passing))
    assert outcome.error is None, outcome.error
    after, left = _timeless(world), world.changed()
    world.remove()
    return [call for call in outcome.calls if call.number], after, outcome.value, left


def _timeless(world: World) -> Portraits:
    """What is merged is written anew, so its time tells nothing."""
    return {name: one._replace(mtime=0) for name, one in portraits(world.project).items()}


@every_way_and("mode", SOME)
def test_apply_with_conflicts_struck_at_any_call(
    root: Path, client: LauncherClient, way: Way, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, after, said, left = _measured_in_conflict(client, root, way)
    assert said[0] >= 3
    became: Counter[str] = Counter()
    numbers = _numbers(calls, mode, f"{way.name} conflict")
    for number in numbers:
        world = World(root / f"{way.name}-conflict-{mode}-{number}", client, way, meanwhile=MEANWHILE)
        struck = calls[number - 1]
        where = f"conflicts, {way.name}, {mode} {number} of {len(calls)} ({struck.name} {struck.what})"
        decide = MODES[mode](number)
        outcome = watched(world.apply, _for(way, decide))
        check_error(outcome, mode, where)
        world.recover()
        now = _timeless(world)
        landed = now == after
        assert landed or world.is_as_before(), f"{where}: torn, {_difference(now, {}, after)}"
        assert world.unfinished() == [], where
        assert outcome.value in (None, said), where
        became["landed" if landed else "untouched"] += 1
        if not landed:
            assert world.apply() == said, where
        assert world.changed() == left, where
        assert world.apply()[1] == len(left), f"{where}: what is in conflict does not stay so"
        assert _timeless(world) == after, f"{where}: {_difference(_timeless(world), after, {})}"
        assert world.undo() == 0, where
        assert world.is_as_before(), f"{where}: not as before"
        world.remove()
    _tell(capsys, f"conflict {way.name:10} {mode:14} {len(numbers):4} runs {dict(became)}")


# --- recovery itself ---


@every_way_and("what", ["apply", "undo", "redo"])
def test_recovery_killed_at_any_call(
    root: Path, client: LauncherClient, way: Way, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed, killed again while the next command recovers, and then left in peace."""
    calls, after = _measured(client, root, way, SCRIPT, what)
    first = [call.number for call in calls if "plan." in call.what or "/project/" in call.what]
    first = first[::9] if ALL else _some(first, what, way)
    runs = 0
    for number in first:
        again, total = 1, 1
        while again <= total:
            world = World(root / f"{way.name}-{what}-again-{number}-{again}", client, way)
            where = f"{what}, {way.name}, killed before {number}, recovery killed before {again}"
            if what != "apply":
                world.apply()
            if what == "redo":
                world.undo()
            watched(getattr(world, what), _for(way, at(number, KILL_BEFORE)))
            outcome = watched(world.recover, _for(way, at(again, KILL_BEFORE)))
            if again == 1:
                total = _length_of_recovery(client, root, way, what, number)
            CHECKS[what](world, outcome._replace(value=None), after, where)
            world.remove()
            runs += 1
            again += 1 if ALL else max(1, total // 2)
    _tell(capsys, f"recovery of {what} {way.name:10} {runs:4} runs")


def _some(numbers: list[int], what: str, way: Way) -> list[int]:
    """The first, the middle and the last; in the quick tier one, drawn by the seed of the day."""
    if not QUICK:
        return numbers[:: len(numbers) // 2]
    return [numbers[zlib.crc32(f"{SEED} {what} {way.name}".encode()) % len(numbers)]]


def _length_of_recovery(client: LauncherClient, root: Path, way: Way, what: str, number: int) -> int:
    world = World(root / f"{way.name}-{what}-length-{number}", client, way)
    if what != "apply":
        world.apply()
    if what == "redo":
        world.undo()
    watched(getattr(world, what), _for(way, at(number, KILL_BEFORE)))
    found = len([call for call in watched(world.recover, _for(way, passing)).calls if call.number])
    world.remove()
    return found


def _for(way: Way, decide: Decider) -> Decider:
    return without_flags(decide) if way.plain else decide


def _tell(capsys: pytest.CaptureFixture[str], line: str) -> None:
    if ALL:
        with capsys.disabled():
            sys.stdout.write(f"\n{line} ")


# --- the books of the fork ---


def test_a_fork_lets_go_of_what_landed_just_before_mudroom_was_killed(root: Path, client: LauncherClient) -> None:
    calls, _after = _measured(client, root, TOGETHER, SMALL, "apply")
    unmark = next(call for call in calls if call.name == "unlink" and call.what.endswith("applies/pending"))
    for number, number_after in ((unmark.number, KILL_BEFORE), (unmark.number, KILL_AFTER)):
        world = World(root / f"books-{number_after}", client, TOGETHER, SMALL)
        watched(world.apply, at(number, number_after))
        world.recover()
        still = world.still_there()
        world.remove()
        assert not still


def test_what_a_fork_has_changed_since_outlives_a_redo_that_was_cut_off(root: Path, client: LauncherClient) -> None:
    """A redo takes out of a fork what the fork has not changed since."""
    world = World(root / "goes-on", client, TOGETHER, SMALL)
    with world.session() as session, session.alone("apply"):
        session.forks.rename(world.fork, "named")
        session.changes.apply("named")
        session.changes.undo()
    with world.session() as session:
        session.run([b"sh", b"-c", b"echo other >> edited; echo later > later"], fork="named")
    assert watched(world.redo, lambda call: KILL_AFTER if call.name == "renameat2" else PASS).killed
    world.recover()
    with world.session() as session:
        found, content = session.changes.of("named"), session.forks.files("named").read("later")
        shown = b"".join(session.changes.diff("named", [b"edited"]))
    world.remove()
    assert ([change.path for change in found.changes], content) == ([b"edited", b"later"], b"later\n")
    assert b"\n+other\n" in shown and shown.count(b"\n+") == 2, "its own line alone"
