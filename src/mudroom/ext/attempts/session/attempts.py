"""Attempts at one task, side by side: at most ``jobs`` at a time, judged, recorded as they end, ended early.

    with start(session, request) as running:
        for attempt in running:             # as they end
            print(attempt.fork, attempt.state)
    print(running.record.best)

Rules:
1. No changes are applied, and no fork with changes is discarded.
2. Each attempt has its own cancellation. Ending early cancels the running attempts; the others do not begin. ``until``
   ends with SIGKILL, since the losers' output is not needed. ``budget`` and an interruption send SIGTERM first.
3. The record is written when an attempt begins and when it ends, before a reader hears of it. With more than ``FEW``
   attempts the record is large, so writing takes at most a twentieth of the time; the last state is always written.
4. An unexpected exception in one thread ends the others, and is raised to the reader.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque

from mudroom.core.result import text
from mudroom.core.text.redaction import redact_argv
from mudroom.errors import MudroomError
from mudroom.ext.attempts import record as records
from mudroom.ext.attempts.record import TryLock
from mudroom.ext.attempts.session.attempt import Origin, run_attempt
from mudroom.ext.attempts.session.combination import combine
from mudroom.ext.attempts.session.request import AttemptRequest, checked
from mudroom.ext.attempts.value import (
    FORMAT,
    AttemptRecord,
    TryEnd,
    TryRecord,
    best_of,
    distinct,
    folded,
    numbered,
)
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.session.session import Session
from mudroom.vault.forks.damage import reason_of
from mudroom.vault.forks.stacking import find_checkpoint

AGAIN = 0.05
"""Seconds after which SIGKILL is sent again: a command may have begun just when the first was sent."""
FEW = 64
_HEARD = 0.1 if sys.platform == "win32" else None
"""Seconds after which a wait lets signal handlers run. Signals interrupt a wait for a lock only on POSIX
(``threading.Lock.acquire``)."""
SHARE = 20
"""After a write, the next waits for this multiple of the time it took."""


def start(session: Session, request: AttemptRequest) -> Attempts:
    """Begin a try and return it. Raise UsageError if the request is invalid or its parent does not exist."""
    request = checked(request)
    if request.parent is not None:
        session.vault.fork(request.parent)
    lock = records.begin(session.vault.path)
    made = None
    try:
        origin = _origin(session, request, lock.name)
        made = Attempts(session, request, origin, lock)
        made.begin()
    except BaseException:
        if made is not None and made.has_workers:  # interrupted: end the workers' attempts, keep them in the record
            made.close()
        else:
            records.remove(session.vault.path, lock.name)
            lock.release()
        raise
    return made


def _origin(session: Session, request: AttemptRequest, name: str) -> Origin:
    """Return the attempts' starting point. A fork's present state becomes a checkpoint, so that all start alike."""
    if request.parent is None or request.at is not None:
        if request.at is not None and request.parent is not None:
            _require_checkpoint(session, request.parent, request.at)
        return Origin(request.parent, request.at)
    point = f"try-{name}"
    if any(made.name == point for made in session.vault.fork(request.parent).state.checkpoints):
        point = f"{point}-{session.forks.new_id()}"
    session.forks.checkpoint(request.parent, point)
    return Origin(request.parent, point)


def _require_checkpoint(session: Session, fork: str, point: str) -> None:
    find_checkpoint(session.vault.fork(fork), point)


class Attempts:
    """A running try: iterate over its attempts as they end, then read ``record``. ``_changed`` guards the attributes
    written outside ``__init__``."""

    def __init__(self, session: Session, request: AttemptRequest, origin: Origin, lock: TryLock) -> None:
        self._session, self._request, self._origin, self._lock = session, request, origin, lock
        self._changed = threading.Condition()
        self._unread: deque[AttemptRecord] = deque()
        self._running: dict[int, Cancellation] = {}
        self._next = 1
        self._workers = 0
        self._is_over = False
        self._error: BaseException | None = None
        self._timer: threading.Timer | None = None
        self._write_again = 0.0
        self._elsewhere = request.elsewhere(lock.name, request) if request.elsewhere is not None else None
        self.notes: dict[str, None] = {}
        """Notes about the commands' sandboxes, each once. It is used by single, atomic operations only."""
        secrets = session.vault.secrets()
        rows = (
            AttemptRecord(number, "", redact_argv(numbered(command, number), secrets), "not started")
            for number, command in enumerate(request.commands, 1)
        )
        self._record = TryRecord(
            FORMAT,
            lock.name,
            session.forks.clock(),
            0,
            redact_argv(request.shown, secrets),
            redact_argv(request.judge, secrets),
            request.score,
            origin.name,
            0,
            tuple(rows),
        )

    def __iter__(self) -> Attempts:
        return self

    def __next__(self) -> AttemptRecord:
        """Return the next ended attempt. Attempts whose command was never started are left out."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._unread or self._is_over, _HEARD):
                pass
            if self._unread:
                return self._unread.popleft()
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def __enter__(self) -> Attempts:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def record(self) -> TryRecord:
        """The present record; complete when the iteration has ended."""
        return self._record

    @property
    def has_workers(self) -> bool:
        """Whether a thread runs attempts, or has run them."""
        return self._workers > 0 or self._is_over

    @property
    def is_over(self) -> bool:
        """Whether every attempt has ended and is recorded."""
        return self._is_over

    def close(self) -> None:
        """End the running attempts and wait for them. May be repeated."""
        if not self._is_over:
            self.end("interrupted")
        self.wait()

    def wait(self) -> None:
        """Wait until every attempt has ended and is recorded."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._is_over, _HEARD):
                pass

    def end(self, reason: TryEnd, *, at_once: bool = False) -> None:
        """End the running attempts and begin no more. ``at_once``: send SIGKILL, and wait until all have ended. May be
        called from any thread, but not from a signal handler."""
        with self._changed:
            if self._is_over:
                return
            if not self._record.end:
                self._record = self._record._replace(end=reason)
            running = list(self._running.values())
        if self._elsewhere is not None:
            self._elsewhere.cancel()
        for cancellation in running:
            _end(cancellation, at_once=at_once)
        # a command may have begun just after the first SIGKILL: repeat
        if at_once:
            with self._changed:
                while not self._changed.wait_for(lambda: not self._running or self._is_over, AGAIN):
                    for cancellation in self._running.values():
                        _end(cancellation, at_once=True)

    # --- threads ---

    def begin(self) -> None:
        """Start the threads. Raise MudroomError if no thread can be started, OSError if the record cannot be
        written."""
        records.save(self._session.vault.path, self._record)
        try:
            if self._request.budget is not None:  # first: without it, nothing would end the workers' attempts
                timer = threading.Timer(self._request.budget, self.end, ("budget",))
                timer.daemon = True
                timer.start()
                with self._changed:
                    self._timer = timer
            self._begin_workers()
        except RuntimeError:
            if self._timer is not None:
                self._timer.cancel()
            raise MudroomError("no thread can be started", "ulimit -u 8192 permits more processes") from None

    def _begin_workers(self) -> None:
        """Start up to ``jobs`` threads. Raise RuntimeError if not even one can be started."""
        for _job in range(self._request.jobs):
            with self._changed:
                self._workers += 1
            try:
                threading.Thread(target=self._work, name=f"mudroom {self._record.name}", daemon=True).start()
            except RuntimeError:
                with self._changed:
                    self._workers -= 1
                    if self._workers:
                        return  # fewer attempts at a time
                raise

    def _work(self) -> None:
        try:
            while (taken := self._take()) is not None:
                self._attempt(*taken)
        except BaseException as error:  # noqa: BLE001 - raised to the reader
            with self._changed:
                self._error = self._error or error
            self.end("interrupted")
        with self._changed:
            self._workers -= 1
            is_last = not self._workers
        if is_last:
            self._finish()

    def _take(self) -> tuple[int, Cancellation] | None:
        """Return the next attempt's number and its cancellation, or None if none is left or the try has ended."""
        with self._changed:
            if self._record.end or self._next > len(self._request.commands):
                return None
            number, self._next = self._next, self._next + 1
            cancellation = self._running[number] = Cancellation()
            return number, cancellation

    def _attempt(self, number: int, cancellation: Cancellation) -> None:
        try:
            ended = run_attempt(
                self._session,
                self._request,
                self._origin,
                self._record.name,
                number,
                cancellation,
                self._put,
                self._elsewhere,
            )
        finally:
            with self._changed:
                del self._running[number]
                self._changed.notify_all()
            cancellation.close()
        self.notes.update(dict.fromkeys(ended.notes))
        with self._changed:
            end = self._record.end
            attempt = ended.record
            if attempt.state == "ended early" and end == "budget":
                attempt = attempt._replace(state="timed out")
            self._put(attempt)
            if attempt.state != "not started":
                self._unread.append(attempt)
            passed = sum(row.state == "passed" for row in self._record.attempts)
            is_enough = bool(self._request.until) and passed >= self._request.until
            self._changed.notify_all()
        if ended.is_hopeless:
            with self._changed:
                self._record = self._record._replace(note=self._record.note or attempt.note)
            self.end("judge", at_once=True)
        elif is_enough:
            self.end("until", at_once=True)

    def _put(self, attempt: AttemptRecord) -> None:
        """Put an attempt into the record, and write the record if it is time."""
        with self._changed:
            rows = (attempt if row.number == attempt.number else row for row in self._record.attempts)
            self._record = self._record._replace(attempts=folded(rows))
            if len(self._record.attempts) <= FEW or time.monotonic() >= self._write_again:
                self._write()

    def _write(self) -> None:
        """Write the record; the caller holds the lock. A full disk does not end a try: the last state is then in memory
        only, with a note."""
        began = time.monotonic()
        try:
            records.save(self._session.vault.path, self._record)
        except OSError as error:
            note = f"the record of the try could not be written: {reason_of(error)}"
            self._record = self._record._replace(note=note)
        now = time.monotonic()
        self._write_again = now + SHARE * (now - began)

    def _finish(self) -> None:
        try:
            if self._elsewhere is not None:
                self._elsewhere.close()
            if self._timer is not None and not self._request.combine:
                self._timer.cancel()
            if self._request.combine and self._record.end in ("", "until"):
                self._combine()
            self._close_record()
        except BaseException as error:  # noqa: BLE001 - raised to the reader
            with self._changed:
                self._error = self._error or error
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._lock.release()
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _combine(self) -> None:
        cancellation = Cancellation()
        with self._changed:
            if self._record.end not in ("", "until"):
                return
            self._running[0] = cancellation
        try:
            better, note = combine(self._session, self._request, self._origin, self._record, cancellation)
        finally:
            with self._changed:
                del self._running[0]
                self._changed.notify_all()
            cancellation.close()
        with self._changed:
            self._record = self._record._replace(note="; ".join(filter(None, (self._record.note, note))))
            if better is not None:
                attempts = folded((*self._record.attempts, better))
                self._record = self._record._replace(attempts=attempts, combined=better.fork)
                self._unread.append(better)
                self._changed.notify_all()

    def _close_record(self) -> None:
        session, forks = self._session, self._session.forks
        with self._changed:
            best = best_of(self._record.attempts, self._record.score)
            number = best.number if best is not None else 0
            self._record = self._record._replace(best=number, ended=max(forks.clock(), 1))
            self._write()
            record = self._record
        records.expire(session.vault.path)
        data = {
            "try": record.name,
            "command": [text(word) for word in record.command],
            "judge": [text(word) for word in record.judge],
            "attempts": len(self._request.commands),
            "passed": sum(attempt.state == "passed" for attempt in record.attempts),
            "distinct": distinct(record.attempts),
            "forks": [attempt.fork for attempt in record.attempts if attempt.fork],
            "best": best.fork if best is not None else "",
            "end": record.end,
        }
        try:
            forks.journal("try", best.fork if best is not None else "", data)
        except MudroomError as error:
            shown = f"mudroom try show {record.name}"
            raise MudroomError(f"the try {record.name} has ended; {error.message}", shown) from error


def _end(cancellation: Cancellation, *, at_once: bool) -> None:
    try:
        if at_once:
            cancellation.kill()
        else:
            cancellation.cancel()
    except MudroomError:
        pass  # the launcher is gone, and the command with it
