"""Symlinks that lead out of a sandbox: in a root that comes from an image, and on the way to a program.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here.
"""

from __future__ import annotations

import os

from mudroom.sandbox.launcher.kernel import (
    AT_FDCWD,
    EACCES,
    ELOOP,
    EXDEV,
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    SYS_openat2,
    syscall,
)

_HEAD = 256
"""BINPRM_BUF_SIZE of include/uapi/linux/binfmts.h: where the kernel looks for the interpreter of a script."""
_DEEPEST = 6
"""Scripts that are interpreters of each other: the kernel refuses more (exec_binprm in fs/exec.c)."""


def require_no_link(root: int, path: bytes) -> None:
    """Check that ``path`` below the descriptor ``root`` may be mounted upon. An absolute symlink on the way would lead
    out of the root, and a symlink at the end is no mount point: both raise OSError with ELOOP. A missing path raises
    the error of openat2(2). RESOLVE_BENEATH; struct open_how is flags, mode, resolve."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    how = b"".join(value.to_bytes(8, "little") for value in (flags, 0, RESOLVE_BENEATH))
    try:
        place = syscall(SYS_openat2, root, path, how, len(how))
    except OSError as error:
        if error.errno != EXDEV:
            raise
        raise OSError(ELOOP, os.strerror(ELOOP)) from None
    is_link = os.fstat(place).st_mode & 0o170000 == 0o120000
    os.close(place)
    if is_link:
        raise OSError(ELOOP, os.strerror(ELOOP))


def require_no_magic_link(program: bytes) -> None:
    """Check that neither a program nor the interpreters of a script are reached by a magic link of /proc: until the
    exec ``/proc/self/exe`` is the launcher's program, on a mount of the host, and a command that ran it could change
    the mode of the host's file by that link. Raise OSError with ELOOP, or with EACCES for a file of the user's own that
    can be executed and not read. Other errors are left to execve(2)."""
    for _script in range(_DEEPEST):
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        how = b"".join(value.to_bytes(8, "little") for value in (flags, 0, RESOLVE_NO_MAGICLINKS))
        try:
            opened = syscall(SYS_openat2, AT_FDCWD, program, how, len(how))
        except OSError as error:
            if error.errno == ELOOP:
                raise
            if error.errno == EACCES and os.access(program, os.X_OK) and os.stat(program).st_uid == os.geteuid():
                raise
            return
        try:
            head = os.read(opened, _HEAD)
        except OSError:
            return  # a directory, or nothing that can be executed
        finally:
            os.close(opened)
        words = head[2:].partition(b"\n")[0].partition(b"\0")[0].replace(b"\t", b" ").split(b" ")
        program = next(filter(None, words), b"")
        if head[:2] != b"#!" or not program:
            return
