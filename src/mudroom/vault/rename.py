"""renameat2(2), by descriptor, with what to do where a file system has only rename(2)."""

from __future__ import annotations

import ctypes
import errno
import os

from mudroom.stage.beneath import look

_NOREPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)

_libc = ctypes.CDLL(None, use_errno=True)


def _renameat2(old: tuple[int, bytes], new: tuple[int, bytes], flags: int) -> None:
    if _libc.renameat2(old[0], old[1], new[0], new[1], ctypes.c_uint(flags)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), old[1], None, new[1])


def move(old: tuple[int, bytes], new: tuple[int, bytes]) -> None:
    """Rename, never over an existing name. Raises FileExistsError, or OSError as rename(2) does.

    Without RENAME_NOREPLACE (NFS, some FUSE) the check comes before the rename, and a file created in that instant
    would be replaced: linkat(2) closes that gap for files where hard links exist.
    """
    try:
        _renameat2(old, new, _NOREPLACE)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _move_without_flags(old, new)


def _move_without_flags(old: tuple[int, bytes], new: tuple[int, bytes]) -> None:
    entry = look(*old)
    if entry is not None and entry.kind == "file":
        try:
            os.link(old[1], new[1], src_dir_fd=old[0], dst_dir_fd=new[0], follow_symlinks=False)
            os.unlink(old[1], dir_fd=old[0])
            return
        except PermissionError:
            pass  # no hard links here (vfat): fall through to the checked rename
    if look(*new) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new[1])
    os.rename(old[1], new[1], src_dir_fd=old[0], dst_dir_fd=new[0])


def exchange(one: tuple[int, bytes], other: tuple[int, bytes]) -> None:
    """Swap two names atomically. Where that is not to be had: three renames through ``one`` + ``.swap``, in an order
    that leaves both contents on disk at every moment."""
    try:
        _renameat2(one, other, _EXCHANGE)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        aside = (one[0], one[1] + b".swap")
        os.rename(other[1], aside[1], src_dir_fd=other[0], dst_dir_fd=aside[0])
        os.rename(one[1], other[1], src_dir_fd=one[0], dst_dir_fd=other[0])
        os.rename(aside[1], one[1], src_dir_fd=aside[0], dst_dir_fd=one[0])


def sync_filesystem(descriptor: int) -> None:
    """syncfs(2): one call instead of an fsync for every file."""
    if _libc.syncfs(descriptor) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
