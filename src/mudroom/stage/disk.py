"""File operations by a directory's descriptor and a name in it. This module is for POSIX; Windows has ``nt_disk.py`` in
its place.

Every module that changes files in a project, a fork or the state calls these functions, and no other module passes
``dir_fd``. ``stage/__init__.py`` chooses the module when it is imported, as ``os`` chooses ``os.path``, so the choice
costs no time per call. ``tests/ext/windows/anywhere/test_disk.py`` compares both modules' names and parameters. Here
each function is one system call (open(2) and the others), and raises OSError as that call does. If the directory is
None, the name is a path.

Rules: the directory comes first, then the name. A symbolic link at the end of a path is never followed, except by
``set_mode``, which is for names that only mudroom creates. Flags for ``open_at`` and ``open_path`` that Windows lacks
are names in this module: callers take them from here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mudroom.core.tree.entry import FileHeld
from mudroom.typing import TypeVar

T = TypeVar("T")

O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_CLOEXEC = os.O_DIRECTORY, os.O_NOFOLLOW, os.O_NONBLOCK, os.O_CLOEXEC
O_PATH: int = getattr(os, "O_PATH", getattr(os, "O_EVTONLY", os.O_RDONLY))
"""For naming a file without reading it: open(2). macOS has no O_PATH; its O_EVTONLY does not open a symbolic link,
because O_NOFOLLOW is always passed with it."""

_SYS_openat2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_RESOLVE = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
_PATH_LIMIT = 4000
"""Bytes per path in one call: PATH_MAX is 4096, and a name has at most 255."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOREPLACE, _EXCHANGE = 1, 2
_AT_FDCWD, _STATX_BTIME = -100, 0x800
_FLAGS_OF_DARWIN = {_NOREPLACE: 4, _EXCHANGE: 2}
"""RENAME_EXCL and RENAME_SWAP from sys/stdio.h."""
_F_FULLFSYNC = 51
"""sys/fcntl.h: also flush the disk's own cache, which macOS's fsync(2) does not."""

_libc = ctypes.CDLL(None, use_errno=True)
_LEASE, _LOOK = 0.1, 0.001
"""Seconds to wait for the end of a lease, and between two attempts."""
_have_openat2 = os.uname().sysname == "Linux"

fstat = os.fstat


def open_path(path: bytes | str | os.PathLike[str], flags: int, mode: int = 0o777) -> int:
    """Open a path whose directories are trusted."""
    return os.open(path, flags, mode)


def open_root(path: bytes) -> int:
    """Return a descriptor for a directory whose own path is trusted (the project, a layer)."""
    return os.open(path, _DIRECTORY)


def open_layer(path: bytes) -> int:
    """Return a descriptor for a layer's directory. On Windows, whiteouts and marks are recognised only below such a
    descriptor."""
    return os.open(path, _DIRECTORY)


def mount_of(path: bytes) -> tuple[int, int]:
    """Return a directory's device number and mount id. rename(2) requires the same mount, not only the same file
    system: one file system bound to two places, as containers do, gives EXDEV."""
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


def birth_time(path: bytes) -> int:
    """Return when a file was made, in nanoseconds since 1970; 0 if the file system or the C library does not tell."""
    if sys.platform != "linux" or (statx := getattr(_libc, "statx", None)) is None:
        return int(getattr(os.stat(path), "st_birthtime", 0) * 10**9)
    found = ctypes.create_string_buffer(256)  # linux/stat.h: stx_mask at 0; stx_btime at 80, seconds and nanoseconds
    if statx(_AT_FDCWD, path, 0, ctypes.c_uint(_STATX_BTIME), found) or not found.raw[1] & _STATX_BTIME >> 8:
        return 0
    return int.from_bytes(found.raw[80:88], "little", signed=True) * 10**9 + int.from_bytes(found.raw[88:92], "little")


