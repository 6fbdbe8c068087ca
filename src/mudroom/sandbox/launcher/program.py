"""The launcher's program file, which is on a read-only mount.

Launcher code: the rules in ``launcher.py`` hold here.

Until its exec each process in a sandbox is a clone of the launcher, and so has the launcher's program as
``/proc/self/exe``, whatever its root. By that link a command could run the host's file on the host's mount, and as its
owner change its mode (compare CVE-2019-5736). No look at a path before the exec prevents that: another process in the
sandbox exchanges the file. So the launcher runs from a copy of the host's mounts, read-only, attached nowhere and made
before the start: by ``src/native/init/program.c``, or, where that is missing, here, by a second start. A clone, even
with its own namespaces, keeps the program with its mount (exe_file in the kernel's mm_struct).

An ordinary user makes such a copy in its own namespaces, which end at once; the copy does not.
"""

from __future__ import annotations

import os
import sys

from mudroom.sandbox.launcher.kernel import (
    AT_FDCWD,
    AT_RECURSIVE,
    CLONE_FILES,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    EROFS,
    MOUNT_ATTR_READ_ONLY,
    OPEN_TREE_CLOEXEC,
    OPEN_TREE_CLONE,
    RESOLVE_IN_ROOT,
    RESOLVE_NO_MAGICLINKS,
    SYS_close_range,
    SYS_open_tree,
    SYS_openat2,
    clone,
    set_attributes,
    syscall,
)

_OWN = "/proc/self/exe"
_MOST = 255
"""The highest exit status."""
_failure: list[int] = []
"""The error number that kept this process's program on its own mount."""


def is_changeable(path: str) -> bool:
    """Return whether a command run by this user could change the file at ``path`` on a writable mount: its mode, as the
    owner, or its content. Raise OSError if it is missing."""
    return os.geteuid() in (0, os.stat(path).st_uid) or os.access(path, os.W_OK)


def require_protected() -> None:
    """Raise OSError, with the program as its file name, if a command could change this process's program."""
    if not _is_protected():
        number = _failure[0] if _failure else EROFS
        raise OSError(number, os.strerror(number), sys.executable)


def protect() -> None:
    """Call when an interpreter starts with a socket as its last argument. Close all other descriptors but the standard
    ones, and start again from a read-only mount if a command could change the program. If that fails, return:
    ``require_protected`` then raises the reason."""
    kept = int(sys.argv[-1])
    if kept > 3:
        syscall(SYS_close_range, 3, kept - 1, 0)
    syscall(SYS_close_range, kept + 1, 0xFFFFFFFF, 0)
    if _is_protected():
        return
    try:
        _start_again()
    except OSError as error:
        _failure.append(error.errno or EROFS)


def _is_protected() -> bool:
    return bool(os.statvfs(_OWN).f_flag & os.ST_RDONLY) or not is_changeable(_OWN)


def _copy_mounts() -> int:
    tree = syscall(SYS_open_tree, AT_FDCWD, b"/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)
    set_attributes(tree, MOUNT_ATTR_READ_ONLY, recursive=True)
    return tree


def _copy_mounts_of_user() -> int:
    """Copy the mounts in a child with its own namespaces and this process's descriptor table. The child's exit status
    is the descriptor's number."""
    child = clone(CLONE_FILES | CLONE_NEWUSER | CLONE_NEWNS)
    if child == 0:
        try:
            os._exit(_copy_mounts())
        finally:
            os._exit(_MOST)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not 2 < status < _MOST:
        raise OSError(EROFS, os.strerror(EROFS))
    return status


def _start_again() -> None:
    """Become the same program with the same arguments, run from the copy of the mounts. Raise OSError if that fails."""
    try:
        tree = _copy_mounts()
    except PermissionError:
        tree = _copy_mounts_of_user()
    # The path contains no link, which would lead out of the copy.
    flags = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS
    how = b"".join(value.to_bytes(8, "little") for value in (os.O_PATH | os.O_CLOEXEC, 0, flags))
    file = syscall(SYS_openat2, tree, os.fsencode(sys.orig_argv[0]), how, len(how))
    if not os.fstatvfs(file).f_flag & os.ST_RDONLY:
        raise OSError(EROFS, os.strerror(EROFS))
    path = f"/proc/self/fd/{tree}{os.readlink(f'/proc/self/fd/{file}')}"
    # The copy stays open: as long as it is, the program directory's path is the host's, as the dynamic linker needs it
    # ($ORIGIN in ld.so(8)).
    os.set_inheritable(tree, True)
    os.execv(path, sys.orig_argv)
