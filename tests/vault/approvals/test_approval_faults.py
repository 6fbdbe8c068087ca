"""The queue of questions, cut off or failing at every system call that changes something on disk.

A child asks, is answered, and asks again, as ``exec`` and ``mudroom approve`` do; at call N one of ``MODES`` strikes.
Afterwards, whatever N is: what was allowed once has been heeded once at most, before and after together; nothing that
is there is half written; and the queue goes on.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from faults import (
    KILL_AFTER,
    KILL_BEFORE,
    Decider,
    at,
    dead_from,
    full_from,
    passing,
    short_at,
    watched,
    why_impossible,
)
from mudroom.core.approval.approval import CommandQuestion, ask_approver
from mudroom.core.command.verdict import Verdict
from mudroom.errors import MudroomError
from mudroom.vault.approvals.approver import QueueApprover
from mudroom.vault.approvals.queue import Queue
from tiers import daily

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_impossible()), reason=why_impossible())]

QUESTION = CommandQuestion((b"make",), b"/p", "f", "a", Verdict("require_approval", ("unknown",)), "make", "1234")
MODES: dict[str, Callable[[int], Decider]] = {
    "killed before": lambda number: at(number, KILL_BEFORE),
    "killed after": lambda number: at(number, KILL_AFTER),
    "full": full_from,
    "short": short_at,
    "dead": dead_from,
}


def work(place: Path) -> None:
    """Every step is tried, whatever came of the one before; what was allowed is counted outside of the queue."""
    queue = Queue(os.fsencode(place / "vault"))
    said = os.open(place / "allowed", os.O_WRONLY | os.O_APPEND)
    for step in ("ask", "answer", "ask", "ask"):
        if step == "answer":
            for row in queue.rows():
                try:
                    queue.decide(row.name, allow=True, by="page")
                except MudroomError as error:
                    assert error.message
        elif ask_approver(QueueApprover(queue, 0), QUESTION).allow:
            os.write(said, b"y")
    os.close(said)


def prepared(place: Path) -> Path:
    place.mkdir()
    (place / "vault").mkdir()
    (place / "allowed").touch()
    return place


def calls(tmp_path: Path) -> int:
    outcome = watched(functools.partial(work, prepared(tmp_path / "whole")), passing)
    assert outcome.error is None, outcome.error
    assert outcome.unknown == []
    assert (tmp_path / "whole/allowed").read_bytes() == b"y"
    return len(outcome.calls)


@pytest.mark.parametrize("mode", daily(MODES))
def test_at_every_call(tmp_path: Path, mode: str) -> None:
    total = calls(tmp_path)
    assert total > 30
    for number in range(1, total + 1):
        place = prepared(tmp_path / str(number))
        outcome = watched(functools.partial(work, place), MODES[mode](number))
        assert outcome.error is None or "OSError" in outcome.error[0] or "Errno" in outcome.error[1], outcome.error
        queue = Queue(os.fsencode(place / "vault"))
        before = len((place / "allowed").read_bytes())
        rows = queue.rows()
        decided = sum(row.state == "allowed" for row in rows)
        assert before <= decided, (number, "heeded, and not decided")
        after = sum(ask_approver(QueueApprover(queue, 0), QUESTION).allow for _time in range(3))
        used = sum(row.used for row in queue.rows() if row.state == "allowed")
        assert before + after <= decided, (number, "heeded twice")
        assert used == decided, (number, "an answer was neither used nor can be")
        (waiting,) = [row for row in queue.rows() if row.state == "waiting"]
        queue.decide(waiting.name, allow=True, by="page")
        assert ask_approver(QueueApprover(queue, 0), QUESTION).allow, (number, "it goes on")
