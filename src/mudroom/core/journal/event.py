"""The journal's events, and the hash chain that links each event to the previous one.

An event's hash covers the previous event's hash and all its own fields. An edit, a removal or a re-ordering therefore
breaks every later hash. A truncated end breaks no hash; to detect that, the last event's number and digest
(``ChainHead``) are also stored elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from mudroom.core.text.json_text import to_json_text
from mudroom.core.text.sha256 import sha256_hex
from mudroom.typing import Any, Literal, NamedTuple

GENESIS = "0" * 64
NEAR = 50
"""Events examined on either side of a broken one to diagnose the damage."""
TOLERATED = 10**9
"""Nanoseconds. Two processes can read the clock and append in the opposite order; a larger difference means that the
clock was set back."""


class Event(NamedTuple):
    number: int
    """1, 2, 3 … without gaps."""
    time: int
    """Nanoseconds since 1970, never less than the previous event's time. ``wall`` returns the clock's time if it was
    set back."""
    kind: str
    """``run``, ``apply``, ``undo``, ``discard``, ``recover``, ``degrade`` …"""
    fork: str
    data: str
    """JSON."""
    digest: str


class ChainHead(NamedTuple):
    """A chain's last event."""

    number: int = 0
    digest: str = GENESIS


BEGIN = ChainHead()

DamageKind = Literal["edited", "removed", "moved", "appended", "cut", "rewritten", "head", "archive"]


class BrokenChain(NamedTuple):
    """Damage to a journal."""

    number: int
    """Number of the first event that does not follow from the previous ones; for a truncated end, the first missing
    number."""
    what: DamageKind
    text: str
    """One clause for the user."""


class ChainCheck(NamedTuple):
    """The result of verifying a journal."""

    head: ChainHead
    """The intact part's last event."""
    broken: BrokenChain | None = None
    gaps: tuple[BrokenChain, ...] = ()
    """Gaps that mudroom itself recorded: the end was missing when it wrote the next event."""
    unanchored: int = 0
    """Events after the stored head: either mudroom was killed immediately after writing them, or they were appended by
    a program that knows the chain format."""

    @property
    def problems(self) -> list[str]:
        """The faults in words, in the journal's order."""
        return [fault.text for fault in (*((self.broken,) if self.broken is not None else ()), *self.gaps)]


def digest_of(previous: str, number: int, time: int, kind: str, fork: str, data: str) -> str:
    """Return a SHA-256 over the fields, each prefixed with its length, so that different lists of fields never have
    equal input."""
    parts = []
    for field in (previous, str(number), str(time), kind, fork, data):
        encoded = encoded_field(field)
        parts.append(b"%d:" % len(encoded) + encoded)
    return sha256_hex(b"".join(parts))


def encoded_field(field: str) -> bytes:
    """Return a field in UTF-8, also if it is not a text that mudroom wrote."""
    try:
        return field.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # an unpaired surrogate: the event was edited, which must be reported, not raised
        return field.encode("utf-8", "surrogatepass")


def chained(previous: Event | None, after: ChainHead, time: int, kind: str, fork: str, data: dict[str, Any]) -> Event:
    """Return the next event. ``previous``: the last event, if known. If ``time`` is before the previous event's time
    (the clock was set back, or the event describes something that began earlier), the event gets the previous time. If
    the difference exceeds ``TOLERATED``, the data has ``time`` as ``clock``."""
    last = previous.time if previous is not None else 0
    if time + TOLERATED < last:
        data = {**data, "clock": time}
    row = (after.number + 1, max(time, last), kind, fork, to_json_text(data, ",", ":"))
    return Event(*row, digest_of(after.digest, *row))


_FURTHEST = 1 << 63
"""Nanoseconds: the bound for 64-bit integers in a journal row."""


def wall(event: Event) -> int:
    """Return the system clock's time when the event was written, in nanoseconds since 1970."""
    if '"clock":' in event.data:
        data = data_of(event)
        stated = data.get("clock")
        if isinstance(stated, int) and -_FURTHEST <= stated < _FURTHEST:
            return stated
    return event.time


def data_of(event: Event) -> dict[str, Any]:
    """Return the event's data; an empty dictionary if it is invalid, because the event was edited."""
    import json

    try:
        data = json.loads(event.data)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def examine(events: Iterable[Event], start: ChainHead = BEGIN, kept: ChainHead | None = None) -> ChainCheck:
    """Verify the chain from ``start`` on. ``kept``: the head that was stored elsewhere."""
    rows = iter(events)
    before: deque[Event] = deque(maxlen=NEAR)
    gaps: list[BrokenChain] = []
    head = start
    lost = 0  # a second power loss can bring back the head from before a gap
    for event in rows:
        if event.number != head.number + 1 or event.digest != digest_of(head.digest, *event[:5]):
            after = [row for row, _count in zip(rows, range(NEAR), strict=False)]
            return ChainCheck(head, _diagnose(head, before, event, after, kept), tuple(gaps))
        if event.kind == "gap":
            gaps.append(_noted(event))
            lost = max(lost, _last_before(event))
        if kept is not None and event.number == kept.number and event.digest != kept.digest and lost < kept.number:
            text = f"event {event.number} was rewritten with all that follows: it is not the one that mudroom wrote"
            return ChainCheck(head, BrokenChain(event.number, "rewritten", text), tuple(gaps))
        before.append(event)
        head = ChainHead(event.number, event.digest)
    if kept is not None and kept.number > head.number:
        return ChainCheck(head, _cut(head, kept), tuple(gaps))
    return ChainCheck(head, None, tuple(gaps), head.number - kept.number if kept is not None else 0)


def _cut(head: ChainHead, kept: ChainHead) -> BrokenChain:
    text = f"{_events(head.number + 1, kept.number)} missing at the end: cut off, or lost when the machine lost power"
    return BrokenChain(head.number + 1, "cut", text)


def _last_before(gap: Event) -> int:
    """Return the number of the last event that was missing when ``gap`` was written; 0 if it is unknown."""
    last = data_of(gap).get("last")
    return last if isinstance(last, int) else 0


def _noted(event: Event) -> BrokenChain:
    last = _last_before(event)
    missing = _events(event.number, last) if last >= event.number else "events were"
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
    expected, number = head.number + 1, event.number
    if number != expected:
        if number < expected or any(later.number == expected for later in after):
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
    """Return a re-ordered event's original number, if it is a nearby number."""
    for number in _nearby(event.number):
        for digest in (head.digest, *(neighbour.digest for neighbour in (*before, *after))):
            if event.digest == digest_of(digest, number, *event[1:5]):
                return number
    return None


def _nearby(number: int) -> Iterator[int]:
    for distance in range(1, NEAR + 1):
        yield number + distance
        if number > distance:
            yield number - distance