def open_beneath(root: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Open ``path`` below ``root`` like openat(2), refusing every symbolic link on the way and at the end.

    Raise OSError: ELOOP for a symbolic link, FileHeld for EBUSY and for a lease, ENOTDIR, ENOENT and the rest as
    open(2) does.
    """
    try:
        if not path:
            return os.open(b".", flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=root)
        if len(path) >= _PATH_LIMIT:
            return _open_long(root, path, flags, mode)
        if _have_openat2:
            descriptor = _openat2(root, path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
            if descriptor is not None:
                return descriptor
        return _walk(root, path, flags, mode)
    except OSError as error:
        raise _with_kind(error)  # noqa: B904 - the same error, or its kind


def _with_kind(error: OSError) -> OSError:
    """Return FileHeld for EBUSY and EAGAIN, otherwise the error unchanged. EBUSY: a file on a mounted share that a
    program on the server holds open without sharing it (STATUS_SHARING_VIOLATION in fs/smb/client/smb2maperror.c).
    EAGAIN: a file under a lease (fcntl(2))."""
    is_held = error.errno in (errno.EBUSY, errno.EAGAIN)
    return FileHeld(error.errno, error.strerror, error.filename) if is_held else error


def _open_long(root: int, path: bytes, flags: int, mode: int) -> int:
    """Open a path that is too long for one call (PATH_MAX, path_resolution(7)) in parts, each as long as possible."""
    with reach(root, path) as (current, rest):
        return open_beneath(current, rest, flags, mode)


@contextmanager
def reach(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield a directory and a path below it that together name ``path`` below ``root``. The path is short enough for
    one system call, even if ``path`` is longer than PATH_MAX."""
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
    """Open with openat2(2). Return None if the kernel is older than 5.6 or a container's seccomp filter does not know
    the call (EPERM)."""
    global _have_openat2  # noqa: PLW0603 - learnt once about the kernel, never changes back
    how = flags.to_bytes(8, "little") + mode.to_bytes(8, "little") + _RESOLVE.to_bytes(8, "little")
    until = 0.0
    while True:
        descriptor: int = _libc.syscall(ctypes.c_long(_SYS_openat2), root, path, how, ctypes.c_size_t(24))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number in (errno.ENOSYS, errno.EPERM):
            _have_openat2 = number == errno.EPERM and _have_openat2
            return None
        if number == errno.EAGAIN:
            # For a path without "..", a lease is the only reason for EAGAIN. Its holder may be a paused command, which
            # cannot release it: a blocking open would wait 45 seconds in the kernel, per file.
            until = until or time.monotonic() + _LEASE
            if time.monotonic() > until:
                raise OSError(number, "another program has a lease on it", path)
            time.sleep(_LOOK)
        elif number != errno.EINTR:
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
    """Return the name by which chmod(2) and utimensat(2) reach an O_PATH descriptor's file: on Linux its path in /proc
    (fchmod(2) refuses such a descriptor), elsewhere the descriptor itself."""
    return b"/proc/self/fd/%d" % descriptor if sys.platform == "linux" else descriptor


def open_at(at: int | None, name: bytes | str, flags: int, mode: int = 0o777) -> int:
    try:
        return os.open(name, flags, mode, dir_fd=at)
    except OSError as error:
        raise _with_kind(error)  # noqa: B904 - the same error, or its kind


def stat_at(at: int | None, name: bytes | str) -> os.stat_result:
    return os.stat(name, dir_fd=at, follow_symlinks=False)


def readlink(at: int, name: bytes) -> bytes:
    return os.readlink(name, dir_fd=at)


def names(at: int) -> list[bytes]:
    """Return the names in an open directory."""
    return [os.fsencode(name) for name in os.listdir(at)]


def stats(at: int, made: Callable[[os.stat_result], T]) -> list[tuple[bytes, T]]:
    """Return each name with ``made(stat_at(name))``, without names that are deleted meanwhile. Stat results, half a
    kilobyte each, are not kept. A list: a generator that an error leaves behind would keep the directory open."""
    found = []
    with os.scandir(at) as scan:
        for item in scan:
            try:
                info = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found.append((os.fsencode(item.name), made(info)))
    return found


def children(at: int) -> list[tuple[bytes, bool]]:
    """Return each name with whether it is a directory. Sorted by inode, as rm(1) does: the directory's own order is
    that of hashes."""
    with os.scandir(at) as scan:
        return [
            (os.fsencode(item.name), item.is_dir(follow_symlinks=False)) for item in sorted(scan, key=os.DirEntry.inode)
        ]


def why_unnamed(name: bytes) -> str:
    """Return why no file here can have this name; empty if one can."""
    del name  # on POSIX the kernel refuses invalid names
    return ""


def mkdir(at: int, name: bytes | str, mode: int) -> None:
    os.mkdir(name, mode, dir_fd=at)


def mkfifo(at: int, name: bytes, mode: int) -> None:
    os.mkfifo(name, mode, dir_fd=at)


def whiteout(at: int, name: bytes) -> None:
    """Create a character device 0:0, which every user may create: stage/layers/layer.py."""
    os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=at)


def symlink(at: int, name: bytes, target: bytes) -> None:
    os.symlink(target, name, dir_fd=at)


def link(at: int, name: bytes, to: int, new: bytes) -> None:
    """Add the name ``new`` in ``to``. A symbolic link itself gets the second name, not its target."""
    os.link(name, new, src_dir_fd=at, dst_dir_fd=to, follow_symlinks=False)


def unlink(at: int | None, name: bytes | str) -> None:
    os.unlink(name, dir_fd=at)


def rmdir(at: int, name: bytes | str) -> None:
    os.rmdir(name, dir_fd=at)


def rename(at: int, name: bytes | str, to: int, new: bytes | str) -> None:
    """Rename, replacing an existing file."""
    os.rename(name, new, src_dir_fd=at, dst_dir_fd=to)


