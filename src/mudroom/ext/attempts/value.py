"""Attempts at one task, side by side: records, ranking, and equal results. Pure.

The ranking, best first (``key``): the judge's success; its exit code, where that is the score; the score, highest
first; attempts with changes before those without; fewest changed lines; the number. Attempts that were ended before
they were judged come last. The best is the first that has passed; without a passed attempt there is no best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mudroom.core.result import text
from mudroom.library.satellite import AttemptState, Score
from mudroom.typing import Any, Literal, NamedTuple

FORMAT = 1
SCHEMA = "mudroom.try/1"
MOST = 1000
"""Attempts in one try: a project's forks are listed and read one by one."""

SCORES: tuple[Score, ...] = ("exit", "json", "-lines")

JUDGED = ("passed", "failed")
TryEnd = Literal["", "until", "budget", "interrupted", "judge"]
"""Why attempts were ended early; empty: none was. ``judge``: the judge cannot be run at all."""


class AttemptRecord(NamedTuple):
    """One attempt: a command in its own fork, and the judge's verdict."""

    number: int
    """From 1."""
    fork: str
    """Empty if there is no fork: the command has not run, or has changed nothing."""
    command: tuple[bytes, ...]
    state: AttemptState
    exit_code: int = 0
    judged: int | None = None
    """The judge's exit code; None: not judged."""
    score: float | None = None
    fingerprint: str = ""
    """Digest over the changes' paths, kinds, modes and contents; empty: they were not collected."""
    added: int = 0
    modified: int = 0
    """Includes renamed files."""
    deleted: int = 0
    lines: int = 0
    """Lines added and removed."""
    seconds: float = 0.0
    """Wall time for the command and its judge."""
    report: bytes = b""
    """The end of the judge's output, or of the command's if it was not judged."""
    same_as: int = 0
    """Number of the first attempt with this fingerprint; 0: itself."""
    note: str = ""
    """A remark for the reader: why it was refused, an error, a missing score."""
    of: tuple[int, ...] = ()
    """Numbers of the united attempts; empty: a command made this result."""
    reviewed: str = ""
    """Fingerprint from ``vault/forks/review.py`` when it was judged: it identifies the files by inode and times."""

    @property
    def files(self) -> int:
        return self.added + self.modified + self.deleted


class TryRecord(NamedTuple):
    """Several attempts at one task."""

    format: int
    name: str
    """``t1``, ``t2`` …"""
    started: int
    """Nanoseconds since 1970."""
    ended: int
    """0: running, or mudroom was killed."""
    command: tuple[bytes, ...]
    """As given, with ``{i}``."""
    judge: tuple[bytes, ...]
    """Empty: the command's exit code decides."""
    score: Score
    base_fork: str
    """The attempts' parent as ``FORK`` or ``FORK@CHECKPOINT``; empty: the project."""
    best: int
    """The best attempt's number; 0: none has passed."""
    attempts: tuple[AttemptRecord, ...]
    combined: str = ""
    """Fork with a union of attempts that is better than each of them, or empty."""
    end: TryEnd = ""
    note: str = ""

    def attempt(self, number: int) -> AttemptRecord | None:
        """Return the attempt with this number, or None."""
        return next((attempt for attempt in self.attempts if attempt.number == number), None)


def key(attempt: AttemptRecord, score: Score) -> tuple[bool, bool, int, float, bool, int]:
    """Return an attempt's rank, without its number. Attempts with equal keys are tied."""
    judged = attempt.judged if attempt.judged is not None else attempt.exit_code
    return (
        attempt.state not in JUDGED,
        attempt.state != "passed",
        judged if score == "exit" else 0,
        -attempt.score if attempt.score is not None else float("inf"),
        attempt.files == 0,
        attempt.lines,
    )


def ranked(attempts: Iterable[AttemptRecord], score: Score) -> list[AttemptRecord]:
    """Return the attempts, best first."""
    return sorted(attempts, key=lambda attempt: (key(attempt, score), attempt.number))


