"""The number and digest of a journal's last event, kept beside its database to detect a truncated journal.

The file has two lines with fixed length, ``TURN NUMBER DIGEST TURN``; the line with the greater turn counts. After each
commit the other line is overwritten, without fsync. A torn line is recognised by its two different turns, and the
earlier line still counts.

If mudroom is killed or the disk is full between the two writes, the head lags behind the database; it is never ahead.
Only a power loss can remove the database's last events without the head.
"""

from __future__ import annotations

import errno
import os

from mudroom.core.journal.event import ChainHead
from mudroom.stage import disk

_LENGTH = 20 + 1 + 20 + 1 + 64 + 1 + 20 + 1
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_Line = tuple[int, ChainHead]
"""A line's turn and head."""


class KeptHead:
    """The file ``journal.head``. Owner: a ``Journal``, which is used by one thread at a time."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._descriptor = -1

    def read(self) -> ChainHead | None:
        """Return the kept head, or None if it is missing or damaged."""
        if self._descriptor < 0:
            try:
                self._descriptor = disk.open_path(self._path, os.O_RDWR | disk.O_CLOEXEC | disk.O_NOFOLLOW)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise
                return self._read_only()
        return _newest(self._both())

    def _read_only(self) -> ChainHead | None:
        """Return a read-only journal's kept head, such as a backup. The file is not kept open."""
        descriptor = disk.open_path(self._path, os.O_RDONLY | disk.O_CLOEXEC | disk.O_NOFOLLOW)
        try:
            return _newest(_lines(disk.pread(descriptor, 2 * _LENGTH, 0)))
        finally:
            os.close(descriptor)

    def write(self, head: ChainHead) -> None:
        """Write the head. Raise OSError on a disk error."""
        if self._descriptor < 0:
            self._descriptor = disk.open_path(
                self._path, os.O_RDWR | os.O_CREAT | disk.O_CLOEXEC | disk.O_NOFOLLOW, 0o600
            )
        first, second = self._both()
        at = _LENGTH if first is not None and (second is None or second < first) else 0
        turn = max(line[0] if line is not None else 0 for line in (first, second)) + 1
        line = b"%020d %020d %s %020d\n" % (turn, head.number, head.digest.encode("ascii"), turn)
        while line:
            done = disk.pwrite(self._descriptor, line, at)
            line, at = line[done:], at + done

    def _both(self) -> tuple[_Line | None, _Line | None]:
        try:
            return _lines(disk.pread(self._descriptor, 2 * _LENGTH, 0))
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _lines(raw: bytes) -> tuple[_Line | None, _Line | None]:
    return _read(raw[:_LENGTH]), _read(raw[_LENGTH:])


def _newest(lines: tuple[_Line | None, _Line | None]) -> ChainHead | None:
    return max((line for line in lines if line is not None), default=(0, None))[1]


def _read(raw: bytes) -> _Line | None:
    words = raw.split(b" ")
    if len(raw) != _LENGTH or [len(word) for word in words] != [20, 20, 64, 21] or words[0] + b"\n" != words[3]:
        return None
    if not (words[0].isdigit() and words[1].isdigit()):
        return None
    return int(words[0]), ChainHead(int(words[1]), words[2].decode("ascii", "replace"))
