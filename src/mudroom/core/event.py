"""One fact for the journal, and the chain that ties each to the one before.

The hash of an event covers the previous event's hash and all of its own fields, so that an edit, a removal or a
re-ordering anywhere breaks every hash after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

GENESIS = "0" * 64


class Event(NamedTuple):
    number: int
    """1, 2, 3 … without gaps."""
    time: int
    """Nanoseconds since 1970."""
    kind: str
    """``run``, ``apply``, ``undo``, ``discard``, ``recover``, ``degrade`` …"""
    fork: str
    data: str
    """JSON."""
    digest: str


def digest_of(previous: str, number: int, time: int, kind: str, fork: str, data: str) -> str:
    """SHA-256 over the fields, each with its length, so that no two lists of fields look the same."""
    hasher = hashlib.sha256()
    for field in (previous, str(number), str(time), kind, fork, data):
        encoded = field.encode("utf-8", "surrogateescape")
        hasher.update(b"%d:" % len(encoded) + encoded)
    return hasher.hexdigest()


def first_broken(events: Iterable[Event]) -> int | None:
    """The number of the first event that does not follow from the ones before it; None if the chain holds."""
    previous, expected = GENESIS, 1
    for event in events:
        if event.number != expected or event.digest != digest_of(previous, *event[:5]):
            return event.number
        previous, expected = event.digest, expected + 1
    return None
