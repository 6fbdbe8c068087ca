"""A room's life: which callers may use it, which calls are active, and how it ends.

Rules of this file:
1. A room belongs to the process that opened it. A child by fork(2) has copies of its locks and descriptors; using them
   there would write the parent's buffers twice. So every call in a child is refused, and ``close`` has no effect.
2. Closing ends other threads' commands and waits for them. It does not wait for a call that waits for another process's
   lock: the command of such a call does not start any more.
3. A forgotten room is closed when it is garbage-collected, or when the interpreter exits.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.cancellation import Cancellation, Cancelled
from mudroom.sandbox.client.capture import SIGKILL
from mudroom.session import Session
from mudroom.typing import TYPE_CHECKING, NoReturn, TypeAlias

if TYPE_CHECKING:
    from mudroom.core.approval.approval import CommandApprover

    CancellableApprover: TypeAlias = Callable[[Cancellation], CommandApprover | None]
    import signal
    from types import FrameType
else:
    import _signal as signal  # the signal module would build enums at import


# --- Ctrl-C in the main thread during a room's call ---
# Python's own handler raises KeyboardInterrupt between any two instructions, even where a descriptor has been closed
# but not yet forgotten, or a lock taken but not yet recorded. The room could not be used after that. So a call takes
# over SIGINT meanwhile, as ``asyncio.Runner`` does, and only from Python's own handler:
#
#     the first     ends the call's command (SIGTERM, later SIGKILL); KeyboardInterrupt is raised when its changes
#                   are collected, or when a call without a command ends
#     the second    kills the command
#     the third     is raised at once
#
# A wait for another process's lock or for a background command, and a question to the caller's own function, end at
# once.


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


UNSTARTED = 2.0
"""Seconds that ``close`` waits for a command that has not started; such a command usually ends at once."""


class Life:
    """``_changed`` guards the other attributes. The session is used outside that lock."""

    def __init__(self, session: Session, approver: CancellableApprover = lambda _cancellation: None) -> None:
        """``approver`` returns the approver for one command."""
        self._session, self._pid, self.approver = session, os.getpid(), approver
        self._changed = threading.Condition()
        self._is_closed = False
        self._calls: list[tuple[int, Cancellation | None]] = []
        """Per call: its thread, and the cancellation that ends its command."""
        self._end = weakref.finalize(self, _close, session, os.getpid())

    def __reduce__(self) -> NoReturn:
        """Refuse to pickle a room, a fork or a background command."""
        raise UsageError(
            "a room cannot be pickled, nor its forks and commands: they hold a sandbox of this process",
            f"pass its project, and open it there: mudroom.open({os.fsdecode(self.project)!r})",
        )

    @property
    def project(self) -> bytes:
        return self._session.project

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @contextmanager
    def call(self, cancellation: Cancellation | None = None) -> Iterator[Session]:
        """Yield the session for one call. Ctrl-C ends the command of ``cancellation``, and is raised at the call's end
        (``DeferredInterrupt``). Raise UsageError if the room is closed or belongs to another process."""
        with DeferredInterrupt(lambda: _each(request, cancellation), lambda: _each(kill, cancellation)):
            entry = (_thread.get_ident(), cancellation)
            self._begin(entry)
            try:
                yield self._session
            finally:
                with self._changed:
                    self._calls.remove(entry)
                    self._changed.notify_all()

    def _begin(self, entry: tuple[int, Cancellation | None]) -> None:
        name, project = show(self._session.project), os.fsdecode(self._session.project)
        if os.getpid() != self._pid:
            hint = f"open the project here: mudroom.open({project!r})"
            raise UsageError(f"this room on {name} was opened by process {self._pid}, of which this is a child", hint)
        with self._changed:
            if self._is_closed:
                raise UsageError(f"this room on {name} is closed", f"open it again: mudroom.open({project!r})")
            if any(thread == entry[0] and outer is not None and outer.has_started for thread, outer in self._calls):
                hint = "return from it first, or call from another thread"
                raise UsageError("a callback of a running command cannot call its own room", hint)
            self._calls.append(entry)

    def close(self) -> None:
        """End everything that runs, and release all resources. Harmless when repeated, and in a child process. Raise
        UsageError from within a call on the same room, such as an output callback."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            if any(thread == _thread.get_ident() for thread, _cancellation in self._calls):
                raise UsageError("a room cannot be closed from within its own call", "return from the callback first")
            was_closed, self._is_closed = self._is_closed, True
            if was_closed:
                self._changed.wait_for(lambda: not self._end.alive)
                return
            cancellations = [cancellation for _thread, cancellation in self._calls if cancellation is not None]
        for cancellation in cancellations:
            request(cancellation)
        try:
            self._wait()
        finally:
            self._end()
            with self._changed:
                self._changed.notify_all()

    def _wait(self) -> None:
        unstarted = time.monotonic() + UNSTARTED

        def is_waited_for(cancellation: Cancellation | None) -> bool:
            return cancellation is None or cancellation.has_started or time.monotonic() < unstarted

        with self._changed:
            while any(is_waited_for(cancellation) for _thread, cancellation in self._calls):
                self._changed.wait(UNSTARTED)


_THREAD = threading.local()


def own_cancellation() -> Cancellation:
    """Return the cancellation for this call's command: the one that belongs to the asyncio task for which this thread
    works (``worker.py``), or a new one."""
    return getattr(_THREAD, "cancellation", None) or Cancellation()


def work_for(cancellation: Cancellation | None) -> None:
    """Set the result of ``own_cancellation`` in this thread, which works for one call."""
    _THREAD.cancellation = cancellation


def request(cancellation: Cancellation) -> None:
    """Ask a command to end: SIGTERM now, SIGKILL after a grace period. Without a launcher it has ended already."""
    with suppress(MudroomError):  # the launcher is gone, and the command with it
        cancellation.cancel()


def kill(cancellation: Cancellation) -> None:
    """Kill all a command's processes now."""
    with suppress(MudroomError):  # as above
        cancellation.kill()


def _each(end: Callable[[Cancellation], None], cancellation: Cancellation | None) -> None:
    if cancellation is not None:
        end(cancellation)


def _close(session: Session, pid: int) -> None:
    if os.getpid() == pid:
        session.interrupt(SIGKILL)  # for interpreter exit, and for a room that was forgotten
        session.close()
