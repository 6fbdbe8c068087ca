"""One attempt's way: fork, command, changes, judge.

If mudroom fails in one attempt (a full disk, a fork discarded by somebody), only that attempt gets the state ``error``.
Its fork is kept if its command has run and changed anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mudroom.core.text.redaction import redact_argv
from mudroom.core.tree.change import Changeset, Summary, summarise
from mudroom.errors import CommandNotStarted, ForkExists, MudroomError, UsageError
from mudroom.ext.attempts.session.judge import OutputEnd, judged
from mudroom.ext.attempts.session.request import VARIABLE, AttemptRequest, RemoteAttempts, with_variables
from mudroom.ext.attempts.value import AttemptRecord, numbered
from mudroom.library.satellite import AttemptState
from mudroom.sandbox.client.cancellation import Cancellation, Cancelled
from mudroom.session.order import Stdio
from mudroom.session.session import Session
from mudroom.typing import TYPE_CHECKING, NamedTuple
from mudroom.vault.forks import review
from mudroom.vault.forks.damage import reason_of
from mudroom.vault.forks.result_digest import result_digest

if TYPE_CHECKING:
    from mudroom.core.result import Result


_LONGEST_LINE = 120
"""Characters of a command's last line in a note."""


class Origin(NamedTuple):
    """The starting point that all attempts share."""

    parent: str | None = None
    at: str | None = None

    @property
    def name(self) -> str:
        """In the form that ``mudroom fork new --from`` takes; empty: the project."""
        return f"{self.parent}@{self.at}" if self.parent is not None and self.at is not None else self.parent or ""


class EndedAttempt(NamedTuple):
    record: AttemptRecord
    is_hopeless: bool = False
    """Whether no attempt in this try could be judged."""
    notes: tuple[str, ...] = ()
    """Notes about the command's sandbox."""


def run_attempt(
    session: Session,
    request: AttemptRequest,
    origin: Origin,
    stem: str,
    number: int,
    cancellation: Cancellation,
    started: Callable[[AttemptRecord], None],
    elsewhere: RemoteAttempts | None = None,
) -> EndedAttempt:
    """Run one attempt and return its record. ``stem``: the try's name. ``started`` is called when the fork exists, or
    when the attempt is on another machine."""
    command = numbered(request.commands[number - 1], number)
    shown = redact_argv(command, session.vault.secrets())
    record = AttemptRecord(number, "", shown, "not started")
    began = time.monotonic()
    try:
        if elsewhere is None:
            record = record._replace(fork=new_fork(session, origin, f"{stem}-{number}"), state="running")
            started(record)
            ended = _run(session, request, origin, record, command, cancellation)
        else:
            record = record._replace(state="running")
            started(record)
            ended = _take(session, request, origin, record, f"{stem}-{number}", cancellation, elsewhere)
    except (MudroomError, OSError) as error:
        ended = EndedAttempt(record._replace(state="error", note=reason_of(error)))
    seconds = round(time.monotonic() - began, 3)
    return ended._replace(record=_without_empty_fork(session, origin, ended.record)._replace(seconds=seconds))


def _without_empty_fork(session: Session, origin: Origin, record: AttemptRecord) -> AttemptRecord:
    """If the command has changed nothing, discard the fork and return the record without it."""
    if origin.parent is not None or not record.fingerprint or record.files:
        return record
    try:
        session.forks.discard_unchanged(record.fork)
    except UsageError:
        pass  # already gone
    return record if session.vault.find(record.fork) is not None else record._replace(fork="", reviewed="")


def new_fork(session: Session, origin: Origin, name: str) -> str:
    """Make a fork with this name, or with a suffix if the name is taken, and return its name."""
    try:
        return session.forks.new(name, parent=origin.parent, at=origin.at, named=False).name
    except ForkExists:
        other = f"{name}-{session.forks.new_id()}"
        return session.forks.new(other, parent=origin.parent, at=origin.at, named=False).name


