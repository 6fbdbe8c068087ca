"""The search for a union of attempts that is better than each of them.

Greedy, over attempts with different results, best first: each is merged into the present union if the two merge without
a conflict, and stays in it if the judge finds the result better. If the best attempt gains nothing from any other, the
other pairs are tried. At most ``MOST_JUDGED`` unions are judged and ``MOST_MERGED`` merges made.

A union must be better by success, exit code or score. Its number of lines does not count: a union has more lines.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from mudroom.errors import MudroomError
from mudroom.ext.attempts.session.attempt import Origin, described, new_fork
from mudroom.ext.attempts.session.judge import discard_unused, judged
from mudroom.ext.attempts.session.request import AttemptRequest
from mudroom.ext.attempts.session.union import conflicts_between, merge_into
from mudroom.ext.attempts.session.verdict import keep_pair, known_verdict, verify_command
from mudroom.ext.attempts.value import JUDGED, AttemptRecord, TryRecord, key, ranked
from mudroom.library.satellite import Score
from mudroom.sandbox.client.cancellation import Cancellation, Cancelled
from mudroom.session.session import Session
from mudroom.typing import NamedTuple

MOST_JUDGED = 16
MOST_MERGED = 64


class CombinationResult(NamedTuple):
    union: AttemptRecord | None
    """The best union, in its own fork, or None if none beats the best attempt. Its number follows the attempts'
    numbers."""
    note: str
    """The unions tried, in words."""


def combine(
    session: Session, request: AttemptRequest, origin: Origin, record: TryRecord, cancellation: Cancellation
) -> CombinationResult:
    rows = [
        attempt
        for attempt in ranked(record.attempts, record.score)
        if attempt.state in JUDGED and attempt.files and not attempt.same_as
    ]
    search = _Search(session, request, origin, record, cancellation)
    union: AttemptRecord | None = None
    try:
        unions = (search.extended(first, rows[place:]) for place, first in enumerate(rows, 1))
        union = next((found for found in unions if found is not None), None)
    except Cancelled:
        return CombinationResult(None, f"{search.words}; then it was ended")
    return CombinationResult(union, search.words)


def quality(attempt: AttemptRecord, score: Score) -> tuple[object, ...]:
    """Return an attempt's rank as far as the judge decides it."""
    return key(attempt, score)[:4]


class _Search:
    """Counts merges and judgements. Owner: the thread that finishes the try."""

    def __init__(
        self,
        session: Session,
        request: AttemptRequest,
        origin: Origin,
        record: TryRecord,
        cancellation: Cancellation,
    ) -> None:
        self._session, self._request, self._origin, self._record = session, request, origin, record
        self._cancellation = cancellation
        self._number = len(record.attempts) + 1
        self._merged = self._judged = 0
        self._best = min(quality(attempt, record.score) for attempt in record.attempts)

    @property
    def words(self) -> str:
        """The unions tried, in words."""
        conflicts = self._merged - self._judged
        return f"unions: {self._judged} judged, {conflicts} not made since the attempts conflict"

    def extended(self, first: AttemptRecord, others: Sequence[AttemptRecord]) -> AttemptRecord | None:
        """Return the best union of ``first`` with others, or None if none beats the best attempt."""
        union: AttemptRecord | None = None
        try:
            for other in others:
                if self._merged >= MOST_MERGED or self._judged >= MOST_JUDGED:
                    break
                wider = self._joined(union or first, other)
                if wider is not None:
                    if union is not None:
                        discard_unused(self._session, union.fork)
                    union, self._best = wider, quality(wider, self._record.score)
        except Cancelled:
            if union is None:
                raise
        return union

    def _do_conflict(self, below: str, other: str) -> bool:
        """Return whether two attempts are known to conflict: then no fork is made for their union."""
        changes = self._session.changes
        try:
            return bool(conflicts_between(self._session.vault, (below, changes.of(below)), (other, changes.of(other))))
        except (MudroomError, OSError):
            return False  # the merge itself finds out

    def _is_rehearsal(self, below: AttemptRecord, other: AttemptRecord) -> bool:
        """Return whether judging these two is what the matrix of forks does: the judge is the policy's verify command,
        and the project has changed nothing that they have."""
        changes = self._session.changes
        return (
            not below.of
            and self._record.score == "exit"
            and self._request.judge == verify_command(self._session)
            and not changes.drift(below.fork)
            and not changes.drift(other.fork)
        )

    def _is_known_to_fail(self, below: AttemptRecord, other: AttemptRecord) -> bool:
        """Return whether the union is known to fail, while the best attempt passes."""
        if any(self._best[:2]) or not self._is_rehearsal(below, other):
            return False
        verdict = known_verdict(self._session, below.fork, other.fork, self._request.judge)
        return verdict is not None and not verdict.passed

    def _joined(self, below: AttemptRecord, other: AttemptRecord) -> AttemptRecord | None:
        """Return the judged union in a new fork. If it has a conflict or is not better, discard the fork and return
        None."""
        session, began = self._session, time.monotonic()
        self._cancellation.require_unset()
        if self._do_conflict(below.fork, other.fork):
            self._merged += 1
            return None
        if self._is_known_to_fail(below, other):
            self._merged, self._judged = self._merged + 1, self._judged + 1
            return None
        try:
            fork = new_fork(session, Origin(below.fork), f"{self._record.name}-union")
        except (MudroomError, OSError):
            return None  # as below
        is_kept = False
        try:
            self._merged += 1
            if not merge_into(session, fork, other.fork):
                return None
            self._judged += 1
            verdict = judged(session, self._request, fork, self._number, self._cancellation)
            self._cancellation.require_unset()
            if self._is_rehearsal(below, other) and not verdict.note:
                keep_pair(session, below.fork, other.fork, self._request.judge, passed=verdict.passed)
            record = AttemptRecord(
                self._number,
                fork,
                (),
                "passed" if verdict.passed else "failed",
                judged=verdict.exit_code,
                score=verdict.score,
                report=verdict.report,
                note=verdict.note,
                of=(*(below.of or (below.number,)), other.number),
            )
            is_kept = quality(record, self._record.score) < self._best
            if not is_kept:
                return None
            record = described(session, self._origin, record, session.changes.of(fork))
            return record._replace(seconds=round(time.monotonic() - began, 3))
        except (MudroomError, OSError) as error:
            if isinstance(error, Cancelled):
                raise
            return None  # a fork was discarded meanwhile, or the disk is full: keep the attempts
        finally:
            if not is_kept:
                discard_unused(session, fork)
