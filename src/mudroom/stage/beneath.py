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
O_PATH: int = getattr(os, "O_PATH", getattr(os, "O_EVTONLY", os.O_RDONLY))
"""To name a file, not to read it: open(2). O_EVTONLY of macOS opens no link, as O_NOFOLLOW goes with it."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_numbers = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)
_have_openat2 = os.uname().sysname == "Linux"


def open_root(path: bytes) -> int:
    """A descriptor of a directory whose own path is trusted (the project, a layer)."""
    return os.open(path, _DIRECTORY)


def mount_of(path: bytes) -> tuple[int, int]:
    """The file system and the mount that a directory is on. rename(2) asks for the same mount, not only for the same
    file system: the same one bound to two places, as containers do, is EXDEV."""
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
    if _have_openat2 and len(path) < _PATH_LIMIT:
        descriptor = _openat2(root, path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        if descriptor is not None:
            return descriptor
    return _walk(root, path, flags, mode)


def _openat2(root: int, path: bytes, flags: int, mode: int) -> int | None:
    """openat2(2); None where the kernel is older than it (5.6), or a container's filter knows it not (EPERM)."""
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
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a rename went on meanwhile, try again
            raise OSError(number, os.strerror(number), path)


def _walk(root: int, path: bytes, flags: int, mode: int) -> int:
    """The same by hand, one component at a time. ``path`` is a RelPath, so no component is ``..``."""
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
    """By which chmod(2) and utimensat(2) reach the file of an O_PATH descriptor: on Linux its path in /proc (fchmod(2)
    refuses such a descriptor), elsewhere the descriptor itself."""
    return b"/proc/self/fd/%d" % descriptor if sys.platform == "linux" else descriptor


@contextmanager
def directory(root: int, path: bytes) -> Iterator[int]:
    """The directory at ``path`` below ``root``, opened for as long as the block runs."""
    descriptor = open_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def look(parent: int, name: bytes) -> Entry | None:
    """The entry ``name`` of the open directory ``parent``; None if there is none."""
    while True:
        try:
            stat = os.stat(name, dir_fd=parent, follow_symlinks=False)
            target = os.readlink(name, dir_fd=parent) if stat.st_mode & 0o170000 == 0o120000 else b""
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            continue  # no link any more by the time it was read
        return from_stat(stat, target)  # type: ignore[arg-type]


def look_beneath(root: int, path: bytes) -> Entry | None:
    """The entry at ``path`` below ``root``; None if it, or a directory on the way, is not there.

    A symbolic link or a file in the place of a directory on the way counts as "not there".
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


def entries(directory_fd: int) -> dict[bytes, Entry]:
    """Everything in an open directory, by name."""
    found = {}
    with os.scandir(directory_fd) as scan:
        for item in scan:
            name = os.fsencode(item.name)
            try:
                stat = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # gone since it was listed
            if stat.st_mode & 0o170000 != 0o120000:
                found[name] = from_stat(stat)  # type: ignore[arg-type]
            elif (entry := look(directory_fd, name)) is not None:
                found[name] = entry
    return found


def nameless(place: bytes) -> int:
    """A file without a name, to be written and read: in memory, or, where there is no memfd_create(2), in the directory
    ``place``, where its name is gone at once."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mudroom", os.MFD_CLOEXEC)
    name = place + b"/.nameless-%d-%d" % (os.getpid(), next(_numbers))
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    return descriptor


def open_file(root: int, path: bytes) -> int:
    """A regular file for reading. O_NONBLOCK: a fifo in its place must not hang us."""
    return open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)


def read_file(root: int, path: bytes, limit: int) -> bytes | None:
    """The content of a file; None if it has more than ``limit`` bytes."""
    descriptor = open_file(root, path)
    try:
        if os.fstat(descriptor).st_size > limit:
            return None
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            data = stream.read(limit + 1)
        return data if len(data) <= limit else None
    finally:
        os.close(descriptor)
