"""One question on disk, and its one end.

    approvals/<id>/question     MessagePack of core/approval_queue.py:Asked; never changed
                   waiter       flock(2): held by the process that waits, with its "PID START"
                   decided      MessagePack of Decision; once it is there it never changes
                   used         the same file, by another name: what was decided has been heeded

Rules of this file:
1. A question has one end. Whoever decides writes a file aside and gives it its name by link(2), of which one succeeds:
   the second to decide is told what the first has said.
2. An answer counts once: it is marked as used, by link(2) again, by the one who holds ``waiter``.
3. A question is there whole or not at all: its directory is filled under another name, then renamed.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TypeVar

import msgspec

from mudroom.core.approval_queue import QueueDecision, QueuedQuestionRecord, QueueRow
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.vault.record import sync_directory

FORMAT = 2
"""1: without the terms on which the command would run. Such a question cannot be answered: it is put anew."""
ASIDE = b"aside-"
"""Names that begin so are of nothing that is whole."""


class Attendance:
    """Being the one who waits for a question; dies with the process. ``None`` from ``attend`` if another one is."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def end(self) -> None:
        if self._descriptor >= 0:
            try:
                os.ftruncate(self._descriptor, 0)  # it may live on, and nobody waits any more
            finally:
                os.close(self._descriptor)
                self._descriptor = -1


def attend(place: bytes) -> Attendance | None:
    """Raises OSError."""
    descriptor = os.open(place + b"/waiter", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink == 0:  # it has been removed meanwhile
            raise FileNotFoundError(place)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d %d" % (os.getpid(), _started(os.getpid())), 0)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return Attendance(descriptor)


def create(place: bytes, asked: QueuedQuestionRecord) -> Attendance | None:
    """Put a question at ``place``, with oneself as the one who waits; None if there is one already. Raises OSError, and
    nothing is there."""
    aside, attendance = _aside(place), None
    try:
        os.mkdir(aside, 0o700)
        _write(aside + b"/question", msgspec.msgpack.encode(asked))
        attendance = attend(aside)
        sync_directory(aside)
        os.rename(aside, place)  # a directory that has something in it is not replaced (rename(2))
        return attendance
    except BaseException as error:
        if attendance is not None:
            attendance.end()
        remove(aside)
        if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return None
        raise


def decide(place: bytes, decision: QueueDecision) -> bool:
    """Whether this is how it ends; False: it has ended already. Durable when it returns. Raises OSError, and nothing
    is decided; FileNotFoundError if there is no such question."""
    aside = _aside(place + b"/decided")
    try:
        _write(aside, msgspec.msgpack.encode(decision))
        os.link(aside, place + b"/decided")
    except FileExistsError:
        return False
    finally:
        _unlink(aside)
    sync_directory(place)
    return True


def use(place: bytes) -> bool:
    """Whether what was decided counts for the caller, who attends. Durable when it returns. Raises OSError."""
    try:
        os.link(place + b"/decided", place + b"/used")
    except FileExistsError:
        return False
    sync_directory(place)
    return True


def is_used(place: bytes) -> bool:
    return os.path.lexists(place + b"/used")


def decision_at(place: bytes) -> QueueDecision | None:
    """Raises MudroomError if it cannot be read: it is no answer then."""
    path = place + b"/decided"
    try:
        with open(path, "rb") as stream:
            found = _decode(stream.read(), QueueDecision)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if found is None or found.format != FORMAT:
        raise MudroomError(f"{show(path)} is damaged, or of another version of mudroom")
    return found


def row_at(place: bytes) -> QueueRow | None:
    """None if there is none, or it cannot be read: it can be neither answered nor used then."""
    try:
        with open(place + b"/question", "rb") as stream:
            data = stream.read()
        asked, decision = _decode(data, QueuedQuestionRecord), decision_at(place)
    except (FileNotFoundError, NotADirectoryError, MudroomError):
        return None
    if asked is None or asked.format != FORMAT or asked.name.encode() != os.path.basename(place):
        return None
    if (asked.command is None) == (asked.host is None):
        return None
    return QueueRow(asked, decision, _waiter(place) if decision is None else 0, is_used(place), len(data))


def remove(place: bytes) -> None:
    """A question with all its parts: by its name it is gone at once, so that nobody finds it without its mark of being
    used. Nothing is raised: what stays goes the next time."""
    aside = _aside(place)
    try:
        os.rename(place, aside)
        for name in os.listdir(aside):
            os.unlink(aside + b"/" + name)
        os.rmdir(aside)
    except OSError:
        pass


def _aside(place: bytes) -> bytes:
    return os.path.dirname(place) + b"/" + ASIDE + os.urandom(8).hex().encode()


_Record = TypeVar("_Record", QueuedQuestionRecord, QueueDecision)


def _decode(data: bytes, kind: type[_Record]) -> _Record | None:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _write(path: bytes, data: bytes) -> None:
    """A new file, durable."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)


def _unlink(path: bytes) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _started(pid: int) -> int:
    """When a process was started, in ticks since the machine was (proc_pid_stat(5), field 22); 0 if it is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return int(stream.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _waiter(place: bytes) -> int:
    """The process that waits; 0 if it has died, or none ever did."""
    try:
        with open(place + b"/waiter", "rb") as stream:
            pid, started = map(int, stream.read(64).split())
    except (OSError, ValueError):
        return 0
    return pid if started and _started(pid) == started else 0
