"""A project's two directories for this machine only, and the files in them.

mudroom writes its answers to ``answers`` in its state: in the project they would be in the way of ``git clone URL .``
and other programs that want an empty directory. ``.mudroom/local`` is written by users. What both say holds.

Rules of this file: no symbolic link is followed, and a file that other users could have written is an error: it must
belong to the user (or to root), and no other user may have write permission. Files are replaced, never modified; a
reader sees the old file or the new one. A command in a sandbox may read ``.mudroom/local``, but must not be able to
block a writer by holding a file open.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from mudroom.core.system.closing import Descriptor
from mudroom.core.system.write_lock import is_read_locked, try_write_lock
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.stage import disk
from mudroom.stage.private_directory import answers_directory, require_private

if sys.platform == "win32":
    from mudroom.core.registry import twin

    nt_private = twin("private")

LIMIT = 1 << 20
"""Maximum file size in bytes."""
ROOT = 0
PATIENCE = 10.0
"""Seconds that a writer waits for others. Each needs milliseconds."""
_PAUSE = 0.005
_ELSEWHERE = "replace the link by a real file or directory"


class LocalDirectory:
    """The directory while it is open: ``with LocalDirectory(project) as local``.

    With mudroom's ``state``, the one in the state. ``there`` is False if there is none. With ``write``, the directory
    is created, and other writers wait at most ``PATIENCE`` seconds (the file ``lock``). Raises UsageError, one line
    that names the path, MudroomError if the state cannot be made private.
    """

    def __init__(self, project: bytes, state: bytes | None = None, *, write: bool = False) -> None:
        self.path = project + b"/.mudroom/local" if state is None else answers_directory(project, state)
        self._state, self._write = state, write
        self._descriptor = self._lock = -1

    def __enter__(self) -> LocalDirectory:
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for descriptor in (self._lock, self._descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lock = -1

    @property
    def there(self) -> bool:
        return self._descriptor >= 0

    def shown(self, name: bytes = b"") -> str:
        return show(self.path) + (f"/{show(name)}" if name else "")

    def read(self, name: bytes) -> bytes | None:
        """Return a file's content, or None if it is missing."""
        if not self.there:
            return None
        flags = os.O_RDONLY | disk.O_NOFOLLOW | disk.O_NONBLOCK | disk.O_CLOEXEC  # a FIFO must not block the reader
        try:
            descriptor = disk.open_at(self._descriptor, name, flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._explain(error, name, self._descriptor, self.shown(name)) from error
        return read_open(descriptor, self.shown(name))

    def replace(self, name: bytes, data: bytes) -> None:
        """Replace a file atomically. Durable when it returns."""
        beside = name + b".new"
        with suppress(FileNotFoundError):
            disk.unlink(self._descriptor, beside)  # left by a killed writer: we hold the lock
        self._create(beside, data, 0o600)
        disk.rename(self._descriptor, beside, self._descriptor, name)
        disk.sync(self._descriptor)

    def _open(self) -> None:
        root, outer, inner = self.path.rsplit(b"/", 2)
        if self._write and self._state is not None:
            require_private(root)
        elif not self._write and not os.path.isdir(parent := root + b"/" + outer) and not os.path.islink(parent):
            return
        above = disk.open_path(root, os.O_RDONLY | disk.O_DIRECTORY | disk.O_CLOEXEC)
        shown = show(root)
        for name, mode in ((outer, 0o777 if self._state is None else 0o700), (inner, 0o700)):
            shown += "/" + show(name)
            with Descriptor(above):
                descriptor = self._open_directory(name, mode, above, shown)
            if descriptor < 0:
                return
            above = descriptor
        self._descriptor = above
        _require_own(above, os.fstat(above), shown)
        if self._write:
            self._acquire_lock()

    def _acquire_lock(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            # An fcntl(2) write lock requires a descriptor open for writing, so a process with read access only cannot
            # take it. Such a process can take a read lock, which no writer does; the lock file is then replaced.
            self._lock = self._open_lock(b"lock", os.O_CREAT)
            if try_write_lock(self._lock) and self._is_lock(self._lock):
                return
            if is_read_locked(self._lock) and self._is_lock(self._lock):
                self._new_lock()
            os.close(self._lock)
            self._lock = -1
            if time.monotonic() > until:
                raise UsageError(
                    f"{self.shown(b'lock')} is held by another process", f"run: fuser -v {self.shown(b'lock')}"
                )
            time.sleep(_PAUSE)

    def _new_lock(self) -> None:
        """Replace the lock file; a process that has opened the old one keeps that."""
        beside = b"lock." + os.urandom(8).hex().encode()
        os.close(self._open_lock(beside, os.O_CREAT | os.O_EXCL))
        disk.rename(self._descriptor, beside, self._descriptor, b"lock")

    def _open_lock(self, name: bytes, how: int) -> int:
        flags = os.O_RDWR | disk.O_NOFOLLOW | disk.O_CLOEXEC | how
        try:
            return disk.open_at(self._descriptor, name, flags, 0o600)
        except OSError as error:
            raise self._explain(error, name, self._descriptor, self.shown(name)) from error

    def _is_lock(self, descriptor: int) -> bool:
        """Return whether the descriptor is still the file that other writers open."""
        try:
            current = disk.stat_at(self._descriptor, b"lock")
        except FileNotFoundError:
            return False
        return os.path.samestat(current, os.fstat(descriptor))

    def _open_directory(self, name: bytes, mode: int, above: int, shown: str) -> int:
        """Return a descriptor for the directory ``name``, or -1 if it is missing."""
        try:
            if self._write:
                with suppress(FileExistsError):
                    disk.mkdir(above, name, mode)
            return disk.open_at(above, name, os.O_RDONLY | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise self._explain(error, name, above, shown) from error

    def _explain(self, error: OSError, name: bytes, above: int, shown: str) -> UsageError:
        """Return the error for the user. For a link, open(2) fails with ELOOP (O_NOFOLLOW) or ENOTDIR (with
        O_DIRECTORY); neither names the link."""
        try:
            linked = stat.S_ISLNK(disk.stat_at(above, name).st_mode)
        except OSError:
            linked = False
        if linked:
            return UsageError(f"{shown} is a symbolic link", _ELSEWHERE)
        return UsageError(f"{shown}: {error.strerror}")

    def _create(self, name: bytes, data: bytes, mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC
        with open(disk.open_at(self._descriptor, name, flags, mode), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())


def read_answers(project: bytes, state: bytes | None, name: bytes) -> Iterator[tuple[bytes, str]]:
    """Yield the content and the shown path of each answer file."""
    for place in (None,) if state is None else (None, state):
        with LocalDirectory(project, place) as local:
            data = local.read(name)
            if data is not None:
                yield data, local.shown(name)


def read_open(descriptor: int, shown: str, *, own: bool = True) -> bytes:
    """Return an open file's content, and close it. Raise UsageError if it is not a regular file, too large, or
    (``own``) if users other than this one and root could have written it."""
    with Descriptor(descriptor):
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise UsageError(f"{shown} is not a regular file")
        if own:
            _require_own(descriptor, info, shown)
        data = _read(descriptor, LIMIT + 1)
    if len(data) > LIMIT:
        raise UsageError(f"{shown} is larger than 1 MiB")
    return data


def _read(descriptor: int, limit: int) -> bytes:
    data = b""
    while len(data) < limit and (more := os.read(descriptor, limit - len(data))):
        data += more
    return data


def require_of_root(descriptor: int, shown: str) -> None:
    """Raise UsageError unless root, and nobody else, can write to the open file or directory."""
    info = os.fstat(descriptor)
    if info.st_uid != ROOT:
        raise UsageError(f"{shown} is not root's (user {info.st_uid})", f"sudo chown root {shown}")
    if info.st_mode & 0o022:
        mode = stat.S_IMODE(info.st_mode)
        raise UsageError(f"{shown} can be written by others (mode {mode:04o})", f"sudo chmod go-w {shown}")


def _require_own(descriptor: int, info: os.stat_result, shown: str) -> None:
    if sys.platform == "win32":  # where a mode says nothing
        if not nt_private.is_own(descriptor):
            raise UsageError(f"{shown} can be written by others", f'icacls "{shown}" shows by whom')
        return
    if info.st_uid not in (disk.user(), 0):
        raise UsageError(f"{shown} belongs to another user ({info.st_uid})", "make it yours with chown, or remove it")
    if info.st_mode & 0o022:
        mode = stat.S_IMODE(info.st_mode)
        raise UsageError(f"{shown} can be written by others (mode {mode:04o})", f"chmod go-w {shown}")
