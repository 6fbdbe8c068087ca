"""A worker's session in one run: its link, its hello, and its errands. It outlives the link."""

from __future__ import annotations

from collections.abc import Callable

from mudroom.ext.fleet.origin.link import OriginLink
from mudroom.ext.fleet.origin.placement import Capacity, Needs, WorkerRoom
from mudroom.ext.fleet.origin.placement import Key as Key
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.ext.fleet.wire.message import PROTOCOL, Pong, WorkerHello
from mudroom.typing import NamedTuple

_RETRY_DELAYS = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0)
"""Seconds until a worker that was lost is tried again."""
_MOST_WITHOUT_PROGRESS = 8
"""Links in a row that brought no base, no outcome and no archive part, after which a worker is given up."""
_MOST_LINKS = 200
"""Links to one worker in one run."""
_MOST_SLOTS = 1024


class WorkerRequirements(NamedTuple):
    """A run's requirements for a worker."""

    levels: frozenset[int]
    arch: str
    """Empty: any."""
    vault_format: int
    version: str


def unmet_requirement(hello: WorkerHello, needs: WorkerRequirements) -> str:
    """Return the requirement that a worker does not meet; empty if it meets all. No level is ever lowered there."""
    if other := other_version(hello, needs.version, needs.vault_format):
        return other
    if needs.arch and hello.arch != needs.arch:
        return f"it has {hello.arch} processors, this machine {needs.arch} (--any-arch runs errands there all the same)"
    missing = sorted(needs.levels - set(hello.levels))
    if missing:
        has = ", ".join(map(str, sorted(set(hello.levels))[:3])) or "none"
        return f"it cannot run commands at level {missing[0]}, but at {has} (mudroom doctor there says why)"
    return ""


def other_version(hello: WorkerHello, version: str, vault_format: int) -> str:
    """Return why this mudroom cannot use the worker's; empty if it can."""
    if hello.protocol != PROTOCOL:
        where = "there" if hello.protocol < PROTOCOL else "here"
        return (
            f"mudroom {hello.mudroom} there speaks protocol {hello.protocol}, mudroom {version} here {PROTOCOL}:"
            f" pipx upgrade mudroom, {where}"
        )
    if hello.vault_format > vault_format:
        return (
            f"mudroom {hello.mudroom} there has vaults of format {hello.vault_format}, mudroom {version} here knows"
            f" {vault_format}: pipx upgrade mudroom, here"
        )
    return ""


class WorkerSession:
    """Owner: the verb's thread."""

    def __init__(self, entry: FleetWorker) -> None:
        self.entry, self.name = entry, entry.name
        self.link: OriginLink | None = None
        self.hello: WorkerHello | None = None
        self._others_memory = 0
        """Bytes that other programs of the machine use."""
        self.reason = ""
        """Why it is not linked."""
        self.is_greeted = self.was_greeted = self.has_base = False
        self.is_usable = True
        self.offered_base = b""
        self.running: set[Key] = set()
        self.cancelled: set[Key] = set()
        self.retry_at = 0.0
        self._without_progress = self._links = 0
        self._streams: dict[int, tuple[Key, bool]] = {}
        """By number: the attempt, and whether it is the stream of its archive."""
        self._next = 1
        self._traffic = [0, 0]

    @property
    def slots(self) -> int:
        """Return how many errands it runs at one time."""
        if self.entry.jobs:
            return self.entry.jobs
        return min(max(self.hello.processors if self.hello is not None else 1, 1), _MOST_SLOTS)

    def room(self, needs: Callable[[Key], Needs]) -> WorkerRoom | None:
        """Return its capacity and what is free of it; None: it has not said it yet. ``needs``: of an errand that runs
        there."""
        if self.hello is None:
            return None
        hello = self.hello
        total = free = Capacity(self.slots, hello.memory, hello.processors, hello.gpus)
        for key in self.running:
            free = free.without(needs(key))
        if self._others_memory:
            free = free._replace(memory=free.memory - self._others_memory)
        return WorkerRoom(self.name, total, free, self.is_ready)

    def heard(self, pong: Pong, reserved: int) -> None:
        """Note the free memory. ``reserved``: the bytes that the errands there may use: if they use less, it is not
        known how much the machine's other programs do."""
        if self.hello is not None and pong.free_memory >= 0:
            used = self.hello.memory - pong.free_memory
            self._others_memory = max(used - reserved, self._others_memory if self.running else 0, 0)

    @property
    def is_ready(self) -> bool:
        return self.link is not None and self.is_greeted and self.has_base

    @property
    def traffic(self) -> tuple[int, int]:
        """Return the bytes that were sent to it and read from it."""
        link = self.link
        now = (link.bytes_written, link.bytes_read) if link is not None else (0, 0)
        return self._traffic[0] + now[0], self._traffic[1] + now[1]

    def connected(self, link: OriginLink) -> None:
        self._links += 1
        self.link, self.is_greeted, self.has_base, self.offered_base = link, False, False, b""
        self._streams.clear()
        self._next = 1
        self.running.clear()
        self.cancelled.clear()

    def greeted(self, hello: WorkerHello) -> None:
        self.hello, self.is_greeted, self.was_greeted, self.reason = hello, True, True, ""
        self._others_memory = max(hello.memory - hello.free_memory, 0) if hello.free_memory >= 0 else 0

    def made_progress(self) -> None:
        """Note that the link was useful."""
        self._without_progress = 0

    def disconnected(self, now: float, reason: str, *, given_up: bool) -> OriginLink | None:
        """Note that the link is over. Return it, if there was one."""
        link, self.link = self.link, None
        if link is not None:
            self._traffic[0] += link.bytes_written
            self._traffic[1] += link.bytes_read
        self.is_greeted = self.has_base = False
        self.running.clear()
        self.reason = reason
        is_hopeless = self._without_progress >= _MOST_WITHOUT_PROGRESS or self._links >= _MOST_LINKS
        self.is_usable = self.is_usable and not given_up and not is_hopeless
        self.retry_at = now + _RETRY_DELAYS[min(self._without_progress, len(_RETRY_DELAYS) - 1)]
        self._without_progress += 1
        return link

    # --- streams ---

    def open_stream(self, key: Key, *, is_fetch: bool = False) -> int:
        number, self._next = self._next, self._next + 1
        self._streams[number] = key, is_fetch
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
    def fetches(self) -> int:
        return sum(is_fetch for _key, is_fetch in self._streams.values())
