"""Open and list what lies below a directory, by descriptor.

Every path that mudroom opens in a project or a fork goes through here. A symbolic link in the middle of a path, put
there by an agent or by accident, is an error and is never followed; so is anything that would leave the directory.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.core.tree.entry import Entry, from_stat

_SYS_openat2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_RESOLVE = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
_PATH_LIMIT = 4000
"""Bytes of a path for one call: PATH_MAX is 4096, and a name has at most 255."""
O_PATH: int = getattr(os, "O_PATH", getattr(os, "O_EVTONLY", os.O_RDONLY))
"""For naming a file without reading it: open(2). macOS has no O_PATH; its O_EVTONLY does not open a symbolic link,
because O_NOFOLLOW is always passed with it."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_numbers = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)
_have_openat2 = os.uname().sysname == "Linux"


def open_root(path: bytes) -> int:
    """Return a descriptor of a directory whose own path is trusted (the project, a layer)."""
    return os.open(path, _DIRECTORY)


def mount_of(path: bytes) -> tuple[int, int]:
    """Return the device number and the mount id of a directory. rename(2) requires the same mount, not only the same
    file system: one file system bound to two places, as containers do, gives EXDEV."""
    descriptor = os.open(path, O_PATH | os.O_CLOEXEC)
    try:
        device = os.fstat(descriptor).st_dev
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as stream:  # proc_pid_fdinfo(5), mnt_id
            fields = dict(line.split(b":", 1) for line in stream.read().splitlines() if b":" in line)
        return device, int(fields.get(b"mnt_id", b"0"))
    except FileNotFoundError:
        return device, 0  # no /proc: macOS, Windows
    finally:
        os.close(descriptor)