def rename_path(path: bytes | str, new: bytes | str) -> None:
    """Rename by whole paths, whose directories are trusted, replacing an existing file."""
    os.rename(path, new)


def rename_new(at: int, name: bytes, to: int, new: bytes) -> None:
    """Rename without replacing. Raise FileExistsError if ``new`` exists, and OSError (EINVAL or similar) if the file
    system does not support this: NFS, some FUSE."""
    _renameat2(at, name, to, new, _NOREPLACE)


def exchange(at: int, name: bytes, to: int, new: bytes) -> None:
    """Swap two names atomically. Raise OSError (EINVAL, ENOSYS or similar) if the file system does not support this."""
    _renameat2(at, name, to, new, _EXCHANGE)


def _renameat2(at: int, name: bytes, to: int, new: bytes, flags: int) -> None:
    """Call renameat2(2). On macOS, renameatx_np(2) is the same with other flag values; that code has never been run."""
    if sys.platform == "darwin":
        call, flags = _libc.renameatx_np, _FLAGS_OF_DARWIN[flags]
    else:
        call = _libc.renameat2
    if call(ctypes.c_int(at), name, ctypes.c_int(to), new, ctypes.c_uint(flags)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name, None, new)


def set_mode(at: int, name: bytes, mode: int) -> None:
    """Set the mode, following a symbolic link. Call it for names that only mudroom creates."""
    os.chmod(name, mode, dir_fd=at)


def set_mode_by(handle: int | bytes, mode: int) -> None:
    """Set the mode of a file that may be open as a path only. ``handle`` comes from ``handle()``."""
    os.chmod(handle, mode)


def set_mode_of(descriptor: int, mode: int) -> None:
    """Set an open file's mode."""
    os.fchmod(descriptor, mode)


def set_times_of(descriptor: int, time: int) -> None:
    """Set an open file's atime and mtime, in nanoseconds since 1970."""
    os.utime(descriptor, ns=(time, time))


def set_mode_and_times(at: int, name: bytes, mode: int, time: int) -> None:
    """Set both by name, without following a link. For macOS, whose clones are not open."""
    os.chmod(name, mode, dir_fd=at, follow_symlinks=False)
    os.utime(name, ns=(time, time), dir_fd=at, follow_symlinks=False)


def set_owner(at: int | None, name: bytes | str, user: int, group: int) -> None:
    os.chown(name, user, group, dir_fd=at, follow_symlinks=False)


def user() -> int:
    """Return the user whose permissions apply (the effective uid)."""
    return os.geteuid()


def group() -> int:
    return os.getegid()


read = os.read
"""Read from a file's position. On Windows, raise FileHeld for a part that another process has locked."""


def pread(descriptor: int, length: int, offset: int) -> bytes:
    return os.pread(descriptor, length, offset)


def pwrite(descriptor: int, data: bytes, offset: int) -> int:
    return os.pwrite(descriptor, data, offset)


# --- paths in mudroom's own form: absolute, with ``/`` between names ---

real_path = os.path.realpath
"""Return a path with all links followed, as bytes. On Windows, raise UsageError for a path that mudroom does not
accept."""
absolute_path = os.path.abspath


def given_path(path: bytes) -> bytes:
    """Return a path typed by a user, absolute or relative, with ``/`` between its names. Raise UsageError as
    ``real_path`` does."""
    return path


def is_absolute(path: bytes) -> bool:
    return path.startswith(b"/")


def sync(descriptor: int) -> None:
    """Flush a file or a directory. For a directory on FUSE, all is flushed."""
    os.fsync(descriptor)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode) and _is_fuse(descriptor):
        os.sync()  # a server without fsyncdir: fsync(2) succeeds and sends nothing (fs/fuse/dir.c, fuse_dir_fsync)


def _is_fuse(descriptor: int) -> bool:
    from mudroom.stage.filesystem_kind import FUSE, filesystem_magic

    return filesystem_magic(b"/proc/self/fd/%d" % descriptor) == FUSE


def sync_filesystem(descriptor: int) -> None:
    """Flush a whole file system with syncfs(2): one call instead of an fsync per file. On FUSE all are flushed.

    macOS has no syncfs. There, sync(2) only starts the writes, and F_FULLFSYNC waits until the disk has written
    everything that it was given before (fcntl(2)).
    """
    if sys.platform == "darwin":
        import fcntl

        os.sync()
        try:
            fcntl.fcntl(descriptor, _F_FULLFSYNC)
        except OSError:
            os.fsync(descriptor)  # not supported by this file system, such as a network file system
        return
    if _libc.syncfs(descriptor) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if _is_fuse(descriptor):
        os.sync()  # syncfs(2) sends its server nothing (fs/fuse/inode.c, fuse_sync_fs): what it wrote has to be flushed
