"""A try's request, checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from mudroom.errors import UsageError
from mudroom.ext.attempts.value import MOST, SCORES
from mudroom.library.satellite import Score
from mudroom.session.actor import Actor
from mudroom.typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from mudroom.core.approval.approval import CommandApprover
    from mudroom.core.result import Result
    from mudroom.sandbox.client.cancellation import Cancellation

MOST_THERE = 256
"""Attempts on other machines that are waited for at one time: a thread each."""
VARIABLE = b"MUDROOM_ATTEMPT"
"""Variable that holds the attempt's number, for its command and its judge."""


class AttemptRequest(NamedTuple):
    commands: tuple[tuple[bytes, ...], ...]
    """A command for each attempt."""
    shown: tuple[bytes, ...] = ()
    """The command as the user gave it; empty: the first attempt's command."""
    judge: tuple[bytes, ...] = ()
    """Empty: the command's exit code decides."""
    score: Score = "exit"
    jobs: int = 0
    """Attempts at one time; 0: as many as there are processors."""
    until: int = 0
    """End the others when this many have passed; 0: all run."""
    budget: float | None = None
    """Wall time for all attempts, in seconds."""
    parent: str | None = None
    """Parent fork; None: the project."""
    at: str | None = None
    """The parent's checkpoint; None: its present state."""
    combine: bool = False
    cwd: bytes | None = None
    timeout: float | None = None
    """Seconds for one command; None: the actor's limit."""
    actor: Actor | None = None
    approver: Callable[[Cancellation], CommandApprover | None] = lambda _cancellation: None
    """Returns the approver for an attempt's commands; None: the session's approver."""
    elsewhere: Callable[[str, AttemptRequest], RemoteAttempts] | None = None
    """Starts the commands on other machines, for the try of this name; None: they run here."""


class RemoteAttempts(Protocol):
    """A try's commands on other machines. Their judge runs here, whatever these say."""

    def result(self, number: int) -> tuple[Result, bytes, str]:
        """Return an attempt's result, the end of its output and a note, when its fork is here. Raise Cancelled if it
        was cancelled, MudroomError if it did not run to its end."""

    def cancel(self) -> None:
        """End all commands."""

    def close(self) -> None:
        """Wait until nothing is under way."""


def checked(request: AttemptRequest) -> AttemptRequest:
    """Return the request with its defaults. Raise UsageError if it is invalid."""
    count = len(request.commands)
    if not count:
        raise UsageError("a try of no attempts has no result", "mudroom try -n 8 -- COMMAND")
    if count > MOST:
        raise UsageError(
            f"{count:,} attempts are more than the {MOST:,} of one try", f"mudroom try -n {MOST} -- COMMAND"
        )
    if not all(command and command[0] for command in request.commands):
        raise UsageError("no command was given", "mudroom try -n 8 -- COMMAND")
    if request.score not in SCORES:
        raise UsageError(f"there is no score {request.score!r}", f"write one of: {', '.join(SCORES)}")
    if request.score == "json" and not request.judge:
        raise UsageError(
            "the score json is printed by a judge, and none is named",
            "--judge 'COMMAND whose last line is {\"score\": 1}'",
        )
    if request.combine and not request.judge:
        raise UsageError("a combination is chosen by a judge, and none is named", "--judge 'pytest -q'")
    if request.judge and not request.judge[0]:
        raise UsageError("the judge is empty", "--judge 'pytest -q'")
    if request.jobs < 0 or request.until < 0:
        raise UsageError(f"jobs {request.jobs}, until {request.until}: a number is negative", "mudroom try --help")
    if request.budget is not None and request.budget <= 0:
        raise UsageError("the budget is no time at all: no attempt could run", "--budget 30m")
    if request.at is not None and request.parent is None:
        raise UsageError("a checkpoint was named without its fork", "--from FORK@CHECKPOINT")
    if request.elsewhere is not None and request.parent is not None:
        raise UsageError("a worker begins with the project, not with a fork", "leave --from out, or --on")
    jobs = min(request.jobs or (MOST_THERE if request.elsewhere is not None else processors()), count)
    return request._replace(jobs=jobs, shown=request.shown or request.commands[0])


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def with_variables(actor: Actor, words: Sequence[bytes]) -> Actor:
    """Return the actor with more variables (``NAME=VALUE``) for its commands."""
    settings = actor.settings
    return actor._replace(settings=settings._replace(environment=(*settings.environment, *words)))
