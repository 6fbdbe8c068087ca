"""The verbs of forks, cut off or failing at any system call that changes something on disk; the kernel counts them.

Afterwards, whatever the call was: every list can be made; a fork is as before or as after, never in between; another
fork of the same layers is as before; ``mudroom vault check`` finds nothing once ``gc`` has run; the verb can be done
again. A sample of the calls in the quick tier; ``MUDROOM_FAULTS=all`` takes every one.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from clocks import let_pass
from conftest import Place
from faults import KILL_AFTER, KILL_BEFORE, Decider, at, full_from, passing, watched
from faults import why_impossible as why_not_watched
from listed_rows import fork_rows
from mudroom.core.retention import DAY
from mudroom.errors import MudroomError, UsageError
from mudroom.session import Session
from mudroom.session.upkeep import problems, retention_limits
from mudroom.vault.retention.prune import collect_garbage
from tiers import QUICK, SEED, half, sample

ALL = os.environ.get("MUDROOM_FAULTS") == "all"
SAMPLE = 2 if QUICK else sample(12)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not_watched()), reason=why_not_watched())]

Forks = dict[str, dict[str, bytes]]
"""By the fork's name: what it has changed, path and content."""


def write(session: Session, fork: str, **files: str) -> None:
    for name, content in files.items():
        session.forks.files(fork).write(name, content)
    session.forks.flush(fork)


def discard_unless_gone(session: Session, name: str) -> None:
    if session.vault.find(name) is not None:
        session.forks.discard(name)


VERBS: dict[str, Callable[[Session], object]] = {
    "new": lambda session: session.forks.new("g"),
    "new, of a fork": lambda session: session.forks.new("g", parent="f"),
    "new, of a checkpoint": lambda session: session.forks.new("g", parent="f", at="point"),
    "new, of a snapshot": lambda session: session.forks.new("g", snapshot=True),
    "checkpoint": lambda session: session.forks.checkpoint("f", "later"),
    "rollback": lambda session: session.forks.rollback("f", "point"),
    "rename": lambda session: session.forks.rename("f", "g"),
    "discard": lambda session: discard_unless_gone(session, "f"),
    "write": lambda session: write(session, "f", a="new"),
}
OLD = {"a": b"2", "b": b"1"}
POINT = {"a": b"1", "b": b"1"}
AFTER: dict[str, Forks] = {
    "new": {"f": OLD, "g": {}},
    "new, of a fork": {"f": OLD, "g": OLD},
    "new, of a checkpoint": {"f": OLD, "g": POINT},
    "new, of a snapshot": {"f": OLD, "g": {}},
    "checkpoint": {"f": OLD},
    "rollback": {"f": POINT},
    "rename": {"g": OLD},
    "discard": {},
    "write": {"f": {**OLD, "a": b"new"}},
}


def fill(place: Place) -> None:
    (place.project / "a").write_text("0")
    with place.session() as session:
        session.forks.new("f")
        write(session, "f", a="1", b="1")
        session.forks.checkpoint("f", "point")
        session.forks.new("sibling", parent="f")
        write(session, "f", a="2")


def contents(session: Session) -> Forks:
    return {
        fork.name: {
            os.fsdecode(change.path): session.forks.files(fork.name).read(os.fsdecode(change.path))
            for change in session.changes.of(fork.name).changes
        }
        for fork in session.vault.forks()
    }


def check(place: Place, verb: str) -> None:
    with place.session() as session, session.alone("recover"):
        rows = fork_rows(session)
        assert not [row["problem"] for row in rows if row.get("problem")], rows
        now = contents(session)
        assert now.pop("sibling") == POINT
        assert now in ({"f": OLD}, AFTER[verb]), "in between"
        done = now == AFTER[verb] and now != {"f": OLD}
    with place.session() as session:
        if not done:
            again(session, verb)
            now = contents(session)
            assert now.pop("sibling") == POINT
            assert now == AFTER[verb]
        with session.alone("gc"):
            later = let_pass(session.vault, session.forks.clock() + 2 * DAY)
            collect_garbage(session.vault, retention_limits(session.actor.settings), later)
        assert problems(session) == []
        assert len(os.listdir(session.vault.path + b"/layers")) == len(
            {layer for fork in session.vault.forks() for layer in fork.state.references}
        )
        assert os.listdir(session.vault.path + b"/trash") == []


def again(session: Session, verb: str) -> None:
    try:
        VERBS[verb](session)
    except UsageError as error:
        assert verb == "checkpoint" and "already" in error.message, error  # it was made, and nothing else shows it


def strikes(verb: str, count: int) -> dict[str, Decider]:
    """Return what may happen, by name: at each call, or at evenly spread ones, others each day."""
    found: dict[str, Decider] = {}
    for kind, decider in (
        ("killed before", lambda number: at(number, KILL_BEFORE)),
        ("killed after", lambda number: at(number, KILL_AFTER)),
        ("full from", full_from),
        ("failing at", lambda number: at(number, -errno.EIO)),
    ):
        step = 1 if ALL else max(1, count // SAMPLE)
        first = 1 if ALL else 1 + random.Random(f"{SEED} {verb} {kind}").randrange(step)
        found |= {f"{kind} call {number} of {count}": decider(number) for number in range(first, count + 1, step)}
    return found


@pytest.mark.parametrize("verb", half(VERBS))
@pytest.mark.limit(600)
def test_a_verb_is_done_or_not(place: Place, verb: str) -> None:
    fill(place)
    kept = place.root / "kept"
    shutil.copytree(place.state, kept, symlinks=True)

    def work() -> None:
        with place.session() as session, session.alone("test"):
            VERBS[verb](session)

    counted = watched(work, passing)
    assert counted.error is None and not counted.unknown, counted
    calls = len(counted.calls)
    assert calls > 3
    for name, decider in strikes(verb, calls).items():
        restore(place.state, kept)
        outcome = watched(work, decider)
        if outcome.error is not None and not explained(outcome.error):
            pytest.fail(f"{verb}, {name}: {outcome.error[:2]}")
        try:
            check(place, verb)
        except (AssertionError, OSError, MudroomError) as error:
            listed = "\n".join(f"{call.number} {call.name} {call.what}" for call in counted.calls)
            raise AssertionError(f"{verb}, {name}: {error}\n{listed}") from error


def explained(error: tuple[str, str, str]) -> bool:
    """Whether the error names the failure that was injected, and is no other crash."""
    kind, text, _trace = error
    if kind == "MudroomError" and "the journal" in text:
        return True  # SQLite does not always tell the reason
    return any(reason in text for reason in ("No space left", "Input/output error"))


def restore(state: Path, kept: Path) -> None:
    shutil.rmtree(state)
    shutil.copytree(kept, state, symlinks=True)
