"""A worker's claims about an errand, bounded before they are used. No worker is believed: its claims are shown as such,
and decide which archives are fetched first."""

from __future__ import annotations

import math

import msgspec

from mudroom.api import show
from mudroom.ext.fleet.origin.errand_log import AttemptRow
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.message import DIGEST, PROTOCOL, ErrandOutcome, WorkerHello, message_of

STATES = frozenset({"ended", "refused", "failed", "cancelled", "expired", "lost"})
LARGEST = 10 * 10**9
"""Bytes in an archive, as for an import."""
_LONGEST = 500
_MOST = 1 << 40
_KEPT = 1 << 16
"""Bytes of a judge's report that the log keeps."""
_NOTES = 20
_NODES = 10_000
_MOST_GPUS = 1024


def checked_outcome(outcome: ErrandOutcome, key: tuple[str, int]) -> ErrandOutcome:
    """Return an outcome with texts that a terminal cannot obey and numbers that can be added up. Raise LinkError if it
    is not about this attempt, or if it announces an impossible archive."""
    if (outcome.errand, outcome.attempt) != key:
        raise LinkError("answered for another errand than it was asked")
    if outcome.state not in STATES:
        raise LinkError("sent an outcome of a state that there is not")
    if not 0 <= outcome.archive <= LARGEST:
        raise LinkError(f"announced an archive of {outcome.archive:,} bytes")
    if outcome.archive and len(outcome.digest) != DIGEST:
        raise LinkError("announced an archive without its digest")
    return outcome._replace(
        exit_code=outcome.exit_code if 0 <= outcome.exit_code <= 255 else 255,
        signal=outcome.signal if 0 <= outcome.signal <= 64 else 0,
        seconds=_time(outcome.seconds),
        cpu=_time(outcome.cpu),
        memory=_count(outcome.memory),
        added=_count(outcome.added),
        modified=_count(outcome.modified),
        deleted=_count(outcome.deleted),
        fingerprint=line(outcome.fingerprint)[:128],
        judged=outcome.judged if -1 <= outcome.judged <= 255 else 255,
        report=outcome.report[-_KEPT:],
        reason=line(outcome.reason),
        notes=tuple(line(note) for note in outcome.notes[:_NOTES]),
    )


def checked_hello(frame: Frame) -> WorkerHello:
    """Return a worker's hello, with texts that a terminal cannot obey. Of a hello in another protocol, only that and
    the version are read. Raise LinkError if it is none."""
    try:
        start = msgspec.msgpack.decode(frame.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        start = None
    if isinstance(start, list) and len(start) > 1 and type(start[0]) is int and start[0] != PROTOCOL:
        return WorkerHello(start[0], line(str(start[1]))[:64], 0, "", "", (), 0, 0, 0, "")
    hello = message_of(frame, WorkerHello)
    return hello._replace(
        mudroom=line(hello.mudroom)[:64],
        arch=line(hello.arch)[:64],
        kernel=line(hello.kernel)[:128],
        levels=tuple(sorted({level for level in hello.levels if 0 <= level <= 2})),
        processors=min(max(hello.processors, 0), _MOST),
        memory=_count(hello.memory),
        free_disk=_count(hello.free_disk),
        engine=line(hello.engine)[:64],
        nodes=tuple(line(node) for node in hello.nodes[:_NODES]),
        gpus=min(_count(hello.gpus), _MOST_GPUS),
        free_memory=min(max(hello.free_memory, -1), _MOST),
    )


def line(text: str) -> str:
    """Return a worker's text as one line that a terminal cannot obey."""
    return show(text[:_LONGEST].encode("utf-8", "surrogatepass"))


def ranked(rows: list[AttemptRow]) -> list[AttemptRow]:
    """Return the rows that ended, the best first: passed by the judge, exit code, fewest changes, order in the run."""
    ended = [(number, row) for number, row in enumerate(rows) if row.state == "ended" and row.outcome is not None]
    return [row for _number, row in sorted(ended, key=lambda pair: (*rank(pair[1]), pair[0]))]


def rank(row: AttemptRow) -> tuple[bool, bool, int]:
    """Return a sort key for an attempt with an outcome: the better attempt has the lesser key."""
    outcome = row.outcome
    if outcome is None or row.state not in ("ended", "fetched", "kept", "late"):
        return True, True, _MOST
    return outcome.judged not in (-1, 0), outcome.exit_code != 0, outcome.added + outcome.modified + outcome.deleted


def _time(seconds: float) -> float:
    return min(max(seconds, 0.0), 1e9) if math.isfinite(seconds) else 0.0


def _count(number: int) -> int:
    return min(max(number, 0), _MOST)
