"""A try that has ended, made without running one: a fork for each script, and the record that a try would write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conftest import Place, tick
from mudroom.core.tree.change import summarise
from mudroom.ext.attempts import record as tries
from mudroom.ext.attempts.value import FORMAT, AttemptRecord, TryRecord, best_of, folded
from mudroom.session import Session
from mudroom.vault.forks.result_digest import result_digest
from mudroom.vault.forks.review import fingerprint


@pytest.fixture
def project(place: Place) -> Place:
    place.write("a.py", "one\ntwo\n")
    place.write("b.py", "b\n")
    return place


def tried(place: Place, scripts: Sequence[str], *, passed: Sequence[int] = (), **fields: Any) -> TryRecord:
    """Run each script in a fork ``t1-N``, and save the record. ``passed``: numbers of the attempts that the judge
    accepts; default: all."""
    tick()
    with place.session() as session:
        lock = tries.begin(session.vault.path)
        attempts = []
        for number, script in enumerate(scripts, 1):
            fork = f"{lock.name}-{number}"
            session.forks.new(fork)
            result = session.run([b"sh", b"-c", script.encode()], fork=fork)
            assert result.exit_code == 0, result.stderr
            attempts.append(attempt_of(session, number, fork, ok=not passed or number in passed))
        rows = folded(attempts)
        best = best_of(rows, "exit")
        record = TryRecord(
            FORMAT, lock.name, 1_790_000_000 * 10**9, 1_790_000_060 * 10**9, (b"agent", b"{i}"), (b"make", b"test"),
            "exit", "", best.number if best is not None else 0, rows,
        )._replace(**fields)  # fmt: skip
        tries.save(session.vault.path, record)
        lock.release()
    return record


def attempt_of(session: Session, number: int, fork: str, *, ok: bool = True) -> AttemptRecord:
    changes = session.changes.of(fork)
    summary = summarise(changes.changes)
    return AttemptRecord(
        number,
        fork,
        (b"agent", b"%d" % number),
        "passed" if ok else "failed",
        0,
        0 if ok else 1,
        None,
        result_digest(session.vault, session.vault.fork(fork)),
        summary.added,
        summary.modified + summary.renamed,
        summary.deleted,
        summary.lines_added + summary.lines_removed,
        1.5 * number,
        b"report of %d\n" % number,
        reviewed=fingerprint(changes),
    )
