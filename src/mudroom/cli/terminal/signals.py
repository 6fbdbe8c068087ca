"""Handle signals at once, even while the main thread waits.

1. The interpreter runs handlers in the main thread, between its own instructions. A signal that arrives just before a
   wait (a lock, flock(2), waitpid(2), a read), or that the kernel delivers to another thread, would be handled only
   after the wait (signal(7)). So a thread reads every signal with a handler from a descriptor
   (``signal.set_wakeup_fd``), and pokes the main thread until its handlers have run.
2. The poke is SIGURG, which is ignored by default (signal(7)), so a late poke does no harm. Go's runtime uses it for
   the same reason (runtime/signal_unix.go, sigPreempt).
3. The main thread may already be inside the poke's handler when the signal arrives, and its answer then proves nothing.
   That cannot happen for the next poke, so two answers are awaited.
4. A handler may raise (Ctrl-C before a command has started). So all signals are blocked during set-up and tear-down.
   Otherwise signal numbers could be written to a closed descriptor that another file reuses.
"""

from __future__ import annotations

import _thread
import os
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from mudroom.typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # importing signal builds enumerations

Handler = Callable[[int, Any], object] | int

POKE_INTERVAL = 50
"""Milliseconds between two pokes."""

PATIENCE = 5.0
"""Seconds after which a thread that does not end is considered dead."""


@contextmanager
def wake_for_signals() -> Iterator[None]:
    """Wake the main thread for signals within the context. Code inside that sets its own wakeup descriptor
    (``foreground_program``, ``Relay``) handles wake-ups itself. Do nothing outside the main thread, on a system without
    these signals (Windows), or if no thread can be started."""
    if not hasattr(signal, "pthread_kill"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    watch = None
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # rule 4
        watch = _begin()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield
    finally:
        try:
            # the handler for a signal that has just arrived runs here, and may raise
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        finally:
            try:
                if watch is not None:
                    watch.end()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def handling(handlers: Mapping[int, Handler]) -> Iterator[Mapping[int, object]]:
    """Install signal handlers within the block, and yield the previous handlers. A signal that was ignored stays
    ignored."""
    before = {number: handler for number in handlers if (handler := signal.getsignal(number)) != signal.SIG_IGN}
    try:
        for number in before:
            handler = handlers[number]
            signal.signal(number, handler if callable(handler) else int(handler))  # _signal takes no enumeration
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def numbers_of(*names: str) -> list[int]:
    """Return the numbers of the signals that this system knows."""
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


def end(_number: int, _frame: object) -> NoReturn:
    """A handler: end the program in order."""
    raise SystemExit


def _begin() -> _Watch | None:
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    try:
        wakeup_before = signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    except ValueError:  # not the main thread: signals are handled elsewhere
        os.close(wake_reader)
        os.close(wake_writer)
        return None
    watch = _Watch(wake_reader, wake_writer, wakeup_before)
    try:
        _thread.start_new_thread(watch.run, ())
    except RuntimeError:  # the thread limit is reached
        watch.undo()
        return None
    return watch


class _Watch:
    """The watching thread. It and the main thread both count ``_pending_answers``; ``_is_ended`` is set but never
    cleared."""

    def __init__(self, wake_reader: int, wake_writer: int, wakeup_before: int) -> None:
        self._wake_reader, self._wake_writer, self._wakeup_before = wake_reader, wake_writer, wakeup_before
        self._main = _thread.get_ident()
        self._pending_answers = 0
        """Number of answers awaited from the main thread."""
        self._is_ended = False
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        self._handler_before = signal.signal(signal.SIGURG, self._answer)

    def _answer(self, _number: int, _frame: object) -> None:
        """Handle a poke, in the main thread."""
        if self._pending_answers:
            self._pending_answers -= 1

    def end(self) -> None:
        self._is_ended = True
        with suppress(BlockingIOError):  # the pipe is full, so the thread is awake
            os.write(self._wake_writer, b"\0")
        if self._ended.acquire(timeout=PATIENCE):
            self.undo()
        else:  # without memory a thread can fail before its first line; its pipe stays open in case it still runs
            self._undo_signals()

    def undo(self) -> None:
        self._undo_signals()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _undo_signals(self) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        signal.signal(signal.SIGURG, self._handler_before)

    def run(self) -> None:
        """Poke the main thread. This thread receives no signals, because it was started while all were blocked
        (pthread_create(3))."""
        try:
            self._poke()
        except MemoryError:
            pass  # the main thread has no memory either, and reports it
        finally:
            self._ended.release()

    def _poke(self) -> None:
        poller = select.poll()
        poller.register(self._wake_reader, select.POLLIN)
        while not self._is_ended:
            received = (
                os.read(self._wake_reader, 4096)
                if poller.poll(POKE_INTERVAL if self._pending_answers else None)
                else b""
            )
            if set(received) - {signal.SIGURG}:
                self._pending_answers = 2  # rule 3
            elif received:
                continue  # our own poke
            if self._pending_answers and not self._is_ended:
                signal.pthread_kill(self._main, signal.SIGURG)
