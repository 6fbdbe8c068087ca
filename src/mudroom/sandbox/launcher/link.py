"""Symlinks that lead out of a sandbox: in a root made from an image, and on the way to a program.

Launcher code: the rules in ``launcher.py`` hold here.
"""

from __future__ import annotations

import os

from mudroom.sandbox.launcher.kernel import (
    AT_FDCWD,
    EACCES,
    ELOOP,
    ENOSYS,
    EPERM,
    EXDEV,
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    SYS_openat2,
    syscall,
)

_HEAD = 256
"""BINPRM_BUF_SIZE in include/uapi/linux/binfmts.h: the bytes in which the kernel looks for a script's interpreter."""
_DEEPEST = 6
"""Nested script interpreters: the kernel refuses more (exec_binprm in fs/exec.c)."""


def require_no_link(root: int, path: bytes) -> None:
    """Check that ``path`` below the descriptor ``root`` may be mounted upon. Raise OSError with ELOOP for an absolute
    symlink on the way, which would lead out of the root, and for a symlink at the end, which is no mount point. A
    missing path raises openat2(2)'s error."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    # struct open_how: flags, mode, resolve.
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
    """Check that neither a program nor a script's interpreters are reached by a magic link in /proc: until the exec
    ``/proc/self/exe`` is the launcher's program. Where a command exchanges the file between this look and the exec,
    ``program.py`` keeps that program from being changed.

    Raise OSError with ELOOP for such a link, with EACCES for the user's own file if it is executable but not readable,
    and otherwise with the error from openat2(2) or read(2): EAGAIN for a file under a lease (fcntl(2)).
    """
    for _script in range(_DEEPEST):
        program = _interpreter_of(program)
        if not program:
            return
    raise OSError(ELOOP, os.strerror(ELOOP))


def _interpreter_of(program: bytes) -> bytes:
    """Return a script's interpreter; empty for another file."""
    try:
        opened = _open_without_magic_link(program, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno in (ENOSYS, EPERM) and not _knows_openat2():
            return b""  # such a kernel or filter permits no sandbox with mounts, so the program is in sight by its path
        if error.errno != EACCES:
            raise
        _require_of_another(program)
        return b""
    try:
        head = os.read(opened, _HEAD)
    except OSError:
        if os.fstat(opened).st_mode & 0o170000 != 0o100000:
            raise OSError(EACCES, os.strerror(EACCES)) from None  # as execve(2) does
        raise
    finally:
        os.close(opened)
    words = head[2:].partition(b"\n")[0].partition(b"\0")[0].replace(b"\t", b" ").split(b" ")
    return next(filter(None, words), b"") if head[:2] == b"#!" else b""


def _require_of_another(program: bytes) -> None:
    """Check that an unreadable file has another owner, who alone can change it."""
    opened = _open_without_magic_link(program, os.O_PATH)
    owner = os.fstat(opened).st_uid
    os.close(opened)
    if owner == os.geteuid():
        raise OSError(EACCES, os.strerror(EACCES))


def _open_without_magic_link(path: bytes, flags: int) -> int:
    how = b"".join(value.to_bytes(8, "little") for value in (flags | os.O_CLOEXEC, 0, RESOLVE_NO_MAGICLINKS))
    return syscall(SYS_openat2, AT_FDCWD, path, how, len(how))


def _knows_openat2() -> bool:
    try:
        os.close(_open_without_magic_link(b"/", os.O_PATH))
    except OSError as error:
        return error.errno not in (ENOSYS, EPERM)
    return True
