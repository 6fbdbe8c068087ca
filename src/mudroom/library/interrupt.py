"""Ctrl-C in the main thread, while a call of a room is at work there.

Python's own handler raises KeyboardInterrupt between any two instructions: also where a descriptor has been closed and
not yet forgotten, or a lock taken and not yet noted, after which the room could not be used. So a call takes SIGINT
meanwhile, as ``asyncio.Runner`` does, and only from that handler:

    the first     ends the command of the call (SIGTERM, later SIGKILL); KeyboardInterrupt is raised when its changes
                  are collected, or when a call without a command ends
    the second    kills the command
    the third     is raised at once

A wait for a lock of another process or for a background command, and a question to the caller's own function, are ended
at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mudroom.sandbox.client.cancellation import Cancelled
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from types import FrameType
else:
    import _signal as signal  # signal itself makes enumerations of the numbers

ENDED_AT_ONCE = {
    ("mudroom.vault.lock", "wait_for"),
    ("mudroom.session.sandboxes", "waited"),
    ("mudroom.library.question", "_asked"),
}
"""Functions, with those that they call, that an exception may leave at any place."""
MOST_DEFERRED = 2


class DeferredInterrupt:
    """A context manager. Owner: the main thread; in any other, and beside another handler, it does nothing."""

    def __init__(self, request: Callable[[], None], kill: Callable[[], None]) -> None:
        """``request`` and ``kill`` end what the call has started. They are called in a thread of their own: the main
        one may hold a lock that they need."""
        self._ends = (request, kill)
        self._is_installed = False
        self._received = 0

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._is_installed = True
            signal.signal(signal.SIGINT, self._handle)

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self._received and (kind is None or issubclass(kind, Cancelled)):
                raise KeyboardInterrupt

    def _handle(self, _number: int, frame: FrameType | None) -> None:
        self._received += 1
        if self._received <= MOST_DEFERRED:
            threading.Thread(target=self._ends[self._received - 1], daemon=True).start()
        if self._received > MOST_DEFERRED or _is_in_a_wait(frame):
            raise KeyboardInterrupt


def _is_in_a_wait(frame: FrameType | None) -> bool:
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in ENDED_AT_ONCE:
            return True
        frame = frame.f_back
    return False
