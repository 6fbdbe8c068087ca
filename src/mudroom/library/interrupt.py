"""Ctrl-C in the main thread during a room's call.

Python's own handler raises KeyboardInterrupt between any two instructions, even where a descriptor has been closed but
not yet forgotten, or a lock taken but not yet recorded. The room could not be used after that. So a call takes over
SIGINT meanwhile, as ``asyncio.Runner`` does, and only from Python's own handler:

    the first     ends the call's command (SIGTERM, later SIGKILL); KeyboardInterrupt is raised when its changes
                  are collected, or when a call without a command ends
    the second    kills the command
    the third     is raised at once

A wait for another process's lock or for a background command, and a question to the caller's own function, end at once.
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
    import _signal as signal  # the signal module would build enums at import

ENDED_AT_ONCE = {
    ("mudroom.vault.lock", "wait_for"),
    ("mudroom.session.sandboxes", "waited"),
    ("mudroom.library.question", "_asked"),
}
"""Functions in which, or below which, an exception may be raised at any instruction."""
MOST_DEFERRED = 2


class DeferredInterrupt:
    """Context manager. Owner: the main thread. In other threads, or if another SIGINT handler is set, it has no
    effect."""

    def __init__(self, request: Callable[[], None], kill: Callable[[], None]) -> None:
        """``request`` and ``kill`` end the call's command."""
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
            # In its own thread: the main thread may hold a lock that the function needs.
            threading.Thread(target=self._ends[self._received - 1], daemon=True).start()
        if self._received > MOST_DEFERRED or _is_in_a_wait(frame):
            raise KeyboardInterrupt


def _is_in_a_wait(frame: FrameType | None) -> bool:
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in ENDED_AT_ONCE:
            return True
        frame = frame.f_back
    return False
