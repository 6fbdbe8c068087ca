"""A worker in one run: its link, what it said of itself, and what it is doing."""

from __future__ import annotations

from mudroom.ext.fleet.origin.link import OriginLink
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.ext.fleet.wire.message import PROTOCOL, Pong, WorkerHello
from mudroom.typing import NamedTuple

Key = tuple[str, int]
_DELAYS = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0)
"""Seconds until a worker that was lost is tried again."""
_MOST_FRUITLESS = 8
"""Links in a row that brought no base, no outcome and no part of an archive, after which a worker is given up."""
_MOST_LINKS = 200
"""Links of one run to one worker."""
_MOST_PLACES = 1024


class Fitness(NamedTuple):
    """What the errands of a run need of a worker."""

    levels: frozenset[int]
    arch: str
    """Empty: any."""
    vault_format: int
    version: str


def unfit(hello: WorkerHello, fitness: Fitness) -> str:
    """Return why a worker gets none of these errands, empty if it does. No level is ever lowered there."""
    if hello.protocol != PROTOCOL:
        return (
            f"mudroom {hello.mudroom} there speaks protocol {hello.protocol}, mudroom {fitness.version} here"
            f" {PROTOCOL}: upgrade the older of them"
        )
    if hello.vault_format > fitness.vault_format:
        return (
            f"its vaults have format {hello.vault_format}, this mudroom knows {fitness.vault_format}: upgrade mudroom"
        )
    if fitness.arch and hello.arch != fitness.arch:
        return (
            f"it has {hello.arch} processors, this machine {fitness.arch} (--any-arch runs errands there all the same)"
        )
    missing = sorted(fitness.levels - set(hello.levels))
    if missing:
        has = ", ".join(map(str, sorted(set(hello.levels))[:3])) or "none"
        return f"it cannot run commands at level {missing[0]}, but at {has} (mudroom doctor there says why)"
    return ""


class Seat:
    """Owner: the thread of the verb."""

    def __init__(self, worker: FleetWorker) -> None:
        self.worker, self.name = worker, worker.name
        self.link: OriginLink | None = None
        self.hello: WorkerHello | None = None
        self.pong: Pong | None = None
        self.reason = ""
        """Why it is not linked."""
        self.is_greeted = self.was_here = self.has_base = False
        self.may_serve = True
        self.offered = b""
        self.running: set[Key] = set()
        self.cancelled: set[Key] = set()
        self.retry_at = 0.0
        self._fruitless = self._links = 0
        self._streams: dict[int, tuple[Key, bool]] = {}
        """By number: the attempt, and whether it is the stream of its archive."""
        self._next = 1
        self._moved = [0, 0]

    @property
    def places(self) -> int:
        """Return how many errands it runs at one time."""
        if self.worker.jobs:
            return self.worker.jobs
        return min(max(self.hello.processors if self.hello is not None else 1, 1), _MOST_PLACES)

    @property
    def free(self) -> int:
        return self.places - len(self.running)

    @property
    def is_ready(self) -> bool:
        return self.link is not None and self.is_greeted and self.has_base

    @property
    def moved(self) -> tuple[int, int]:
        """Return the bytes that were sent to it and read from it."""
        link = self.link
        now = (link.bytes_written, link.bytes_read) if link is not None else (0, 0)
        return self._moved[0] + now[0], self._moved[1] + now[1]

    def begin(self, link: OriginLink) -> None:
        self._links += 1
        self.link, self.is_greeted, self.has_base, self.offered = link, False, False, b""
        self._streams.clear()
        self._next = 1
        self.running.clear()
        self.cancelled.clear()

    def greeted(self, hello: WorkerHello) -> None:
        self.hello, self.is_greeted, self.was_here, self.reason = hello, True, True, ""

    def bore_fruit(self) -> None:
        """The link was of use."""
        self._fruitless = 0

    def leave(self, now: float, reason: str, *, given_up: bool) -> OriginLink | None:
        """The link is over. Return it, if there was one."""
        link, self.link = self.link, None
        if link is not None:
            self._moved[0] += link.bytes_written
            self._moved[1] += link.bytes_read
        self.is_greeted = self.has_base = False
        self.running.clear()
        self.reason = reason
        is_hopeless = self._fruitless >= _MOST_FRUITLESS or self._links >= _MOST_LINKS
        self.may_serve = self.may_serve and not given_up and not is_hopeless
        self.retry_at = now + _DELAYS[min(self._fruitless, len(_DELAYS) - 1)]
        self._fruitless += 1
        return link

    # --- streams ---

    def open_stream(self, key: Key, *, fetches: bool = False) -> int:
        number, self._next = self._next, self._next + 1
        self._streams[number] = key, fetches
        return number

    def close_stream(self, number: int) -> None:
        self._streams.pop(number, None)

    def key_of(self, number: int) -> Key | None:
        found = self._streams.get(number)
        return found[0] if found is not None else None

    def is_fetching(self, number: int) -> bool:
        found = self._streams.get(number)
        return found is not None and found[1]

    def stream_of(self, key: Key) -> int:
        """Return the stream on which an errand was sent or asked for; 0 if there is none."""
        return next((number for number, found in self._streams.items() if found == (key, False)), 0)

    @property
    def fetching(self) -> int:
        return sum(fetches for _key, fetches in self._streams.values())