def best_of(attempts: Iterable[AttemptRecord], score: Score) -> AttemptRecord | None:
    """Return the best attempt, or None if none has passed."""
    first = next(iter(ranked(attempts, score)), None)
    return first if first is not None and first.state == "passed" else None


def tied(attempts: Sequence[AttemptRecord], score: Score) -> list[AttemptRecord]:
    """Return the attempts that differ from the best in result but equal it in rank."""
    best = best_of(attempts, score)
    if best is None:
        return []
    place = key(best, score)
    return [
        attempt
        for attempt in ranked(attempts, score)
        if attempt.number != best.number
        and not attempt.same_as
        and attempt.fingerprint != best.fingerprint
        and key(attempt, score) == place
    ]


def folded(attempts: Iterable[AttemptRecord]) -> tuple[AttemptRecord, ...]:
    """Return the attempts by number, each with the first attempt that has the same result."""
    first: dict[str, int] = {}
    rows = []
    for attempt in sorted(attempts, key=lambda attempt: attempt.number):
        known = first.setdefault(attempt.fingerprint, attempt.number) if attempt.fingerprint else attempt.number
        rows.append(attempt._replace(same_as=known if known != attempt.number else 0))
    return tuple(rows)


def read_score(output: bytes) -> float | None:
    """Return a judge's printed score: a number in its last non-empty line, or a JSON object there with a number under
    ``score``. Return None if there is none, or it is not finite."""
    lines = output.strip().splitlines()
    if not lines:
        return None
    import json

    try:
        value = json.loads(lines[-1])
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        value = value.get("score")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        score = float(value)
    except OverflowError:
        return None
    return score if float("-inf") < score < float("inf") else None


def numbered(words: Iterable[bytes], number: int) -> tuple[bytes, ...]:
    """Return a command's words with ``{i}`` replaced by the attempt's number."""
    return tuple(word.replace(b"{i}", b"%d" % number) for word in words)


def distinct(attempts: Iterable[AttemptRecord]) -> int:
    """Return how many different results the attempts with collected changes have."""
    return len({attempt.fingerprint for attempt in attempts if attempt.fingerprint})


def try_to_json(record: TryRecord) -> dict[str, Any]:
    """Return a try as JSON (``mudroom.try/1``, docs/FORMAT.md), its attempts best first."""
    best = record.attempt(record.best)
    return {
        "schema": SCHEMA,
        "try": record.name,
        "started": record.started,
        "ended": record.ended or None,
        "end": record.end or None,
        "command": [text(word) for word in record.command],
        "judge": [text(word) for word in record.judge] or None,
        "score": record.score,
        "from": record.base_fork or None,
        "best": best.number if best is not None else None,
        "best_fork": best.fork or None if best is not None else None,
        "tied": [attempt.number for attempt in tied(record.attempts, record.score)],
        "combined": record.combined or None,
        "passed": sum(attempt.state == "passed" for attempt in record.attempts),
        "distinct": distinct(record.attempts),
        "note": record.note or None,
        "attempts": [_attempt_to_json(attempt) for attempt in ranked(record.attempts, record.score)],
    }


def _attempt_to_json(attempt: AttemptRecord) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "fork": attempt.fork or None,
        "state": attempt.state,
        "command": [text(word) for word in attempt.command],
        "exit_code": attempt.exit_code,
        "judged": attempt.judged,
        "score": attempt.score,
        "added": attempt.added,
        "modified": attempt.modified,
        "deleted": attempt.deleted,
        "lines": attempt.lines,
        "fingerprint": attempt.fingerprint or None,
        "same_as": attempt.same_as or None,
        "of": list(attempt.of),
        "duration_ms": round(attempt.seconds * 1000),
        "report": attempt.report.decode("utf-8", "replace"),
        "note": attempt.note or None,
    }
