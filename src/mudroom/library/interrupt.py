"""Ctrl-C while a command of this process's main thread runs: the command ends, its changes are collected, and then
KeyboardInterrupt is raised. The second Ctrl-C kills the command, the third does not wait.

As ``asyncio.Runner`` does, this takes SIGINT only from Python's own handler, and gives it back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.library.life import kill, request
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # signal itself makes enumerations of the numbers


@contextmanager
def ended_by_interrupt(cancellation: Cancellation) -> Iterator[None]:
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    received = 0

    def handle(_number: int, _frame: object) -> None:
        nonlocal received
        received += 1
        if not cancellation.has_started or received > 2:
            raise KeyboardInterrupt
        # in a thread: the one that is interrupted may hold the lock of the cancellation
        threading.Thread(target=request if received == 1 else kill, args=(cancellation,), daemon=True).start()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if received:
        raise KeyboardInterrupt
