"""The queue of questions about commands and hosts, with their answers (``vault/approvals/question.py``).

Rules of this file:

1. No vault lock is needed and no process is waited for, so a user command may hold the vault alone meanwhile.
2. An answer given while no process waited is used only once, and only for a question with the same fingerprint from the
   same fork and agent. An answer for an hour answers such questions for that time; each is a question of its own with
   its own decision. No answer outlives its fork: another fork may get the name.
3. A question is stored without its command's secrets; its fingerprint covers the whole command.
4. The queue is bounded (``core/approval_queue.py:QueueRoom``), and its questions expire.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from mudroom.core.approval.approval import CommandQuestion, HostQuestion, explain_difference, is_same_question
from mudroom.core.approval_queue import (
    VALIDITY,
    QueueDecision,
    QueuedQuestionRecord,
    QueueRoom,
    QueueRow,
    State,
    age,
    elapsed,
    is_old,
    is_repeated,
    questions_to_delete,
    storable,
    storable_text,
)
from mudroom.core.clock import SECOND, Moment, horizon
from mudroom.core.system.closing import ClosedOnError, Closing
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.stage.disk import user as current_user
from mudroom.vault.approvals import question as disk
from mudroom.vault.approvals.bell import Bell, listeners, ring, wait
from mudroom.vault.approvals.question import FORMAT, WaiterLock
from mudroom.vault.moment import clock_at, now
from mudroom.vault.sync import sync_directory

ROOM = QueueRoom()
LARGEST = ROOM.largest
"""Maximum bytes in one command's words."""
LOOK = 2.0
"""Seconds after which a waiter looks without a ring."""
_ASIDE = 3600.0
"""Seconds for which an incomplete question is kept."""
_GONE = "no process waited for it any more"
_LIST = "mudroom approve lists the waiting questions"


