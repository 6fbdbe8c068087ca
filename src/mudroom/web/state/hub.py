"""Who is to be told what: the pages that are open, and what happens meanwhile.

A message says *what* has changed, never what it is now: a page asks for that. So a message that is lost, or heard
twice, does no harm. What other processes do in a vault is seen by looking at a few stamps, while anybody listens.
Questions are not waited for so long: each queue has a bell (``vault/approvals/bell.py``), which is open while anybody
listens, and tells those who ask that somebody does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from mudroom.errors import MudroomError

LOOK = 0.3
"""Seconds between two looks at what other processes have done."""
BEAT = 15.0
"""Seconds after which an open connection is written to, so that a dead one is found."""
_QUEUE = 256

Message = tuple[str, dict[str, Any]]
"""Its kind, and data for JSON."""


class ChangeBell(Protocol):
    def fileno(self) -> int:
        """-1: it cannot be heard; the stamps tell, too."""

    def clear(self) -> None: ...
    def close(self) -> None: ...


class Look(NamedTuple):
    """What there is to be watched."""

    stamps: Mapping[str, Any]
    """``PROJECT/what`` and something that differs whenever that has changed."""
    bells: Mapping[str, Callable[[], ChangeBell]]
    """By project: what opens the bell of its questions."""


class Hub:
    def __init__(self, look: Callable[[], Look]) -> None:
        """``look`` is run in a thread. If it raises OSError or MudroomError it is done again."""
        self._look = look
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.Queue[Message], asyncio.AbstractEventLoop] = {}
        self._watching: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._ended = False

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def end(self) -> None:
        """Everybody who listens is told so, and hears nothing more."""
        self._ended = True
        self.tell("end", {})

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        """From any thread. A listener that does not keep up misses messages, and is told that it has."""
        with self._lock:
            listeners = list(self._listeners.items())
        for queue, loop in listeners:
            try:
                loop.call_soon_threadsafe(_put, queue, (kind, data))
            except RuntimeError:
                pass  # the loop has just been closed, and with it whoever listened

    async def listen(self) -> AsyncIterator[Message | None]:
        """``hello`` first: what happens from then on is told. None now and then if there is nothing."""
        queue: asyncio.Queue[Message] = asyncio.Queue(_QUEUE)
        with self._lock:
            self._listeners[queue] = asyncio.get_running_loop()
        try:
            if self._watching is None or self._watching.done():
                self._watching = asyncio.create_task(self._watch())
            await self._ready.wait()
            yield "hello", {}
            while not self._ended:
                try:
                    yield await asyncio.wait_for(queue.get(), BEAT)
                except TimeoutError:
                    yield None
        finally:
            with self._lock:
                del self._listeners[queue]

    async def _watch(self) -> None:
        bells = _Bells(self)
        before: Look | None = None
        try:
            while self._listeners:
                try:
                    now = await asyncio.to_thread(self._look)
                except (OSError, MudroomError):
                    now = before or Look({}, {})  # somebody removes a vault just now: it is looked at again
                bells.follow(now.bells)
                if before is not None:
                    self._tell_changes(before.stamps, now.stamps)
                before = now
                self._ready.set()
                await asyncio.sleep(LOOK)
        finally:
            self._ready.clear()
            bells.close()

    def _tell_changes(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        for place in sorted(now.keys() | before.keys()):
            if now.get(place) != before.get(place):
                project, _slash, what = place.partition("/")
                self.tell("changed", {"project": project, "what": what})


class _Bells:
    """Those that are open now."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._open = hub, dict[str, ChangeBell]()

    def follow(self, wanted: Mapping[str, Callable[[], ChangeBell]]) -> None:
        for project in self._open.keys() - wanted.keys():
            self._close(project)
        for project in wanted.keys() - self._open.keys():
            bell = self._open[project] = wanted[project]()
            if bell.fileno() >= 0:
                asyncio.get_running_loop().add_reader(bell.fileno(), self._rung, project)

    def close(self) -> None:
        for project in list(self._open):
            self._close(project)

    def _rung(self, project: str) -> None:
        self._open[project].clear()
        self._hub.tell("changed", {"project": project, "what": "questions"})

    def _close(self, project: str) -> None:
        bell = self._open.pop(project)
        if bell.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(bell.fileno())
        bell.close()


def _put(queue: asyncio.Queue[Message], message: Message) -> None:
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
        message = ("missed", {})
    queue.put_nowait(message)
