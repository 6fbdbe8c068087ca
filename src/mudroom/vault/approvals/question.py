"""One question on disk, and its one decision.

    approvals/<id>/question     MessagePack of core/approval_queue.py:QueuedQuestionRecord; never changed
                   waiter       flock(2): held by the process that waits, with its "PID START"
                   decided      MessagePack of QueueDecision; never changed once it exists
                   used         hard link to ``decided``: the decision has been used

Rules of this file:

1. A question has one decision. A process that decides writes a file aside and names it by link(2), which only one
   process can do. A second process is told the first decision.
2. A decision is used once: the process that holds ``waiter`` marks it as used, again by link(2).
3. A question exists completely or not at all: its directory is filled under another name, then renamed.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TypeVar

import msgspec

from mudroom.core.approval_queue import QueueDecision, QueuedQuestionRecord, QueueRow
from mudroom.core.system.process import started
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import disk
from mudroom.vault.lock import LOCK_EX, LOCK_NB, flock
from mudroom.vault.sync import sync_directory

FORMAT = 2
"""Format 1 lacked the terms on which the command would run. Such a question cannot be answered and is put again."""
ASIDE = b"aside-"
"""Name prefix of incomplete or removed files."""


class WaiterLock:
    """The lock held by the process that waits for a question; released when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def end(self) -> None:
        if self._descriptor >= 0:
            try:
                os.ftruncate(self._descriptor, 0)  # the process may live on without waiting
            finally:
                os.close(self._descriptor)
                self._descriptor = -1


def become_waiter(place: bytes) -> WaiterLock | None:
    """Become the process that waits for a question. Return None if another process waits. Raise OSError."""
    descriptor = disk.open_path(place + b"/waiter", os.O_RDWR | os.O_CREAT | disk.O_NOFOLLOW | disk.O_CLOEXEC, 0o600)
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
        if os.fstat(descriptor).st_nlink == 0:  # removed between the open and the lock
            raise FileNotFoundError(place)
        os.ftruncate(descriptor, 0)
        disk.pwrite(descriptor, b"%d %d" % (os.getpid(), started(os.getpid())), 0)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return WaiterLock(descriptor)


def create(place: bytes, asked: QueuedQuestionRecord) -> WaiterLock | None:
    """Put a question at ``place`` and wait for it. Return None if the place is taken.

    Raise OSError; then no question was put.
    """
    aside, waiter_lock = _aside(place), None
    try:
        os.mkdir(aside, 0o700)
        _write(aside + b"/question", msgspec.msgpack.encode(asked))
        waiter_lock = become_waiter(aside)
        sync_directory(aside)
        disk.rename_path(aside, place)  # rename(2) does not replace a directory that is not empty
        return waiter_lock
    except BaseException as error:
        if waiter_lock is not None:
            waiter_lock.end()
        remove(aside)
        if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return None
        raise


def decide(place: bytes, decision: QueueDecision) -> bool:
    """Decide a question, durably. Return False if it was already decided.

    Raise OSError if it was not decided; FileNotFoundError if the question does not exist.
    """
    aside = _aside(place + b"/decided")
    try:
        _write(aside, msgspec.msgpack.encode(decision))
        # link(2) fails if the name exists, so only one process decides
        os.link(aside, place + b"/decided")
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            os.unlink(aside)
    sync_directory(place)
    return True


def use(place: bytes) -> bool:
    """Mark the decision as used, durably. Return False if it was already used. Only for the process that waits. Raise
    OSError."""
    try:
        os.link(place + b"/decided", place + b"/used")
    except FileExistsError:
        return False
    sync_directory(place)
    return True


def is_used(place: bytes) -> bool:
    return os.path.lexists(place + b"/used")


def decision_at(place: bytes) -> QueueDecision | None:
    """Return the decision, or None. Raise MudroomError if it cannot be read: then it does not count as an answer."""
    path = place + b"/decided"
    try:
        with open(path, "rb") as stream:
            decision = _decode(stream.read(), QueueDecision)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if decision is None or decision.format != FORMAT:
        raise MudroomError(f"{show(path)} is damaged, or of another version of mudroom")
    return decision


def row_at(place: bytes) -> QueueRow | None:
    """Return a question with its state, or None if it is missing or unreadable: then it can be neither answered nor
    used."""
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
    """Remove a question. It is renamed first, so that no process finds it without its mark ``used``.

    Raises no exception: the next removal takes files that remain.
    """
    aside = _aside(place)
    with suppress(OSError):
        disk.rename_path(place, aside)
        for name in os.listdir(aside):
            os.unlink(aside + b"/" + name)
        os.rmdir(aside)


def _aside(place: bytes) -> bytes:
    return os.path.dirname(place) + b"/" + ASIDE + os.urandom(8).hex().encode()


_Record = TypeVar("_Record", QueuedQuestionRecord, QueueDecision)


def _decode(data: bytes, kind: type[_Record]) -> _Record | None:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _write(path: bytes, data: bytes) -> None:
    """Write a new file, durably."""
    descriptor = disk.open_path(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)


def _waiter(place: bytes) -> int:
    """Return the process id of the waiter, or 0."""
    try:
        with open(place + b"/waiter", "rb") as stream:
            pid, since = map(int, stream.read(64).split())
    except (OSError, ValueError):
        return 0
    return pid if since and started(pid) == since else 0
