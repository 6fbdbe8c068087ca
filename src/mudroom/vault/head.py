"""The last event of a journal, kept beside its database: by this it is found that the end was cut off.

One line of fixed length, ``NUMBER DIGEST``, written over after each commit by one pwrite(2), without fsync: it may lag
behind the database when mudroom is killed between the two, never be ahead of it; only a machine that loses power may
lose the database's last events and not this.
"""

from __future__ import annotations

import os

from mudroom.core.event import Head

_LENGTH = 20 + 1 + 64 + 1


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
        words = os.pread(self._descriptor, _LENGTH + 1, 0).split(b" ")
        if len(words) != 2 or len(words[0]) != 20 or len(words[1]) != 65 or not words[0].isdigit():
            return None
        return Head(int(words[0]), words[1][:-1].decode("ascii", "replace"))

    def write(self, head: Head) -> None:
        """Raises OSError as the disk does."""
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        line, done = b"%020d %s\n" % (head.number, head.digest.encode("ascii")), 0
        while done < len(line):
            done += os.pwrite(self._descriptor, line[done:], done)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