def open_beneath(root: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Open ``path`` below ``root`` as openat(2) would, refusing every symbolic link on the way and at the end.

    Raises OSError: ELOOP for a symbolic link, ENOTDIR, ENOENT and the rest as open(2) does.
    """
    if not path:
        return os.open(b".", flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=root)
    if len(path) >= _PATH_LIMIT:
        return _open_long(root, path, flags, mode)
    if _have_openat2:
        descriptor = _openat2(root, path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        if descriptor is not None:
            return descriptor
    return _walk(root, path, flags, mode)


def _open_long(root: int, path: bytes, flags: int, mode: int) -> int:
    """Open a path that is too long for one call (PATH_MAX, path_resolution(7)) in parts, each as long as possible."""
    with reach(root, path) as (current, rest):
        return open_beneath(current, rest, flags, mode)


@contextmanager
def reach(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield a directory and a path below it that together name ``path`` below ``root``, for calls that take a path:
    short enough for one call, also where ``path`` is longer than PATH_MAX."""
    if len(path) < _PATH_LIMIT:
        yield root, path
        return
    current = os.dup(root)
    try:
        begin = 0
        while len(path) - begin >= _PATH_LIMIT:
            end = path.rindex(b"/", begin, begin + _PATH_LIMIT)
            below = open_beneath(current, path[begin:end], O_PATH | os.O_DIRECTORY)
            os.close(current)
            current, begin = below, end + 1
        yield current, path[begin:]
    finally:
        os.close(current)


def _openat2(root: int, path: bytes, flags: int, mode: int) -> int | None:
    """openat2(2). Return None if the kernel is older than 5.6 or a container's seccomp filter does not know the call
    (EPERM)."""
    global _have_openat2  # noqa: PLW0603 - learnt once about the kernel, never changes back
    how = flags.to_bytes(8, "little") + mode.to_bytes(8, "little") + _RESOLVE.to_bytes(8, "little")
    while True:
        descriptor: int = _libc.syscall(ctypes.c_long(_SYS_openat2), root, path, how, ctypes.c_size_t(24))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number in (errno.ENOSYS, errno.EPERM):
            _have_openat2 = number == errno.EPERM and _have_openat2
            return None
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a concurrent rename, try again
            raise OSError(number, os.strerror(number), path)


def _walk(root: int, path: bytes, flags: int, mode: int) -> int:
    """Open ``path`` without openat2(2), one component at a time. ``path`` is a RelPath, so no component is ``..``."""
    *directories, last = path.split(b"/")
    current = os.dup(root)
    try:
        for directory in directories:
            below = os.open(directory, O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = below
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=current)
    finally:
        os.close(current)


def handle(descriptor: int) -> int | bytes:
    """Return the name by which chmod(2) and utimensat(2) reach the file of an O_PATH descriptor: on Linux its path in
    /proc (fchmod(2) refuses such a descriptor), elsewhere the descriptor itself."""
    return b"/proc/self/fd/%d" % descriptor if sys.platform == "linux" else descriptor


@contextmanager
def directory(root: int, path: bytes) -> Iterator[int]:
    """Yield a descriptor of the directory at ``path`` below ``root``; it is closed when the block ends."""
    descriptor = open_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def look(parent: int, name: bytes) -> Entry | None:
    """Return the entry ``name`` of the open directory ``parent``, or None if there is no such name."""
    while True:
        try:
            stat = os.stat(name, dir_fd=parent, follow_symlinks=False)
            target = os.readlink(name, dir_fd=parent) if stat.st_mode & 0o170000 == 0o120000 else b""
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            continue  # the link was replaced between stat and readlink
        return from_stat(stat, target)  # type: ignore[arg-type]


def look_beneath(root: int, path: bytes) -> Entry | None:
    """Return the entry at ``path`` below ``root``, or None if the entry or a directory on the way is missing.

    A symbolic link or a file in place of a directory on the way counts as missing.
    """
    above, _slash, name = path.rpartition(b"/")
    try:
        with directory(root, above) as parent:
            return look(parent, name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


class LastDirectory:
    """Directories below ``root``, of which the last one entered stays open: paths in walking order mostly share one.

    The descriptor is that of the directory which was at the path when it was entered, whatever has been renamed since.
    So this is for what is checked again afterwards, and for trees in which only mudroom renames. To change the user's
    files, open their directory anew. The owner closes it; one thread uses it at a time.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self._path: bytes | None = None
        self._opened = -1

    def __enter__(self) -> LastDirectory:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def enter(self, path: bytes) -> int:
        """Return a descriptor of the directory, which stays open until the next one is entered. Raise OSError as
        ``open_beneath`` does."""
        if path != self._path:
            self.close()
            self._opened = open_beneath(self.root, path, os.O_RDONLY | os.O_DIRECTORY)
            self._path = path
        return self._opened

    def close(self) -> None:
        """Close the directory. It may be entered again."""
        if self._path is not None:
            os.close(self._opened)
            self._path = None

    def look(self, path: bytes) -> Entry | None:
        """As ``look_beneath``."""
        above, _slash, name = path.rpartition(b"/")
        try:
            return look(self.enter(above), name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise

    def open_file(self, path: bytes) -> int:
        """As ``open_file``."""
        above, _slash, name = path.rpartition(b"/")
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self.enter(above))


def entries(directory_fd: int) -> dict[bytes, Entry]:
    """Return the entries of an open directory by name."""
    by_name = {}
    with os.scandir(directory_fd) as scan:
        for item in scan:
            name = os.fsencode(item.name)
            try:
                stat = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted since it was listed
            if stat.st_mode & 0o170000 != 0o120000:
                by_name[name] = from_stat(stat)  # type: ignore[arg-type]
            elif (entry := look(directory_fd, name)) is not None:
                by_name[name] = entry
    return by_name


def nameless(place: bytes) -> int:
    """Return a descriptor of a new file without a name, for reading and writing: a memfd, or, where memfd_create(2) is
    missing, a file in the directory ``place`` that is unlinked at once."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mudroom", os.MFD_CLOEXEC)
    name = place + b"/.nameless-%d-%d" % (os.getpid(), next(_numbers))
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    return descriptor


def open_file(root: int, path: bytes) -> int:
    """Return a descriptor of a regular file for reading. O_NONBLOCK: a FIFO in its place must not block the caller."""
    return open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)


def read_file(root: int, path: bytes, limit: int) -> bytes | None:
    """Return the content of a file, or None if it has more than ``limit`` bytes."""
    descriptor = open_file(root, path)
    try:
        if os.fstat(descriptor).st_size > limit:
            return None
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            data = stream.read(limit + 1)
        return data if len(data) <= limit else None
    finally:
        os.close(descriptor)
