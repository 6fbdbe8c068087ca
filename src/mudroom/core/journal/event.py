"""One fact for the journal, and the chain that ties each to the one before.

The hash of an event covers the previous event's hash and all of its own fields, so that an edit, a removal or a
re-ordering anywhere breaks every hash after it. What was cut off at the end breaks none: for that the last event's
number and digest (``ChainHead``) are kept elsewhere, too.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

GENESIS = "0" * 64
NEAR = 50
"""Rows on either side of a broken one that are looked at to say what has been done to it."""
TOLERATED = 10**9
"""Nanoseconds. Two processes look at the clock and append in the other order; more than this and the clock was set."""


class Event(NamedTuple):
    number: int
    """1, 2, 3 … without gaps."""
    time: int
    """Nanoseconds since 1970, never less than that of the event before: if the clock was set back, ``wall`` is."""
    kind: str
    """``run``, ``apply``, ``undo``, ``discard``, ``recover``, ``degrade`` …"""
    fork: str
    data: str
    """JSON."""
    digest: str


class ChainHead(NamedTuple):
    """Up to where a chain goes."""

    number: int = 0
    digest: str = GENESIS


BEGIN = ChainHead()

What = Literal["edited", "removed", "moved", "appended", "cut", "rewritten", "head", "archive"]


class BrokenChain(NamedTuple):
    """Where a journal is not as it was written."""

    number: int
    """Of the first event that does not follow from the ones before it; of what was cut off, the first of that."""
    what: What
    text: str
    """One clause for people."""


class ChainCheck(NamedTuple):
    """What came of looking at a whole journal."""

    head: ChainHead
    """The last event that follows."""
    broken: BrokenChain | None = None
    gaps: tuple[BrokenChain, ...] = ()
    """What mudroom itself has noted: that the end was missing when it wrote the next event."""
    unanchored: int = 0
    """Events at the end that the kept head does not know: mudroom was killed right after it had written them, or they
    were appended by something that knows how to chain."""

    @property
    def intact(self) -> bool:
        return self.broken is None and not self.gaps


def digest_of(previous: str, number: int, time: int, kind: str, fork: str, data: str) -> str:
    """SHA-256 over the fields, each with its length, so that no two lists of fields look the same."""
    parts = []
    for field in (previous, str(number), str(time), kind, fork, data):
        encoded = _encoded(field)
        parts.append(b"%d:" % len(encoded) + encoded)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _encoded(field: str) -> bytes:
    try:
        return field.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character: somebody has edited it, and that is to be found, not to be raised
        return field.encode("utf-8", "surrogatepass")


def chained(previous: Event | None, after: ChainHead, time: int, kind: str, fork: str, data: dict[str, Any]) -> Event:
    """The event that follows. ``previous``: the last one, if it is known. A time before its time is noted in the data
    as ``clock`` (the clock was set back, or the event tells of what began earlier), and the event has the other's."""
    last = previous.time if previous is not None else 0
    if time + TOLERATED < last:
        data = {**data, "clock": time}
    row = (after.number + 1, max(time, last), kind, fork, json.dumps(data, separators=(",", ":"), ensure_ascii=True))
    return Event(*row, digest_of(after.digest, *row))


_FURTHEST = 1 << 63
"""Nanoseconds: what a row of the journal can hold."""


def wall(event: Event) -> int:
    """What the clock on the wall said when the event was written: nanoseconds since 1970."""
    if '"clock":' in event.data:
        data = data_of(event)
        stated = data.get("clock")
        if isinstance(stated, int) and -_FURTHEST <= stated < _FURTHEST:
            return stated
    return event.time


