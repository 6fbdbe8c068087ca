"""The gate process's event loop: asyncio's, with sockets that the selector itself serves.

Rules of this file:

- An epoll(7) report about a watched socket is handled within ``select``, not by a loop handle: tasks that it
  wakes run in the same turn, without another system call. If bytes were only passed on, ``select`` continues waiting,
  because the loop has no work then.
- A report is a hint: within a turn a descriptor can be closed and its number reused by another socket. A handler finds
  out the state by calls that do not block.
- While a message from the host waits, no socket is served: new rules hold for every connection that is made after them.
"""

from __future__ import annotations

import asyncio
import math
import select
import time
from collections.abc import Callable, Mapping
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey

from mudroom.core.system.readiness import SelectorPoll
from mudroom.typing import Any

READABLE, WRITABLE = 1, 4
"""POLLIN and POLLOUT from poll(2), and the same values as EPOLLIN and EPOLLOUT; not every system has the names."""
Handler = Callable[[int], bool]
"""Called with the reported events. Returns whether it has only passed bytes on: no task was woken and no timer set."""
Failure = Callable[[Exception], None]
"""Called with an exception from a handler: a fault in the gate."""


class DirectSelector(BaseSelector):
    """``register`` and similar methods are for the loop's own descriptors, ``watch`` and similar methods for
    sockets."""

    def __init__(self, failed: Failure) -> None:
        self._failed = failed
        self._epoll = _new_epoll()
        self._keys: dict[int, SelectorKey] = {}
        self._handlers: dict[int, Handler] = {}
        self._afterwards: list[Callable[[], None]] = []
        self._preferred: set[int] = set()

    # --- sockets ---

    def watch(self, descriptor: int, events: int, handler: Handler) -> None:
        self._epoll.register(descriptor, events)
        self._handlers[descriptor] = handler

    def change(self, descriptor: int, events: int) -> None:
        self._epoll.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Stop watching."""
        # Required before the descriptor is closed: another process may hold the same socket, and epoll reports it for
        # as long.
        self._epoll.unregister(descriptor)
        del self._handlers[descriptor]

    def defer(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the current reports have been handled. Use in a handler, or before the loop's next
        turn."""
        self._afterwards.append(callback)

    # --- the loop's own descriptors ---

    def prefer(self, descriptor: int) -> None:
        """Serve no socket while this descriptor is readable, until it is unregistered. It must not be under a
        stranger's control."""
        self._preferred.add(descriptor)

    def register(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        descriptor = _descriptor_of(fileobj)
        if descriptor in self._keys:
            raise KeyError(f"{fileobj!r} (FD {descriptor}) is already registered")
        self._epoll.register(descriptor, _mask(events))
        key = self._keys[descriptor] = SelectorKey(fileobj, descriptor, events, data)
        return key

    def unregister(self, fileobj: Any) -> SelectorKey:
        descriptor = _descriptor_of(fileobj)
        key = self._keys.pop(descriptor)
        self._preferred.discard(descriptor)
        try:
            self._epoll.unregister(descriptor)
        except OSError:
            pass  # it has been closed
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        descriptor = _descriptor_of(fileobj)
        if self._keys[descriptor].events != events:
            self._epoll.modify(descriptor, _mask(events))
        key = self._keys[descriptor] = SelectorKey(fileobj, descriptor, events, data)
        return key

    def get_key(self, fileobj: Any) -> SelectorKey:
        return self._keys[_descriptor_of(fileobj)]

    def get_map(self) -> Mapping[Any, SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._epoll.close()
        self._keys.clear()
        self._handlers.clear()

    # --- one turn ---

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Serve the watched sockets. Return the loop's own descriptors that are ready."""
        if self._afterwards:
            timeout = 0
        limit = None if timeout is None else time.monotonic() + timeout
        while True:
            wait = None if timeout is None else math.ceil(max(timeout, 0) * 1e3) * 1e-3
            reports = self._epoll.poll(wait, len(self._keys) + len(self._handlers) + 1)
            is_simple = len(reports) == 1 and reports[0][0] in self._handlers
            ready, first = ([], False) if is_simple else self._own(reports)
            passed = not first and self._serve(reports)  # otherwise epoll reports them again
            if self._afterwards:
                self._finish()
                return ready
            if ready or not passed:
                return ready
            if limit is not None:
                timeout = limit - time.monotonic()
                if timeout <= 0:
                    return ready

    def _own(self, reports: list[tuple[int, int]]) -> tuple[list[tuple[SelectorKey, int]], bool]:
        """Return the loop's own descriptors that are ready, and whether a preferred one is readable."""
        ready, first = [], False
        for descriptor, events in reports:
            key = self._keys.get(descriptor)
            if key is not None:
                read = EVENT_READ if events & ~WRITABLE else 0
                write = EVENT_WRITE if events & ~READABLE else 0
                ready.append((key, (read | write) & key.events))
                first = first or (bool(read) and descriptor in self._preferred)
        return ready, first

    def _serve(self, reports: list[tuple[int, int]]) -> bool:
        """Call the handlers. Return whether there were any, and all have only passed bytes on."""
        passed = bool(reports)
        for descriptor, events in reports:
            handler = self._handlers.get(descriptor)
            if handler is not None:
                try:
                    passed = handler(events) and passed
                except Exception as error:  # noqa: BLE001 - the loop reports it, as of its own handles
                    self._failed(error)
                    passed = False
        return passed

    def _finish(self) -> None:
        while self._afterwards:
            afterwards, self._afterwards = self._afterwards, []
            for callback in afterwards:
                try:
                    callback()
                except Exception as error:  # noqa: BLE001 - as above
                    self._failed(error)


def _new_epoll() -> Any:
    if hasattr(select, "epoll"):
        return select.epoll()

    return SelectorPoll()


def _descriptor_of(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


def _mask(events: int) -> int:
    return (READABLE if events & EVENT_READ else 0) | (WRITABLE if events & EVENT_WRITE else 0)


class GateLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.sockets = DirectSelector(self._failed)
        super().__init__(self.sockets)

    def _failed(self, error: Exception) -> None:
        self.call_exception_handler({"message": "a socket's handler failed", "exception": error})


def sockets() -> DirectSelector:
    """Return the running loop's selector; the loop must be a ``GateLoop``."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, GateLoop)
    return loop.sockets
