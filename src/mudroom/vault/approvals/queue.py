"""The queue of questions: what waits for somebody to allow it, and what was decided (``vault/approvals/question.py``).

Rules of this file:
1. No lock of the vault is needed, and nobody is waited for: a user's command may have the vault alone meanwhile.
2. Only a question with the very same fingerprint, of the same fork and agent, gets an answer that was given when nobody
   waited, and only one of them does.
3. What is here is bounded (``core/approval_queue.py:Room``), and it goes with time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from mudroom.core.approval.approval import CommandQuestion, HostQuestion, difference, is_same
from mudroom.core.approval_queue import (
    VALIDITY,
    Moment,
    QueueDecision,
    QueuedQuestionRecord,
    QueueRow,
    Room,
    State,
    elapsed,
    is_old,
    questions_to_delete,
    storable,
    storable_text,
)
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.vault.approvals import question as disk
from mudroom.vault.approvals.bell import Bell, listeners, ring
from mudroom.vault.approvals.question import FORMAT, Attendance
from mudroom.vault.approvals.ticket import Ticket
from mudroom.vault.record import sync_directory

ROOM = Room()
LARGEST = ROOM.largest
"""Bytes of the words of one command."""
_GONE = "nobody waited for it any more"
_LIST = "mudroom approve lists what waits"


def now() -> Moment:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:  # random(4)
        boot = stream.read().strip()
    return Moment(time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME), boot)


class Queue:
    """Of one vault. Nothing is open between two calls; any number of processes may use it at once."""

    def __init__(
        self,
        vault: bytes,
        clock: Callable[[], Moment] = now,
        new_id: Callable[[], str] = lambda: os.urandom(3).hex(),
    ) -> None:
        self._path, self._clock, self._new_id = vault + b"/approvals", clock, new_id
        self._bells = self._path + b"/bells"

    # --- those who ask ---

    def put(self, question: CommandQuestion | HostQuestion, patience: float, validity: float = VALIDITY) -> Ticket:
        """Ask: goes on with the same question if it waits unattended, or has an answer that nobody has used, given in
        the last ``validity`` seconds; else it is put anew. To be closed. Raises MudroomError, and nothing waits."""
        moment, question = self._clock(), storable(question)
        rows = self._rows()
        try:
            for row in reversed(rows):
                if not row.used and is_same(row.asked.question, question):
                    ticket = self._resume(row, moment, validity)
                    if ticket is not None:
                        return ticket
            note = self._superseded(rows, question)
            self._make_room(rows, moment)
            return self._new(question, patience, note, moment)
        except OSError as error:
            raise MudroomError(f"the question cannot be put into the queue: {error.strerror}") from error

    def _resume(self, row: QueueRow, moment: Moment, validity: float) -> Ticket | None:
        attendance = self._attend(row.name)
        if attendance is None:
            return None
        ticket = None
        try:
            if self._counts(row, moment, validity):
                ticket = Ticket(self, row.asked, attendance)
        finally:
            if ticket is None:
                attendance.end()
        return ticket

    def _counts(self, row: QueueRow, moment: Moment, validity: float) -> bool:
        """Whether a question that we attend goes on, or its answer is still to be used."""
        decision = self.decision(row.name)
        if decision is None:
            if elapsed(row.asked.when, moment) <= ROOM.unanswered:
                return True
            self.end(row.name, "expired", _GONE)
            return False
        if decision.state not in ("allowed", "denied") or elapsed(decision.when, moment) > validity:
            return False
        return not disk.is_used(self._place(row.name))

    def _superseded(self, rows: list[QueueRow], question: CommandQuestion | HostQuestion) -> str:
        """What has changed since the same command was last asked about; the question of then is withdrawn."""
        if not isinstance(question, CommandQuestion):
            return ""
        for row in reversed(rows):
            before = row.asked.command
            if before is None or before.fingerprint == question.fingerprint:
                continue
            why = difference(before, question)
            if why:
                self._withdraw(row, f"asked anew: {why}")
                return f"{why} since question {row.name} ({'not answered' if row.decision is None else row.state})"
        return ""

    def _withdraw(self, row: QueueRow, reason: str) -> None:
        if row.decision is None and (attendance := self._attend(row.name)) is not None:
            self.end(row.name, "withdrawn", reason)
            attendance.end()

    def _new(self, question: CommandQuestion | HostQuestion, patience: float, note: str, moment: Moment) -> Ticket:
        """Raises OSError and MudroomError."""
        command, host = (question, None) if isinstance(question, CommandQuestion) else (None, question)
        size = sum(map(len, command.command)) if command is not None else 0
        if size > LARGEST:
            raise MudroomError(f"the command has {size:,} bytes, more than the {LARGEST:,} that can be asked about")
        os.makedirs(self._path, mode=0o700, exist_ok=True)
        for _attempt in range(100):
            asked = QueuedQuestionRecord(FORMAT, self._new_id(), moment, patience, note, command, host)
            attendance = disk.create(self._place(asked.name), asked)
            if attendance is not None:
                try:
                    sync_directory(self._path)
                except OSError:
                    disk.remove(self._place(asked.name))
                    attendance.end()
                    raise
                ring(self._bells)
                return Ticket(self, asked, attendance)
        raise MudroomError("no name was found for the question")

    def _attend(self, name: str) -> Attendance | None:
        """Be the one who waits for it; None if another process is, or it cannot be."""
        try:
            return disk.attend(self._place(name))
        except OSError:  # it has just been removed, or nothing can be written: no answer could be used
            return None

    # --- those who answer ---

    def rows(self) -> list[QueueRow]:
        """All that is known, oldest first. One that cannot be read is left out. Raises MudroomError."""
        self._require_own()
        return self._rows()

    def row(self, name: str) -> QueueRow:
        """Raises UsageError if there is none of that name, MudroomError."""
        self._require_own()
        row = disk.row_at(self._place(name)) if _is_name(name) else None
        if row is None:
            raise UsageError(f"there is no question {show(name.encode('utf-8', 'surrogateescape'))}", _LIST)
        return row

    def decide(
        self, name: str, *, allow: bool, by: str, reason: str = "", keep: bool = False
    ) -> tuple[QueueDecision, bool]:
        """Answer a question: how it has ended, and whether that was us; False: somebody else was before. Raises
        UsageError if there is none of that name; MudroomError if the answer cannot be written: it still waits then."""
        row = self.row(name)
        if row.decision is not None:
            return row.decision, False
        if not row.waiter and elapsed(row.asked.when, self._clock()) > ROOM.unanswered:
            return self.end(name, "expired", _GONE)
        return self.end(name, "allowed" if allow else "denied", reason, by, keep)

    def tidy(self) -> None:
        """What is old goes; who puts a question does that, too."""
        moment = self._clock()
        self._forget(row.name for row in self.rows() if is_old(row, moment, ROOM))

    def listen(self, who: str = "") -> Bell:
        """Rung at each new question and each answer. To be closed. ``who``: those who may answer say so, in a word."""
        try:
            os.makedirs(self._path, mode=0o700, exist_ok=True)
        except OSError:
            pass  # nobody can ask anything there either; a bell that cannot be made says so itself
        return Bell(self._bells, who)

    def listeners(self) -> frozenset[str]:
        """Who listens now and may answer; empty: a question would be seen by nobody before its time is over."""
        return listeners(self._bells)

    def moment(self) -> Moment:
        return self._clock()

    # --- for both ---

    def end(
        self, name: str, state: State, reason: str, by: str = "nobody", keep: bool = False
    ) -> tuple[QueueDecision, bool]:
        """As ``decide``, in any way."""
        decision = QueueDecision(FORMAT, state, self._clock(), storable_text(by), storable_text(reason[:2000]), keep)
        try:
            if disk.decide(self._place(name), decision):
                ring(self._bells)
                return decision, True
        except FileNotFoundError:
            raise UsageError(f"the question {name} is not there any more", _LIST) from None
        except OSError as error:
            raise MudroomError(f"the answer to {name} cannot be written: {error.strerror}", "it still waits") from error
        found = self.decision(name)
        if found is None:
            raise UsageError(f"the question {name} is not there any more", _LIST)
        return found, False

    def decision(self, name: str) -> QueueDecision | None:
        return disk.decision_at(self._place(name))

    def use(self, name: str) -> None:
        """What was decided counts now, and never again. For the one who attends. Raises MudroomError."""
        try:
            used = disk.use(self._place(name))
        except OSError as error:
            raise MudroomError(f"the answer to {name} cannot be marked as used: {error.strerror}") from error
        if not used:
            raise MudroomError(f"the answer to {name} has been used already")

    def _place(self, name: str) -> bytes:
        return self._path + b"/" + name.encode()

    def _rows(self) -> list[QueueRow]:
        found = [row for name in self._names() if (row := disk.row_at(self._place(name))) is not None]
        return sorted(found, key=lambda row: (row.asked.when.time, row.name))

    def _names(self) -> list[str]:
        try:
            return [name for name in map(os.fsdecode, os.listdir(self._path)) if _is_name(name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise MudroomError(f"the questions in {show(self._path)} cannot be read: {error.strerror}") from error

    def _require_own(self) -> None:
        """Raises MudroomError if it is another user's, whose commands are not ours to allow."""
        try:
            owner = os.stat(self._path).st_uid
        except FileNotFoundError:
            return
        except PermissionError:
            owner = -1
        if owner != os.geteuid():
            raise MudroomError(f"the questions in {show(self._path)} are another user's", "only that user answers them")

    # --- room ---

    def _make_room(self, rows: list[QueueRow], moment: Moment) -> None:
        """Raises MudroomError if so many wait that there is no room."""
        try:
            gone = questions_to_delete(rows, moment, ROOM)
        except ValueError as error:
            raise MudroomError(str(error), "answer some of them: mudroom approve") from None
        self._forget(gone)
        self._sweep(moment, {row.name for row in rows})

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            attendance = self._attend(name)
            if attendance is not None:
                disk.remove(self._place(name))
                attendance.end()

    def _sweep(self, moment: Moment, known: set[str]) -> None:
        """What a process left that was killed while it put a question, and what cannot be read."""
        if not os.path.isdir(self._path):
            return
        with os.scandir(self._path) as scan:
            strange = [item for item in scan if os.fsdecode(item.name) not in known and item.name != b"bells"]
        for item in strange:
            try:
                age = moment.time - item.stat(follow_symlinks=False).st_mtime_ns
            except FileNotFoundError:
                continue
            if age > (3600 if item.name.startswith(disk.ASIDE) else ROOM.kept) * 10**9:
                disk.remove(item.path)


def _is_name(name: str) -> bool:
    return name.isascii() and name.isalnum() and name != "bells" and len(name) < 64