def data_of(event: Event) -> dict[str, Any]:
    """The event's data; empty if it is not what mudroom writes (somebody has edited it)."""
    try:
        found = json.loads(event.data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def first_broken(events: Iterable[Event]) -> int | None:
    """The number of the first event that does not follow from the ones before it; None if the chain holds."""
    broken = examine(events).broken
    return None if broken is None else broken.number


def examine(events: Iterable[Event], start: ChainHead = BEGIN, kept: ChainHead | None = None) -> ChainCheck:
    """Follow the chain from ``start`` on. ``kept``: the head that was kept elsewhere."""
    rows = iter(events)
    before: deque[Event] = deque(maxlen=NEAR)
    gaps: list[BrokenChain] = []
    head = start
    for event in rows:
        if event.number != head.number + 1 or event.digest != digest_of(head.digest, *event[:5]):
            after = [one for one, _count in zip(rows, range(NEAR), strict=False)]
            return ChainCheck(head, _diagnose(head, before, event, after, kept), tuple(gaps))
        if kept is not None and event.number == kept.number and event.digest != kept.digest:
            text = f"event {event.number} was rewritten with all that follows: it is not the one that mudroom wrote"
            return ChainCheck(head, BrokenChain(event.number, "rewritten", text), tuple(gaps))
        if event.kind == "gap":
            gaps.append(_noted(event))
        before.append(event)
        head = ChainHead(event.number, event.digest)
    if kept is not None and kept.number > head.number:
        return ChainCheck(head, _cut(head, kept), tuple(gaps))
    return ChainCheck(head, None, tuple(gaps), head.number - kept.number if kept is not None else 0)


def _cut(head: ChainHead, kept: ChainHead) -> BrokenChain:
    text = f"{_events(head.number + 1, kept.number)} missing at the end: cut off, or lost when the machine lost power"
    return BrokenChain(head.number + 1, "cut", text)


def _noted(event: Event) -> BrokenChain:
    last = data_of(event).get("last")
    missing = _events(event.number, last) if isinstance(last, int) and last >= event.number else "events were"
    text = f"{missing} missing at the end when this one was written: cut off, or lost when the machine lost power"
    return BrokenChain(event.number, "cut", text)


def _events(first: int, last: int) -> str:
    return f"event {first} is" if first == last else f"events {first} to {last} are"


def _diagnose(
    head: ChainHead,
    before: Sequence[Event] | deque[Event],
    event: Event,
    after: Sequence[Event],
    kept: ChainHead | None,
) -> BrokenChain:
    """What has been done where the chain breaks, as far as that can be told."""
    expected, number = head.number + 1, event.number
    if number != expected:
        if number < expected or any(one.number == expected for one in after):
            return BrokenChain(number, "moved", f"event {number} stands where event {expected} belongs: re-ordered")
        between = f"between {head.number} and {number}" if head.number else f"before {number}"
        return BrokenChain(number, "removed", f"{_events(expected, number - 1)} missing {between}: removed")
    origin = _origin(head, before, event, after)
    if origin is not None:
        text = f"event {number} was written as event {origin}: re-ordered, or one before it was removed"
        return BrokenChain(number, "moved", text)
    if kept is not None and number > kept.number:
        return BrokenChain(number, "appended", f"event {number} was not written by mudroom: appended without the chain")
    if after and after[0].digest == digest_of(event.digest, *after[0][:5]):
        other = f", or event {number - 1} was, with its digest" if number > 1 else ""
        return BrokenChain(number, "edited", f"event {number} was edited{other}")
    if not after and kept == ChainHead(number, event.digest):
        return BrokenChain(number, "edited", f"event {number} was edited")
    rest = " with those that follow" if after else ", or was not written by mudroom"
    return BrokenChain(number, "edited", f"event {number} was edited{rest}")


def _origin(
    head: ChainHead, before: Sequence[Event] | deque[Event], event: Event, after: Sequence[Event]
) -> int | None:
    """The number under which an event was written that has another one now, if it was one nearby."""
    for number in _nearby(event.number):
        for digest in (head.digest, *(one.digest for one in (*before, *after))):
            if event.digest == digest_of(digest, number, *event[1:5]):
                return number
    return None


def _nearby(number: int) -> Iterator[int]:
    for distance in range(1, NEAR + 1):
        yield number + distance
        if number > distance:
            yield number - distance
