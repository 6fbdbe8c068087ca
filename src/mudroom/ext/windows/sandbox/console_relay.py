"""Relay between the user's console and a command's pseudo-console; the command has no handle of the user's. The
counterpart to ``client/terminal.py``.

Rules of this file:
1. A command gets a pseudo-console if stdin, stdout and stderr are consoles, all three: a process has one console.
   Otherwise it gets pipes, so that ``isatty`` inside is never true where it is false outside.
2. Keys go to the pseudo-console as bytes, Ctrl-C among them, which raises its event in the command alone. Ctrl-Break is
   the user's way to end the command: no console passes it on as a byte.
3. Every way out restores the user's console modes: the command's end, an exception, Ctrl-Break.
4. The relay owns the pseudo-console's ends from ``start`` on. ClosePseudoConsole waits until the remaining output has
   been read ("Creating a Pseudoconsole session"), so the output thread reads until its pipe ends.
5. Windows sends no signal when the window's size changes, so it is looked at every ``LOOK`` seconds.

Questions are asked elsewhere while a command has the console: it is not known whether its program reads keys itself.
Type-ahead that the command has not read when it ends is lost with its console.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mudroom.ext.windows.win32.api import CallFailed
from mudroom.typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from mudroom.ext.windows.sandbox.calls import Console
    from mudroom.ext.windows.sandbox.run import ConfinedProcess

LOOK = 0.2
_PATIENCE = 0.05
"""Seconds between two attempts to interrupt the thread that waits for a key: it may be between two reads."""
_ATTEMPTS = 40


class RelayedConsole(Protocol):
    """The user's console: ``ext/windows/win32/user_console.py``."""

    def enter_raw(self) -> None:
        """Raise CallFailed; then the modes are as before."""

    def restore(self) -> None: ...

    def size(self) -> tuple[int, int] | None: ...

    def read(self) -> bytes:
        """Return keys as UTF-8; empty: the read was interrupted."""

    def write(self, data: bytes) -> None: ...

    def interrupt(self, thread: int) -> None:
        """Interrupt a thread's read."""


class PipeCalls(NamedTuple):
    """Calls on a pseudo-console's ends. Each raises CallFailed."""

    read: Callable[[int], bytes]
    write: Callable[[int, bytes], object]
    close: Callable[[int], object]


class Attached(Protocol):
    """A command with its own console, as ``WindowsRunning`` is."""

    @property
    def confined(self) -> ConfinedProcess: ...


class ConsoleRelay:
    """One command's relay, to be closed in every case. ``_over`` is only ever set; the other attributes are written by
    the caller's thread, except ``_failure``, which the output thread writes."""

    numbers = (0, 1, 2)
    descriptors = (None, None, None)
    own: frozenset[int] = frozenset()

    def __init__(self, user: RelayedConsole, pipes: PipeCalls) -> None:
        self._user, self._pipes = user, pipes
        self._console: Console | None = None
        self._over = threading.Event()
        self._failure: CallFailed | None = None
        self._threads: list[threading.Thread] = []
        self._is_raw = False

    def start(self, running: Attached) -> None:
        """Relay from now on. Raise CallFailed if the user's console has no raw mode."""
        confined = running.confined
        self._console = confined.take_console()
        self._user.enter_raw()
        self._is_raw = True
        work = (self._show, self._type, lambda: self._resize(confined))
        self._threads = [threading.Thread(target=one, name="mudroom-console", daemon=True) for one in work]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Wait, after the command has ended, until its output is on the console, and restore the modes."""
        console, self._console = self._console, None
        if console is None:
            return
        self._over.set()
        try:
            for thread in self._threads:
                self._end(thread)
        finally:
            if self._is_raw:
                self._user.restore()
            for handle in (console.input, console.output):
                self._pipes.close(handle)
        if self._failure is not None:
            raise self._failure

    def _end(self, thread: threading.Thread) -> None:
        if thread is not self._threads[1]:
            thread.join()
            return
        for _attempt in range(_ATTEMPTS):
            if not thread.is_alive():
                return
            self._user.interrupt(thread.native_id or 0)
            thread.join(_PATIENCE)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Do nothing: questions are asked elsewhere (``is_taken``)."""
        yield

    def is_taken(self) -> bool:
        return True

    def sign(self, text: str) -> None:
        """Show nothing: the command's cursor position is not known."""

    # --- threads ---

    def _show(self) -> None:
        assert self._console is not None
        output = self._console.output
        try:
            while data := self._pipes.read(output):
                self._user.write(data)
        except CallFailed as failed:  # the user's console has gone, and the remaining output with it
            self._failure = failed

    def _type(self) -> None:
        assert self._console is not None
        given = self._console.input
        while not self._over.is_set():
            try:
                if keys := self._user.read():
                    self._pipes.write(given, keys)
            except CallFailed:
                return  # a console has gone: no key arrives any more

    def _resize(self, confined: ConfinedProcess) -> None:
        shown = None
        while True:
            size = self._user.size()
            if size is not None and size != shown:
                shown = size
                try:
                    confined.resize(*size)
                except CallFailed:
                    return  # it has just ended
            if self._over.wait(LOOK):
                return