class Queue:
    """The queue of one vault. No file stays open between two calls; any number of processes may use it at once."""

    def __init__(
        self,
        vault: bytes,
        clock: Callable[[], Moment] = now,
        new_id: Callable[[], str] = lambda: os.urandom(3).hex(),
        secrets: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """``secrets``: returns the values that must not be stored; called for each question."""
        self._secrets = secrets
        self._path, self._clock, self._new_id = vault + b"/approvals", clock, new_id
        self._bells = self._path + b"/bells"

    # --- for processes that ask ---

    def put(self, question: CommandQuestion | HostQuestion, patience: float, validity: float = VALIDITY) -> Ticket:
        """Put a question into the queue and return its ticket. Close the ticket.

        If the same question is in the queue without a waiter, or has an unused answer from the last ``validity``
        seconds, the ticket is for that question. Raise MudroomError; then no question was put.
        """
        moment, question = self._clock(), storable(question, self._secrets())
        rows = self._rows(moment)
        same = [row for row in reversed(rows) if is_same_question(row.asked.question, question)]
        try:
            for row in same:
                if not row.used and (ticket := self._resume(row, moment, validity)) is not None:
                    return ticket
            note = self._superseded(rows, question)
            self._make_room(rows, moment)
            ticket = self._new(question, patience, note, moment)
            self._repeat(ticket, same, moment)
            return ticket
        except OSError as error:
            raise MudroomError(f"the question cannot be put into the queue: {error.strerror}") from error

    def _resume(self, row: QueueRow, moment: Moment, validity: float) -> Ticket | None:
        waiter_lock = self._become_waiter(row.name)
        if waiter_lock is None:
            return None
        ticket = None
        try:
            if self._counts(row, moment, validity):
                ticket = Ticket(self, row.asked, waiter_lock)
        finally:
            if ticket is None:
                waiter_lock.end()
        return ticket

    def _counts(self, row: QueueRow, moment: Moment, validity: float) -> bool:
        """Whether a question held by this process can be resumed: it is unanswered, or its answer can still be used."""
        decision = self.decision(row.name)
        if decision is None:
            if age(row.asked.when, moment) <= ROOM.unanswered:
                return True
            self.end(row.name, "expired", _GONE)
            return False
        if decision.state not in ("allowed", "denied") or elapsed(decision.when, moment) > validity:
            return False
        return not disk.is_used(self._place(row.name))

    def _repeat(self, ticket: Ticket, same: Iterable[QueueRow], moment: Moment) -> None:
        """Decide a new question as the latest of the ``same`` ones was decided for an hour. Raise MudroomError."""
        for row in same:
            decision = row.decision
            if decision is not None and is_repeated(decision, moment):
                with ClosedOnError(ticket):
                    self.end(ticket.asked.name, decision.state, f"answered for an hour: {row.name}", decision.by)
                return

    def _superseded(self, rows: list[QueueRow], question: CommandQuestion | HostQuestion) -> str:
        """Withdraw the last question about the same command if its circumstances have changed. Return a note about the
        change."""
        if not isinstance(question, CommandQuestion):
            return ""
        for row in reversed(rows):
            before = row.asked.command
            if before is None or before.fingerprint == question.fingerprint:
                continue
            why = explain_difference(before, question)
            if why:
                self._withdraw(row, f"asked anew: {why}")
                return f"{why} since question {row.name} ({'not answered' if row.decision is None else row.state})"
        return ""

    def withdraw(self, forks: Collection[str], reason: str) -> None:
        """Withdraw the questions about commands in these forks for which no process waits, and remove the answers that
        could still be used: the forks' names become free. Raise MudroomError."""
        for row in self._rows(self._clock()):
            if row.asked.question.fork in forks:
                self._withdraw(row, reason)
                if row.decision is not None and (row.decision.hour or not row.used):
                    self._forget([row.name])

    def _withdraw(self, row: QueueRow, reason: str) -> None:
        if row.decision is None and (waiter_lock := self._become_waiter(row.name)) is not None:
            self.end(row.name, "withdrawn", reason)
            waiter_lock.end()

    def _new(self, question: CommandQuestion | HostQuestion, patience: float, note: str, moment: Moment) -> Ticket:
        """Put a new question. Raise OSError or MudroomError."""
        command, host = (question, None) if isinstance(question, CommandQuestion) else (None, question)
        size = sum(map(len, command.command)) if command is not None else 0
        if size > LARGEST:
            raise MudroomError(
                f"the command has {size:,} bytes, more than the {LARGEST:,} that can be asked about",
                "put it into a script, and run that",
            )
        os.makedirs(self._path, mode=0o700, exist_ok=True)
        for _attempt in range(100):
            asked = QueuedQuestionRecord(FORMAT, self._new_id(), moment, patience, note, command, host)
            waiter_lock = disk.create(self._place(asked.name), asked)
            if waiter_lock is not None:
                try:
                    sync_directory(self._path)
                except OSError:
                    disk.remove(self._place(asked.name))
                    waiter_lock.end()
                    raise
                ring(self._bells)
                return Ticket(self, asked, waiter_lock)
        raise MudroomError("no name was found for the question")

    def _become_waiter(self, name: str) -> WaiterLock | None:
        """Become the process that waits for a question. Return None if another process waits or on an error."""
        try:
            return disk.become_waiter(self._place(name))
        except OSError:  # just removed, or the directory cannot be written: no answer could be used
            return None

    # --- for processes that answer ---

    def rows(self) -> list[QueueRow]:
        """Return all readable questions, oldest first. Raise MudroomError."""
        self._require_own()
        return self._rows(self._clock())

    def row(self, name: str) -> QueueRow:
        """Return a question by its name. Raise UsageError if it does not exist, MudroomError if the queue cannot be
        used."""
        self._require_own()
        row = disk.row_at(self._place(name)) if _is_name(name) else None
        if row is None:
            raise UsageError(f"there is no question {show(name.encode('utf-8', 'surrogateescape'))}", _LIST)
        return row

    def decide(
        self,
        name: str,
        *,
        allow: bool,
        by: str,
        reason: str = "",
        keep: bool = False,
        rule: str = "",
        hour: bool = False,
    ) -> tuple[QueueDecision, bool]:
        """Answer a question. ``rule``: as in ``FlowAnswer``. ``hour``: as in ``QueueDecision``. A refusal after it was
        allowed for an hour takes that back, and the question is removed.

        Return its decision, and whether this answer became the decision: another process may have answered before.
        Raise UsageError if the question does not exist; MudroomError if the answer cannot be written, and then the
        question still waits.
        """
        row = self.row(name)
        if row.decision is not None:
            is_allowed = row.decision.state == "allowed" and is_repeated(row.decision, self._clock())
            return self._take_back(row, by) if is_allowed and not allow else (row.decision, False)
        if not row.waiter and age(row.asked.when, self._clock()) > ROOM.unanswered:
            return self.end(name, "expired", _GONE)
        return self.end(name, "allowed" if allow else "denied", reason, by, keep, rule, hour=hour)

    def _take_back(self, row: QueueRow, by: str) -> tuple[QueueDecision, bool]:
        self._forget([row.name])
        if disk.row_at(self._place(row.name)) is not None:
            raise MudroomError(f"{row.name} is being used by a command", "try again")
        ring(self._bells)
        return QueueDecision(FORMAT, "withdrawn", self._clock(), by, "it was allowed for an hour"), True

    def tidy(self) -> None:
        """Remove old questions. ``put`` does that, too."""
        moment = self._clock()
        self._forget(row.name for row in self.rows() if is_old(row, moment, ROOM))

    def listen(self, role: str = "") -> Bell:
        """Return a bell that rings at each new question and each answer. Close it. ``role``: a word for listeners that
        may answer."""
        with suppress(OSError):  # no question can be put there either; a bell that cannot be made has no descriptor
            os.makedirs(self._path, mode=0o700, exist_ok=True)
        return Bell(self._bells, role)

    def listeners(self) -> frozenset[str]:
        """Return the roles of the listeners that may answer. If empty, no listener would see a question before it
        expires."""
        return listeners(self._bells)

    def moment(self) -> Moment:
        return self._clock()

    # --- for both ---

    def end(
        self,
        name: str,
        state: State,
        reason: str,
        by: str = "nobody",
        keep: bool = False,
        rule: str = "",
        *,
        hour: bool = False,
    ) -> tuple[QueueDecision, bool]:
        """Decide a question as ``decide`` does, with any state."""
        by, reason = storable_text(by), storable_text(reason[:2000])
        decision = QueueDecision(FORMAT, state, self._clock(), by, reason, keep, rule, hour)
        try:
            if disk.decide(self._place(name), decision):
                ring(self._bells)
                return decision, True
        except FileNotFoundError:
            raise UsageError(f"the question {name} is not there any more", _LIST) from None
        except OSError as error:
            raise MudroomError(f"the answer to {name} cannot be written: {error.strerror}", "it still waits") from error
        earlier = self.decision(name)
        if earlier is None:
            raise UsageError(f"the question {name} is not there any more", _LIST)
        return earlier, False

    def decision(self, name: str) -> QueueDecision | None:
        return disk.decision_at(self._place(name))

    def use(self, name: str) -> None:
        """Use up the decision. Only for the process that waits for the question. Raise MudroomError."""
        try:
            used = disk.use(self._place(name))
        except OSError as error:
            raise MudroomError(f"the answer to {name} cannot be marked as used: {error.strerror}") from error
        if not used:
            raise MudroomError(f"the answer to {name} has been used already")

    def _place(self, name: str) -> bytes:
        return self._path + b"/" + name.encode()

    def _rows(self, moment: Moment) -> list[QueueRow]:
        rows = [row for name in self._names() if (row := disk.row_at(self._place(name))) is not None]
        return sorted(rows, key=lambda row: (-age(row.asked.when, moment), row.asked.when.time, row.name))

    def _names(self) -> list[str]:
        try:
            return [name for name in map(os.fsdecode, os.listdir(self._path)) if _is_name(name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise MudroomError(f"the questions in {show(self._path)} cannot be read: {error.strerror}") from error

    def _require_own(self) -> None:
        """Raise MudroomError if the queue belongs to another user, whose commands this user must not allow."""
        try:
            owner = os.stat(self._path).st_uid
        except FileNotFoundError:
            return
        except PermissionError:
            owner = -1
        if owner != current_user():
            raise MudroomError(f"the questions in {show(self._path)} are another user's", "only that user answers them")

    # --- room ---

    def _make_room(self, rows: list[QueueRow], moment: Moment) -> None:
        """Make room for a question. Raise MudroomError if too many questions wait."""
        try:
            gone = questions_to_delete(rows, moment, ROOM)
        except ValueError as error:
            raise MudroomError(str(error), "answer some of them: mudroom approve") from None
        self._forget(gone)
        self._sweep(moment, {row.name for row in rows})

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            waiter_lock = self._become_waiter(name)
            if waiter_lock is not None:
                disk.remove(self._place(name))
                waiter_lock.end()

    def _sweep(self, moment: Moment, known: set[str]) -> None:
        """Remove unreadable questions, and files left by a process that was killed while putting a question."""
        if not os.path.isdir(self._path):
            return
        with os.scandir(self._path) as scan:
            strange = [item for item in scan if os.fsdecode(item.name) not in known and item.name != b"bells"]
        clock = clock_at(os.path.dirname(self._path), moment)
        for item in strange:
            kept = _ASIDE if item.name.startswith(disk.ASIDE) else ROOM.kept
            try:
                written = item.stat(follow_symlinks=False).st_mtime_ns
            except FileNotFoundError:
                continue
            if written < horizon(clock, int(kept * SECOND)):
                disk.remove(item.path)


class Ticket(Closing):
    """A question in the queue, and the right to use its answer once. Close it.

    Owner: the thread that waits for the answer.
    """

    def __init__(self, queue: Queue, asked: QueuedQuestionRecord, waiter_lock: WaiterLock) -> None:
        self._queue, self.asked, self._waiter_lock = queue, asked, waiter_lock
        self._bell: Bell | None = None

    def close(self) -> None:
        """Stop waiting. An unanswered question stays in the queue."""
        if self._bell is not None:
            self._bell.close()
            self._bell = None
        self._waiter_lock.end()

    def fileno(self) -> int:
        """Return a descriptor that is readable when it is time to ``look``, or -1: then look every ``LOOK`` seconds."""
        if self._bell is None:
            self._bell = self._queue.listen()
        return self._bell.fileno()

    def look(self) -> QueueDecision | None:
        """Return the decision and use it up; None if there is none yet.

        Raise MudroomError if it cannot be read or used: then nothing is allowed.
        """
        if self._bell is not None:
            self._bell.clear()
        decision = self._queue.decision(self.asked.name)
        if decision is not None:
            self._queue.use(self.asked.name)
        return decision

    def end(
        self,
        state: State,
        reason: str = "",
        by: str = "nobody",
        keep: bool = False,
        rule: str = "",
        *,
        hour: bool = False,
    ) -> tuple[QueueDecision, bool]:
        """End the question and use up the decision. Return the decision, and whether this call made it: another process
        may have decided before."""
        decision, ours = self._queue.end(self.asked.name, state, reason, by, keep, rule, hour=hour)
        self._queue.use(self.asked.name)
        return decision, ours

    def pause(self, seconds: float, over: int) -> bool:
        """Wait for a change in the queue, at most ``seconds``. Return whether the descriptor ``over`` is readable; -1:
        no descriptor."""
        watched = [descriptor for descriptor in (self.fileno(), over) if descriptor >= 0]
        return over in wait(watched, seconds)

    def wait(self, patience: float, over: int = -1) -> QueueDecision:
        """Wait for the decision, at most ``patience`` seconds. Return it and use it up.

        The question expires after that time, and is withdrawn as soon as ``over`` is readable. Raise MudroomError as
        ``look`` does.
        """
        until = time.monotonic() + patience
        try:
            while (decision := self.look()) is None:
                left = until - time.monotonic()
                if left <= 0:
                    return self.end("expired", f"nobody has answered in {patience:g} s")[0]
                if self.pause(min(left, LOOK), over):
                    return self.end("withdrawn", "nobody waits for the answer any more")[0]
        except KeyboardInterrupt:
            self.end("withdrawn", "interrupted")
            raise
        return decision


def _is_name(name: str) -> bool:
    return name.isascii() and name.isalnum() and name != "bells" and len(name) < 64