def _run(
    session: Session,
    request: AttemptRequest,
    origin: Origin,
    record: AttemptRecord,
    command: tuple[bytes, ...],
    cancellation: Cancellation,
) -> EndedAttempt:
    actor, end = with_variables(request.actor or session.actor, [VARIABLE + b"=%d" % record.number]), OutputEnd()
    try:
        result = session.run(
            command,
            fork=record.fork,
            cwd=request.cwd,
            stdio=Stdio(on_output=end.hear),
            timeout=request.timeout,
            actor=actor,
            approver=request.approver(cancellation),
            cancellation=cancellation,
        )
    except (Cancelled, CommandNotStarted) as error:
        session.forks.discard(record.fork)
        if isinstance(error, Cancelled):
            return EndedAttempt(record._replace(fork="", state="not started"))
        return EndedAttempt(record._replace(fork="", state="error", exit_code=error.exit_code, note=error.message))
    if not result.ran:
        session.forks.discard_unchanged(record.fork)  # its question stays: an answer may cover all such commands
        note = f"{result.verdict.reason} ({result.verdict.rule})"
        return EndedAttempt(record._replace(fork="", state="refused", exit_code=result.exit_code, note=note))
    report = end.report(session.vault.secrets())
    notes = [str(limit) for limit in result.reached]
    if result.exit_code and not (cancellation.is_set or result.timed_out):
        notes.append(_failure(result.exit_code, report))
    record = record._replace(exit_code=result.exit_code, report=report, note="; ".join(notes))
    record = described(session, origin, record, result.changeset)
    if cancellation.is_set or result.timed_out:
        state: AttemptState = "ended early" if cancellation.is_set else "timed out"
        return EndedAttempt(record._replace(state=state), notes=result.notes)
    return _judge(session, request, record, result, cancellation)._replace(notes=result.notes)


def _take(
    session: Session,
    request: AttemptRequest,
    origin: Origin,
    record: AttemptRecord,
    name: str,
    cancellation: Cancellation,
    elsewhere: RemoteAttempts,
) -> EndedAttempt:
    """Return an attempt that ran on another machine, judged here. One that changed nothing is judged as the project."""
    try:
        result, report, note = elsewhere.result(record.number)
    except Cancelled:
        return EndedAttempt(record._replace(state="ended early"))
    except CommandNotStarted as error:
        return EndedAttempt(record._replace(state="error", exit_code=error.exit_code, note=error.message))
    if not result.ran:
        return EndedAttempt(record._replace(state="refused", exit_code=result.exit_code, note=result.verdict.reason))
    notes = [note] if note else []
    if result.exit_code:
        notes.append(_failure(result.exit_code, report))
    record = record._replace(fork=result.fork or new_fork(session, origin, name))
    record = record._replace(exit_code=result.exit_code, report=report, note="; ".join(notes))
    record = described(session, origin, record, result.changeset)
    if result.timed_out or cancellation.is_set:
        return EndedAttempt(record._replace(state="timed out" if result.timed_out else "ended early"))
    return _judge(session, request, record, result, cancellation)._replace(notes=result.notes)


def _failure(exit_code: int, report: bytes) -> str:
    """Return a command's exit code, and the last line that it printed."""
    lines = report.decode("utf-8", "surrogateescape").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    last = last if len(last) <= _LONGEST_LINE else last[: _LONGEST_LINE - 1] + "…"
    return f"exit code {exit_code}: {last}" if last else f"exit code {exit_code}"


def _judge(
    session: Session, request: AttemptRequest, record: AttemptRecord, result: Result, cancellation: Cancellation
) -> EndedAttempt:
    if not request.judge:
        return EndedAttempt(record._replace(state="passed" if not result.exit_code else "failed"))
    try:
        verdict = judged(session, request, record.fork, record.number, cancellation)
    except Cancelled:
        return EndedAttempt(record._replace(state="ended early"))
    except (MudroomError, OSError) as error:
        return EndedAttempt(record._replace(state="error", note=f"it could not be judged: {reason_of(error)}"))
    if cancellation.is_set:
        return EndedAttempt(record._replace(state="ended early", report=verdict.report))
    return EndedAttempt(
        _reviewed(session, record)._replace(
            state="passed" if verdict.passed else "failed",
            judged=verdict.exit_code,
            score=verdict.score,
            report=verdict.report,
            note="; ".join(filter(None, (record.note, verdict.note))),
        ),
        verdict.is_hopeless,
    )


def described(session: Session, origin: Origin, record: AttemptRecord, changeset: Changeset) -> AttemptRecord:
    """Return the record with the fork's changes, excluding those inherited from the common parent."""
    summary = counted(session, origin, record.fork, changeset)
    fork = session.vault.fork(record.fork)
    return record._replace(
        fingerprint=result_digest(session.vault, fork, changeset.changes),
        reviewed=review.fingerprint(changeset),
        added=summary.added,
        modified=summary.modified + summary.renamed,
        deleted=summary.deleted,
        lines=summary.lines_added + summary.lines_removed,
    )


def counted(session: Session, origin: Origin, fork: str, changeset: Changeset) -> Summary:
    if origin.parent is None:
        return summarise(changeset.changes)
    try:
        with session.forks.compare(origin.name, fork) as comparison:
            return summarise(comparison.changeset.changes)
    except UsageError:  # the parent or its checkpoint is gone
        return summarise(changeset.changes)


def _reviewed(session: Session, record: AttemptRecord) -> AttemptRecord:
    """Return the record with the present files' fingerprint."""
    # the judge's fork seals a copy, so inodes and times differ from those first collected
    now = session.vault.fork(record.fork).record
    return record if now is None else record._replace(reviewed=review.fingerprint(now.changeset))
