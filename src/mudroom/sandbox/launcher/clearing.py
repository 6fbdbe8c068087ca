"""Remove the work directories of unmounted overlays.

Launcher code: the rules in ``launcher.py`` hold here. The launcher does this while the host goes on with the command's
changes.
"""

from __future__ import annotations

import os

MADE_BY_THE_KERNEL = (b"work", b"incompat", b"volatile")
"""Nested, with mode 000 (ovl_make_workdir and ovl_create_volatile_dirty in fs/overlayfs/super.c)."""


def clear(works: tuple[tuple[bytes, bytes], ...]) -> None:
    """Remove the directories, given as (parent, name). A directory that is not as the kernel leaves it stays: the host
    removes it before the first command of its next session."""
    for parent, name in works:
        opened: list[int] = []
        try:
            opened.append(os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
            _remove(opened, name)
        except OSError:
            pass  # not as the kernel leaves it: it stays
        finally:
            for descriptor in opened:
                os.close(descriptor)


def _remove(opened: list[int], name: bytes) -> None:
    """Remove a directory. ``opened`` has the parent's descriptor, and receives the others."""
    chain = (name, *MADE_BY_THE_KERNEL)
    for each in chain:
        opened.append(os.open(each, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened[-1]))
        if each != name:
            os.chmod(b"/proc/self/fd/%d" % opened[-1], 0o700)  # fchmod(2) refuses O_PATH
    os.unlink(b"dirty", dir_fd=opened[-1])
    for depth in range(len(chain) - 1, -1, -1):
        os.rmdir(chain[depth], dir_fd=opened[depth])
