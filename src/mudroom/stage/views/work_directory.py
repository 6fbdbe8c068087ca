"""Work directories for overlay mounts: a new one per mount.

A ``volatile`` overlay leaves a marker in its work directory and refuses to mount it again, in case the system has
crashed (Documentation/filesystems/overlayfs.rst); mudroom detects that by the forks' fingerprints.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from mudroom.core.system.closing import Descriptor
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.layer import remove_at

_MADE_BY_THE_KERNEL = (b"work", b"incompat", b"volatile")
"""Nested: each is inside the one before (ovl_make_workdir and ovl_create_volatile_dirty in fs/overlayfs/super.c)."""
_NOT_OURS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EPERM, errno.EACCES)


def new_work_directory(parent: bytes) -> tuple[bytes, bool]:
    """Create a work directory in ``parent``, which is created too. Return its name, and whether it is the first
    there."""
    is_first = False
    try:
        works = safe_open.open_directory(parent)
    except FileNotFoundError:
        works, is_first = safe_open.make_directory(parent), True
    with Descriptor(works):
        # A name is never used twice: an earlier session may be about to remove its directory by name.
        name = os.urandom(8).hex().encode()
        disk.mkdir(works, name, 0o700)
        return name, is_first


def remove_old_work_directories(parent: bytes, current: bytes) -> None:
    """Remove all work directories but ``current``. They are empty, but removing them takes time. Another session may be
    removing them, too."""
    with Descriptor(safe_open.open_directory(parent)) as works:
        for name in map(os.fsencode, os.listdir(works)):
            if name != current:
                with suppress(FileNotFoundError):
                    remove_at(works, name)


def open_work_directories(parent: bytes) -> None:
    """Give the kernel's directories inside the work directories, which have mode 000, to their owner, so that ``rm
    -rf`` on the state works. No mount uses them any more.

    Another user's directories, and anything that a container may have put in their place, stay as they are.
    """
    try:
        works = safe_open.open_directory(parent)
    except FileNotFoundError:
        return  # never mounted
    with Descriptor(works):
        for name in map(os.fsencode, os.listdir(works)):
            _open_chain(works, (name, *_MADE_BY_THE_KERNEL))


def _open_chain(at: int, names: tuple[bytes, ...]) -> None:
    at = os.dup(at)
    try:
        for name in names:
            below = disk.open_at(at, name, os.O_PATH | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC)
            os.close(at)
            at = below
            if not os.fstat(at).st_mode & 0o700:
                os.chmod(b"/proc/self/fd/%d" % at, 0o700)  # fchmod(2) refuses O_PATH
        disk.unlink(at, b"dirty")  # a volatile overlay's marker: mode 000, too
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
    finally:
        os.close(at)
