"""Signals are heeded at once, whatever the main thread waits for.

1. A handler runs when the interpreter does, in the main thread. A signal that comes just before a wait (a lock,
   flock(2), waitpid(2), a read), or that the kernel gives to another thread, would be heeded only when the wait is
   over: signal(7). So a thread hears of every signal that has a handler (``signal.set_wakeup_fd``), and pokes the main
   thread until its handlers have run.
2. The poke is SIGURG: by default it is ignored (signal(7)), so one that comes late does nothing. The runtime of Go
   wakes its threads with it for that reason (runtime/signal_unix.go, sigPreempt).
3. A poke that is answered may have been in the middle of its handler when the signal came. The one after that has not:
   so it takes two answers.
4. A handler may raise (Ctrl-C before a command has begun). So none runs while this begins or ends: or a descriptor that
   has been closed, and is somebody else's file by then, would get the numbers of signals from there on.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager

POKE = 50
"""Milliseconds from one poke to the next."""


@contextmanager
def waking() -> Iterator[None]:
    """While this is entered. Who sets a wakeup descriptor of their own meanwhile (``lending``, ``Relay``) sees to it
    themselves. Not in the main thread, without such signals (Windows), or if no thread can be started: nothing is
    done."""
    if not hasattr(signal, "pthread_kill"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    watch = None
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        watch = _begin()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # and the handler of one that has come
        finally:
            if watch is not None:
                watch.end()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin() -> _Watch | None:
    wake, word = os.pipe()
    os.set_blocking(word, False)
    try:
        wakeup = signal.set_wakeup_fd(word, warn_on_full_buffer=False)
    except ValueError:  # not the main thread: signals are somebody else's business
        os.close(wake)
        os.close(word)
        return None
    watch = _Watch(wake, word, wakeup)
    try:
        _thread.start_new_thread(watch.run, ())
    except RuntimeError:  # there are as many as there may be
        watch.undo()
        return None
    return watch


class _Watch:
    def __init__(self, wake: int, word: int, wakeup: int) -> None:
        self._wake, self._word, self._wakeup = wake, word, wakeup
        self._main = _thread.get_ident()
        self._owed = 0
        """Answers of the main thread that are waited for."""
        self._is_over = False
        self._over = _thread.allocate_lock()
        self._over.acquire()
        self._poked = signal.signal(signal.SIGURG, self._answer)

    def _answer(self, _number: int, _frame: object) -> None:
        """In the main thread."""
        if self._owed:
            self._owed -= 1

    def end(self) -> None:
        self._is_over = True
        try:
            os.write(self._word, b"\0")
        except BlockingIOError:
            pass  # it has so much to read that it is awake
        self._over.acquire()
        self.undo()

    def undo(self) -> None:
        signal.set_wakeup_fd(self._wakeup)
        signal.signal(signal.SIGURG, self._poked)
        os.close(self._wake)
        os.close(self._word)

    def run(self) -> None:
        """In a thread that hears no signal: it was started when all were blocked (pthread_create(3))."""
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        while not self._is_over:
            came = os.read(self._wake, 4096) if poller.poll(POKE if self._owed else None) else b""
            if set(came) - {signal.SIGURG}:
                self._owed = 2
            elif came:
                continue  # our own
            if self._owed and not self._is_over:
                signal.pthread_kill(self._main, signal.SIGURG)
        self._over.release()
