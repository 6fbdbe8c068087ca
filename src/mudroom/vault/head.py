"""The last event of a journal, kept beside its database: by this it is found that the end was cut off.

Two lines of fixed length, ``NUMBER DIGEST NUMBER``, of which the one with the greater number counts. After each commit
the other one is written over, without fsync: one that is torn is known by its two numbers, and what was before still
counts. So the head may lag behind the database, when mudroom is killed or has no room between the two, and is never
ahead of it; only a machine that loses power may lose the database's last events and not this.
"""

from __future__ import annotations

import os

from mudroom.core.event import Head

_LENGTH = 20 + 1 + 64 + 1 + 20 + 1


class KeptHead:
    def __init__(self, path: bytes) -> None:
        self._path = path
        self._descriptor = -1

    def read(self) -> Head | None:
        """None if there is none, or what is there is none."""
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                return None
        return max((head for head in self._both() if head is not None), default=None)

    def write(self, head: Head) -> None:
        """Raises OSError as the disk does."""
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        first, second = self._both()
        at = _LENGTH if first is not None and (second is None or second.number < first.number) else 0
        line = b"%020d %s %020d\n" % (head.number, head.digest.encode("ascii"), head.number)
        while line:
            done = os.pwrite(self._descriptor, line, at)
            line, at = line[done:], at + done

    def _both(self) -> tuple[Head | None, Head | None]:
        raw = os.pread(self._descriptor, 2 * _LENGTH, 0)
        return _read(raw[:_LENGTH]), _read(raw[_LENGTH:])

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _read(line: bytes) -> Head | None:
    words = line.split(b" ")
    if len(line) != _LENGTH or len(words) != 3 or len(words[1]) != 64 or words[0] + b"\n" != words[2]:
        return None
    return Head(int(words[0]), words[1].decode("ascii", "replace")) if words[0].isdigit() else None
