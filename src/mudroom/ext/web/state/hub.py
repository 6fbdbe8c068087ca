"""The event hub: tells listening clients about changes.

A message names *what* has changed, never its new state: a page asks for that. So a lost or repeated message does no
harm. Changes by other processes are detected by polling a few stat stamps while a client listens. Questions are
announced faster: each queue has a bell (``vault/approvals/bell.py``) that is open while a client listens, which also
tells the asking process that there is a listener.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from mudroom.api import MudroomError
from mudroom.vault.approvals.bell import Bell

POLL_INTERVAL = 0.3
"""Seconds between polls."""
HEARTBEAT = 15.0
"""Seconds after which a byte is written to an idle connection, so that a dead one is detected."""
_QUEUE_SIZE = 256

Message = tuple[str, dict[str, Any]]
"""Kind, and data for JSON."""


class Look(NamedTuple):
    """The state to watch."""

    stamps: Mapping[str, Any]
    """``PROJECT/what`` and a value that differs whenever that has changed."""
    bells: Mapping[str, Callable[[], Bell]]
    """By project: a function that opens the bell for its questions."""


class Hub:
    """``_lock`` guards the listeners. The server's event loop writes ``_watching``; ``_ended`` is only ever set."""

    def __init__(self, look: Callable[[], Look]) -> None:
        """``look`` runs in a thread. If it raises OSError or MudroomError it is tried again."""
        self._look = look
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.Queue[Message], asyncio.AbstractEventLoop] = {}
        self._watching: asyncio.Task[None] | None = None
        self._is_watching = asyncio.Event()
        self._ended = False

    @property
    def has_ended(self) -> bool:
        return self._ended

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def end(self) -> None:
        """Tell all listeners to end, and send no more messages."""
        self._ended = True
        self.tell("end", {})

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        """Send a message, from any thread. A listener that is too slow loses messages, and is told so."""
        with self._lock:
            listeners = list(self._listeners.items())
        for queue, loop in listeners:
            try:
                loop.call_soon_threadsafe(_put_or_drop, queue, (kind, data))
            except RuntimeError:
                pass  # the loop was closed together with its listeners

    async def listen(self) -> AsyncIterator[Message | None]:
        """Yield messages, ``hello`` first: later changes are reported. Yield None now and then if there is no
        message."""
        queue: asyncio.Queue[Message] = asyncio.Queue(_QUEUE_SIZE)
        with self._lock:
            self._listeners[queue] = asyncio.get_running_loop()
        try:
            if self._watching is None or self._watching.done():
                self._watching = asyncio.create_task(self._watch())
            await self._is_watching.wait()
            yield "hello", {}
            while not self._ended:
                try:
                    yield await asyncio.wait_for(queue.get(), HEARTBEAT)
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
                    now = before or Look({}, {})  # a vault was removed just now: try again
                bells.open_and_close(now.bells)
                if before is not None:
                    self._tell_changes(before.stamps, now.stamps)
                before = now
                self._is_watching.set()
                await asyncio.sleep(POLL_INTERVAL)
        finally:
            self._is_watching.clear()
            bells.close()

    def _tell_changes(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        for key in sorted(now.keys() | before.keys()):
            if now.get(key) != before.get(key):
                project, _slash, what = key.partition("/")
                self.tell("changed", {"project": project, "what": what})


class _Bells:
    """The open bells."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._open = hub, dict[str, Bell]()

    def open_and_close(self, openers: Mapping[str, Callable[[], Bell]]) -> None:
        for project in self._open.keys() - openers.keys():
            self._close(project)
        for project in openers.keys() - self._open.keys():
            bell = self._open[project] = openers[project]()
            if bell.fileno() >= 0:
                asyncio.get_running_loop().add_reader(bell.fileno(), self._on_ring, project)

    def close(self) -> None:
        for project in list(self._open):
            self._close(project)

    def _on_ring(self, project: str) -> None:
        self._open[project].clear()
        self._hub.tell("changed", {"project": project, "what": "questions"})

    def _close(self, project: str) -> None:
        bell = self._open.pop(project)
        if bell.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(bell.fileno())
        bell.close()


def _put_or_drop(queue: asyncio.Queue[Message], message: Message) -> None:
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
        message = ("missed", {})
    queue.put_nowait(message)
