"""A room's attempts: the registry's row ``attempts``. ``Room.attempts`` documents the arguments.

A thread is inside a room call while the try runs, so closing the room ends the attempts and waits for them. The reader
is in no call: it may use the room between two attempts.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence

from mudroom.errors import UsageError
from mudroom.ext.attempts.session.attempts import Attempts, start
from mudroom.ext.attempts.session.discard import discard
from mudroom.ext.attempts.session.request import AttemptRequest, with_variables
from mudroom.ext.attempts.value import AttemptRecord, TryRecord, best_of, distinct, ranked, tied
from mudroom.library.argument import name_of, require_known, seconds_of, variables_of, words_of
from mudroom.library.command import directory_in
from mudroom.library.life import Life, request
from mudroom.library.satellite import Attempt, AttemptOptions, AttemptStream, TryResult
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.sandbox.client.capture import SIGKILL
from mudroom.session import Session
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.library.argument import CommandLine


def attempts(life: Life, command: CommandLine | None, n: int, options: AttemptOptions) -> AttemptStream:
    """Start a room's attempts. Raise UsageError if an argument is invalid."""
    require_known("attempts", options, AttemptOptions)
    return RoomAttempts(life, _request(life, command, n, options), options.get("env"))


def _request(life: Life, command: CommandLine | None, n: int, options: AttemptOptions) -> AttemptRequest:
    commands, jobs, until = options.get("commands", ()), options.get("jobs"), options.get("until")
    judge = options.get("judge")
    if (command is None) == (not commands):
        raise UsageError(
            "attempts take a command with its number, or commands", 'attempts("./fix {i}", 8), or commands=[…]'
        )
    for name, value, least in (("n", n, 0), ("jobs", jobs, 1), ("until", until, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise UsageError(f"{name} is {value!r}, not a number of attempts", f"{name}=4")
    if isinstance(commands, (str, bytes)) or not isinstance(commands, Sequence):
        raise UsageError(f"commands is {commands!r}, not a list of commands", 'commands=["./a", "./b"]')
    words = [words_of(command)] * min(n, 10_000) if command is not None else [words_of(each) for each in commands]
    return AttemptRequest(
        tuple(words),
        judge=words_of(judge) if judge is not None else (),
        score=options.get("score", "exit"),
        jobs=jobs or 0,
        until=until or 0,
        budget=seconds_of(options.get("budget"), "budget"),
        parent=name_of(options.get("parent")),
        at=options.get("at"),
        combine=options.get("combine", False),
        cwd=directory_in(life.project, options.get("cwd")),
        timeout=seconds_of(options.get("timeout")),
        approver=life.approver,
    )


class RoomAttempts:
    """A room's ``AttemptStream``. ``_call`` is written before the reader gets the stream."""

    def __init__(self, life: Life, request: AttemptRequest, env: Mapping[str, str] | None = None) -> None:
        self._life = life
        self._call = _Call(life, request, tuple(name + b"=" + value for name, value in variables_of(env or {}, "env")))
        self._running = self._call.begin()
        self.cancellation = self._call.cancellation

    def __iter__(self) -> RoomAttempts:
        return self

    def __next__(self) -> Attempt:
        try:
            return _attempt(next(self._running))
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RoomAttempts:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __del__(self) -> None:
        call = getattr(self, "_call", None)
        if call is not None and not call.is_over:
            request(call.cancellation)

    @property
    def name(self) -> str:
        return self._running.record.name

    @property
    def result(self) -> TryResult:
        if not self._running.is_over:
            raise UsageError("the attempts have not ended", "iterate over them, or call wait()")
        return _result(self._running.record)

    def wait(self) -> TryResult:
        for _attempt in self:
            pass
        return self.result

    def close(self) -> None:
        if not self._call.is_over:
            request(self._call.cancellation)
        self._call.wait()

    def discard(self, *, everything: bool = False) -> list[str]:
        with self._life.call() as session:
            return discard(session, self._running.record, everything=everything)


class _Call:
    """The room call in which the attempts run, in its own thread. ``_began`` and ``_ended`` are events; the thread
    writes ``_running`` and ``_error`` before it sets ``_began``."""

    def __init__(self, life: Life, request: AttemptRequest, variables: tuple[bytes, ...]) -> None:
        self._life, self._request, self._variables = life, request, variables
        self.cancellation = Cancellation()
        self._began, self._ended = threading.Event(), threading.Event()
        self._running: Attempts | None = None  # owner: the call's thread, until ``_began``
        self._error: BaseException | None = None  # owner: as above

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    def begin(self) -> Attempts:
        """Start the attempts. Raise the same exceptions as ``start``."""
        threading.Thread(target=self._work, name="mudroom attempts", daemon=True).start()
        self._began.wait()
        if self._running is None:
            assert self._error is not None
            raise self._error
        return self._running

    def wait(self) -> None:
        self._ended.wait()

    def _work(self) -> None:
        try:
            with self._life.call(self.cancellation) as session:
                self._run(session)
        except BaseException as error:  # noqa: BLE001 - raised to the reader
            self._error = error
        finally:
            self._began.set()
            self._ended.set()

    def _run(self, session: Session) -> None:
        actor = with_variables(session.actor, self._variables)
        running = start(session, self._request._replace(actor=actor))

        def end(number: int) -> None:
            running.end("interrupted", at_once=number == SIGKILL)

        self.cancellation.attach(end)
        try:
            self._running = running
            self._began.set()
            running.wait()
        finally:
            self.cancellation.detach(end)


# --- values ---


def _attempt(record: AttemptRecord) -> Attempt:
    return Attempt(
        record.number,
        record.fork,
        record.state,
        tuple(map(os.fsdecode, record.command)),
        record.exit_code,
        record.judged,
        record.score,
        record.added,
        record.modified,
        record.deleted,
        record.lines,
        record.seconds,
        record.report.decode("utf-8", "replace"),
        record.same_as,
        record.note,
        record.of,
    )


def _result(record: TryRecord) -> TryResult:
    best = best_of(record.attempts, record.score)
    return TryResult(
        record.name,
        tuple(_attempt(attempt) for attempt in ranked(record.attempts, record.score)),
        _attempt(best) if best is not None else None,
        tuple(_attempt(attempt) for attempt in tied(record.attempts, record.score)),
        distinct(record.attempts),
        record.combined,
        record.end,
        record.note,
    )
