"""A credential store that is one file, the same on both sides although the host has replaced it.

What a file is mounted on shows the inode that was there then (mount_namespaces(7)), so a program of the host that
writes a token as a new file and a rename leaves a running command with the old one. The old one is held open here, and
from then on what the one side writes the other is given: into the old inode in place, which is what the command sees;
on the host by a new file and a rename, so that nobody there ever reads half of it.

Rules of this file: nothing is followed and nothing is made that is not there; what is no regular file of the user's, or
is large, is left alone. Of the command's side only what has been the same for a moment is taken, and never an empty
file: a program may be in the middle of writing. When both have changed the host's counts.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mudroom.core.confinement.spec import Bind

SETTLED = 0.08
"""Seconds for which the command has not written: less than there is between two looks."""
LIMIT = 16 << 20
"""Bytes: no store of credentials has more."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BOTH = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Stamp = tuple[int, int, int, int]
_UNKNOWN: Stamp = (0, 0, 0, 0)


class MirroredFile(NamedTuple):
    """Both sides when they were last the same."""

    host: Stamp
    command: Stamp


def mirror_of(live: Iterable[Bind]) -> Mirror | None:
    """None if no store is one file."""
    paths = [bind.source for bind in live if bind.writable and os.path.isfile(bind.source)]
    return Mirror(paths) if paths else None


class Mirror:
    """Beside one command: to be made before it starts, and closed when it has ended."""

    def __init__(self, paths: Iterable[bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._held: dict[bytes, int] = {}
        self._known: dict[bytes, MirroredFile] = {}
        self._settling: dict[bytes, tuple[Stamp, float]] = {}
        """What the command's side has become, and when that was first seen."""
        self._clock = clock
        for path in paths:
            try:
                self._held[path] = os.open(path, _BOTH)
            except OSError:
                continue  # gone, or not to be written by us: nor by the command

    def look(self) -> None:
        """Every now and then while the command runs."""
        for path, held in self._held.items():
            self._look(path, held, over=False)

    def close(self) -> None:
        """With a last look: what the command has written is whole now."""
        for path, held in self._held.items():
            self._look(path, held, over=True)
            os.close(held)
        self._held.clear()

    def _look(self, path: bytes, held: int, *, over: bool) -> None:
        try:
            host = os.stat(path, follow_symlinks=False)
            own = os.fstat(held)
            if (host.st_dev, host.st_ino) == (own.st_dev, own.st_ino):
                self._known.pop(path, None)
            elif stat.S_ISREG(host.st_mode) and host.st_uid == os.geteuid() and host.st_size <= LIMIT:
                self._bring(path, held, host, own, over)
        except OSError:
            pass  # gone, or in the middle of being replaced: the next look will tell

    def _bring(self, path: bytes, held: int, host: os.stat_result, own: os.stat_result, over: bool) -> None:
        known = self._known.get(path)
        if known is None or known.host != _stamp(host):
            data = _content(path)
            _fill(held, data)
            same = os.pread(held, LIMIT, 0) == data  # else the command has written meanwhile, which is to be seen
            self._known[path] = MirroredFile(_stamp(host), _stamp(os.fstat(held)) if same else _UNKNOWN)
        elif known.command == _stamp(own) or own.st_size == 0 or own.st_size > LIMIT:
            return
        elif over or self._is_settled(path, _stamp(own)):
            written = _replace(path, os.pread(held, LIMIT, 0), stat.S_IMODE(host.st_mode))
            self._known[path] = MirroredFile(written, _stamp(own))

    def _is_settled(self, path: bytes, stamp: Stamp) -> bool:
        now = self._clock()
        last, since = self._settling.get(path, (_UNKNOWN, now))
        if last != stamp:
            self._settling[path] = (stamp, now)
        return last == stamp and now - since >= SETTLED


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _content(path: bytes) -> bytes:
    descriptor = os.open(path, _READ)
    try:
        return os.read(descriptor, LIMIT)
    finally:
        os.close(descriptor)


def _fill(descriptor: int, data: bytes) -> None:
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))


def _replace(path: bytes, data: bytes, mode: int) -> Stamp:
    """Returns the stamp of what was written, whatever is at the path by then."""
    beside = path + b".mudroom-%s" % os.urandom(4).hex().encode()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, data)
        os.fchmod(descriptor, mode)
        os.rename(beside, path)
        return _stamp(os.fstat(descriptor))
    except BaseException:
        os.unlink(beside)
        raise
    finally:
        os.close(descriptor)
