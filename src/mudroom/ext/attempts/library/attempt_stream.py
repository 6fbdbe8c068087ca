"""The attempts of a try as they end. ``Room.attempts`` has the arguments in words.

A thread is in a call of the room for as long as the try runs, so closing the room ends the attempts and waits for them.
The reader is in no call: between two attempts it may use the room.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from mudroom.errors import UsageError
from mudroom.ext.attempts.library.attempt_value import Attempt, TryResult, attempt_value, try_value
from mudroom.ext.attempts.session.attempts import Attempts, start
from mudroom.ext.attempts.session.discard import discard
from mudroom.ext.attempts.session.request import AttemptRequest, with_variables
from mudroom.ext.attempts.value import Score
from mudroom.library.argument import name_of, seconds_of, variables_of, words_of
from mudroom.library.command import directory_in
from mudroom.library.life import Life, request
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.sandbox.client.capture import SIGKILL
from mudroom.session import Session
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.library.argument import CommandLine, StrPath


def attempt_request(
    life: Life,
    command: CommandLine | None,
    n: int,
    commands: Sequence[CommandLine],
    judge: CommandLine | None,
    score: Score,
    jobs: int | None,
    until: int | None,
    budget: float | None,
    parent: str | None,
    at: str | None,
    *,
    combine: bool,
    cwd: StrPath | None,
    timeout: float | None,
) -> AttemptRequest:
    """Raise UsageError if an argument is not valid."""
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
        score=score,
        jobs=jobs or 0,
        until=until or 0,
        budget=seconds_of(budget, "budget"),
        parent=name_of(parent),
        at=at,
        combine=combine,
        cwd=directory_in(life.project, cwd),
        timeout=seconds_of(timeout),
        approver=life.approver,
    )


class AttemptStream:
    """Attempts while they run: iterate over them as they end, then take ``result``. Leaving the block, or forgetting
    the stream, ends those that run; the forks stay. ``_call`` is written before the stream is given to its reader."""

    def __init__(self, life: Life, request: AttemptRequest, env: Mapping[str, str] | None = None) -> None:
        self._life = life
        self._call = _Call(life, request, tuple(name + b"=" + value for name, value in variables_of(env or {}, "env")))
        self._running = self._call.begin()
        self.cancellation = self._call.cancellation

    def __iter__(self) -> AttemptStream:
        return self

    def __next__(self) -> Attempt:
        try:
            return attempt_value(next(self._running))
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> AttemptStream:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __del__(self) -> None:
        call = getattr(self, "_call", None)
        if call is not None and not call.is_over:
            request(call.cancellation)

    @property
    def name(self) -> str:
        """The name of the try, for ``mudroom try show``."""
        return self._running.record.name

    @property
    def result(self) -> TryResult:
        """The result. Raise UsageError before the last attempt has ended."""
        if not self._running.is_over:
            raise UsageError("the attempts have not ended", "iterate over them, or call wait()")
        return try_value(self._running.record)

    def wait(self) -> TryResult:
        """Wait for the end of all attempts, and return the result."""
        for _attempt in self:
            pass
        return self.result

    def close(self) -> None:
        """End the attempts that run, and wait until their changes are collected. Harmless when repeated."""
        if not self._call.is_over:
            request(self._call.cancellation)
        self._call.wait()

    def discard(self, *, everything: bool = False) -> list[str]:
        """Discard the forks of all attempts but the best, and return their names. ``everything``: the best too, and the
        record. Raise UsageError while attempts run."""
        with self._life.call() as session:
            return discard(session, self._running.record, everything=everything)


class _Call:
    """The call of the room in which the attempts run, in a thread of its own. ``_began`` and ``_ended`` are events;
    ``_running`` and ``_error`` are written by that thread before the first is set."""

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
        """Start the attempts. Raise the exceptions of ``start``."""
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
