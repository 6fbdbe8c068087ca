"""Keeps a mounted single-file credential store equal on both sides after the host has replaced it. Elsewhere the
command has a copy (``login.py``).

A mount on a file shows the inode that was there at the time (mount_namespaces(7)). So a host program that writes a
token by a new file and a rename leaves a running command with the old inode. The mirror holds the old inode open and
from then on copies changes between both sides: into the old inode in place, which the command sees; on the host by a
new file and a rename, so no host program ever reads half a file.

Rules of this file:
1. No symlink is followed and no missing file is created. Files that are not regular, not the user's or too large are
   left alone.
2. The command's side is copied only after it has been unchanged for a moment, and never when it is empty: a program may
   be in the middle of writing.
3. When both sides have changed, the host's wins.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable

from mudroom.core.confinement.spec import Bind
from mudroom.typing import NamedTuple

SETTLED = 0.08
"""Seconds without a write by the command: less than the time between two looks."""
LIMIT = 16 << 20
"""Bytes: no credential store is larger."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BOTH = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Stamp = tuple[int, int, int, int]
_UNKNOWN: Stamp = (0, 0, 0, 0)


class MirroredFile(NamedTuple):
    """Both sides' stat stamps when they were last equal."""

    host: Stamp
    command: Stamp


def mirror_of(live: Iterable[Bind]) -> Mirror | None:
    """Return a mirror for the writable single-file stores, or None if there are none."""
    paths = [bind.source for bind in live if bind.writable and os.path.isfile(bind.source)]
    return Mirror(paths) if paths else None


class Mirror:
    """One command's mirror: made before the command starts, closed when it has ended."""

    def __init__(self, paths: Iterable[bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._held: dict[bytes, int] = {}
        self._synced: dict[bytes, MirroredFile] = {}
        self._settling: dict[bytes, tuple[Stamp, float]] = {}
        """The command side's stamp after a change, and when it was first seen."""
        self._clock = clock
        for path in paths:
            try:
                self._held[path] = os.open(path, _BOTH)
            except OSError:
                continue  # gone, or not writable: not for the command either

    def look(self) -> None:
        """Copy changes; to be called now and then while the command runs."""
        for path, held in self._held.items():
            self._check(path, held, is_final=False)

    def close(self) -> None:
        """Copy changes a last time and close: the command's writes are complete now."""
        for path, held in self._held.items():
            self._check(path, held, is_final=True)
            os.close(held)
        self._held.clear()

    def _check(self, path: bytes, held: int, *, is_final: bool) -> None:
        try:
            host = os.stat(path, follow_symlinks=False)
            own = os.fstat(held)
            if (host.st_dev, host.st_ino) == (own.st_dev, own.st_ino):
                self._synced.pop(path, None)
            elif stat.S_ISREG(host.st_mode) and host.st_uid == os.geteuid() and host.st_size <= LIMIT:
                self._copy(path, held, host, own, is_final)
        except OSError:
            pass  # gone, or in the middle of being replaced: the next look will see it

    def _copy(self, path: bytes, held: int, host: os.stat_result, own: os.stat_result, is_final: bool) -> None:
        synced = self._synced.get(path)
        if synced is None or synced.host != _stamp(host):
            data = _read_file(path)
            _overwrite(held, data)
            # Not the same if the command has written meanwhile; that write must be noticed.
            same = os.pread(held, LIMIT, 0) == data
            self._synced[path] = MirroredFile(_stamp(host), _stamp(os.fstat(held)) if same else _UNKNOWN)
        elif synced.command == _stamp(own) or own.st_size == 0 or own.st_size > LIMIT:
            return
        elif is_final or self._is_settled(path, _stamp(own)):
            written = _replace(path, os.pread(held, LIMIT, 0), stat.S_IMODE(host.st_mode))
            self._synced[path] = MirroredFile(written, _stamp(own))

    def _is_settled(self, path: bytes, stamp: Stamp) -> bool:
        now = self._clock()
        last, since = self._settling.get(path, (_UNKNOWN, now))
        if last != stamp:
            self._settling[path] = (stamp, now)
        return last == stamp and now - since >= SETTLED


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _read_file(path: bytes) -> bytes:
    descriptor = os.open(path, _READ)
    try:
        return os.read(descriptor, LIMIT)
    finally:
        os.close(descriptor)


def _overwrite(descriptor: int, data: bytes) -> None:
    done = 0
    while done < len(data):  # on a disk that becomes full the kernel writes a part
        done += os.pwrite(descriptor, data[done:], done)
    if os.fstat(descriptor).st_size > len(data):  # a command that saw the data may have written less already
        os.ftruncate(descriptor, len(data))


def _replace(path: bytes, data: bytes, mode: int) -> Stamp:
    """Replace the file by a rename. Return the written file's stamp, even if another file is at the path by then."""
    temporary = path + b".mudroom-%s" % os.urandom(4).hex().encode()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(os.dup(descriptor), "wb") as stream:
            stream.write(data)  # all of it, or an error: on a disk that becomes full write(2) writes a part
        os.fchmod(descriptor, mode)
        os.rename(temporary, path)
        return _stamp(os.fstat(descriptor))
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
