"""Readiness of descriptors on macOS, where epoll(7) and poll(2) do not serve.

| wait | Linux | macOS | why not poll(2) there |
| --- | --- | --- | --- |
| in the gate, thousands of sockets | epoll(7) | kqueue(2) | it registers each descriptor at each call (poll_nocancel) |
| beside a command, on terminals | poll(2) | select(2) | "currently does not support devices" (poll(2), BUGS) |

Both are standard library selectors (https://docs.python.org/3/library/selectors.html) with ``select.epoll``'s methods.
They do not report a hang-up separately: a descriptor that has ended is readable, and one without a reader is writable.
"""

from __future__ import annotations

import select
import selectors
import sys
import time
from collections.abc import Mapping

from mudroom.typing import Any

_READABLE, _WRITABLE = getattr(select, "POLLIN", 1), getattr(select, "POLLOUT", 4)
"""Windows has no poll(2)."""


class SelectorPoll:
    """A selector with ``select.epoll``'s methods.

    Owner: the caller: an object is used within one thread.
    """

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        """``selector``: None for the system's default, which on macOS is kqueue(2)."""
        self._selector = selector or selectors.DefaultSelector()

    def register(self, descriptor: int, events: int) -> None:
        self._selector.register(descriptor, _wanted(events))

    def modify(self, descriptor: int, events: int) -> None:
        self._selector.modify(descriptor, _wanted(events))

    def unregister(self, descriptor: int) -> None:
        """Raise FileNotFoundError if it is not registered."""
        try:
            self._selector.unregister(descriptor)
        except KeyError:
            raise FileNotFoundError(descriptor) from None

    def poll(self, timeout: float | None = None, _most: int = -1) -> list[tuple[int, int]]:
        """Return the ready descriptors with their events. ``timeout``: seconds; None or below 0: no limit."""
        limit = None if timeout is None or timeout < 0 else timeout
        reports: dict[int, int] = {}
        for key, events in self._selector.select(limit):  # kqueue reports reading and writing apart
            reports[key.fd] = reports.get(key.fd, 0) | _reported(events)
        return list(reports.items())

    def close(self) -> None:
        self._selector.close()


def wait_for_devices(wanted: Mapping[int, int], deadline: float | None) -> dict[int, int]:
    """Do the same as ``wait_ready`` in sandbox/client/connection.py with select(2), which serves terminals. A
    descriptor without a wanted event is not waited for. Descriptors from 1024 on (FD_SETSIZE), which no command line's
    terminal has, are left to poll(2)."""
    timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
    few = max(wanted, default=0) < _FD_SETSIZE
    with selectors.SelectSelector() if few else selectors.PollSelector() as selector:
        for descriptor, events in wanted.items():
            if events:
                selector.register(descriptor, _wanted(events))
        return {key.fd: _reported(events) for key, events in selector.select(timeout)}


def is_abandoned(descriptor: int, seconds: float) -> bool:
    """Wait, and return whether a pipe or socket has lost its reader meanwhile. Linux ends the wait at once then. macOS
    reports a hang-up only with an event that is asked for, and never for a terminal (poll(2); poll_callback in
    bsd/kern/sys_generic.c). Windows tells only at the next write."""
    if sys.platform == "win32":
        time.sleep(seconds)
        return False
    poller = select.poll()
    if sys.platform == "darwin":
        time.sleep(seconds)
        poller.register(descriptor, select.POLLOUT)
        return any(events & (select.POLLHUP | select.POLLERR) for _descriptor, events in poller.poll(0))
    poller.register(descriptor, 0)
    return bool(poller.poll(seconds * 1000))


_FD_SETSIZE = 1024


def _wanted(events: int) -> int:
    wanted: Any = (selectors.EVENT_READ if events & _READABLE else 0) | (
        selectors.EVENT_WRITE if events & _WRITABLE else 0
    )
    return int(wanted)


def _reported(events: int) -> int:
    return (_READABLE if events & selectors.EVENT_READ else 0) | (_WRITABLE if events & selectors.EVENT_WRITE else 0)
