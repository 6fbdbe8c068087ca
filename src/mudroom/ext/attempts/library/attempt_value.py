"""Attempts at one task as values: what ``Room.attempts`` gives and returns."""

from __future__ import annotations

import os

from mudroom.errors import MudroomError
from mudroom.ext.attempts.value import AttemptRecord, AttemptState, TryRecord, best_of, distinct, ranked, tied
from mudroom.typing import NamedTuple


class NonePassed(MudroomError):
    """Raised by ``TryResult.check``."""

    def __init__(self, message: str, hint: str, result: TryResult) -> None:
        super().__init__(message, hint)
        self.result = result
        self.exit_code = 1


class Attempt(NamedTuple):
    """One attempt, after its end."""

    number: int
    """From 1."""
    fork: str
    """Empty: its command has not run, or has changed nothing."""
    state: AttemptState
    """``passed``, ``failed``, ``ended early``, ``timed out``, ``refused``, ``not started``, ``error``."""
    command: tuple[str, ...]
    exit_code: int
    judged: int | None
    """Exit code of the judge; None: it was not judged."""
    score: float | None
    added: int
    """Files; those of ``parent`` do not count."""
    modified: int
    deleted: int
    lines: int
    """Lines added and removed."""
    seconds: float
    report: str
    """The end of the judge's output, or of the command's if it was not judged."""
    same_as: int
    """Number of the first attempt with the same result; 0: itself."""
    note: str
    of: tuple[int, ...]
    """Numbers of the attempts whose union this is."""

    @property
    def passed(self) -> bool:
        return self.state == "passed"


class TryResult(NamedTuple):
    """The end of all attempts."""

    name: str
    """As ``mudroom try show`` takes it: ``t1``."""
    attempts: tuple[Attempt, ...]
    """Best first."""
    best: Attempt | None
    """None: no attempt has passed."""
    tied: tuple[Attempt, ...]
    """Attempts with another result that are as good as the best but for their number."""
    distinct: int
    """Number of different results."""
    combined: str
    """The fork of a union that is better than each attempt; it is the best then."""
    end: str
    """Reason for which attempts were ended early: ``until``, ``budget``, ``interrupted``, ``judge``; else empty."""
    note: str

    def check(self) -> TryResult:
        """Return this result. Raise NonePassed if no attempt has passed."""
        if self.best is not None:
            return self
        raise NonePassed(f"none of {len(self.attempts)} attempts has passed", f"mudroom try show {self.name}", self)


def attempt_value(record: AttemptRecord) -> Attempt:
    return Attempt(
        record.number,
        record.fork,
        record.state,
        tuple(map(os.fsdecode, record.command)),
        record.exit_code,
        record.judged,
        record.score,
        record.added,
        record.modified,
        record.deleted,
        record.lines,
        record.seconds,
        record.report.decode("utf-8", "replace"),
        record.same_as,
        record.note,
        record.of,
    )


def try_value(record: TryRecord) -> TryResult:
    best = best_of(record.attempts, record.score)
    return TryResult(
        record.name,
        tuple(attempt_value(attempt) for attempt in ranked(record.attempts, record.score)),
        attempt_value(best) if best is not None else None,
        tuple(attempt_value(attempt) for attempt in tied(record.attempts, record.score)),
        distinct(record.attempts),
        record.combined,
        record.end,
        record.note,
    )
