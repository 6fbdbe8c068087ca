"""The process that makes one view of hostile bytes: it reads a request from standard input, and writes a view.

After it has read and imported all, it can only compute, take memory and write to what is open: Linux refuses every
other system call (seccomp(2), SECCOMP_SET_MODE_FILTER by an allow list). Elsewhere it is a process with limits.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from importlib import import_module

import msgspec

from mudroom.core.text import hunk as _hunk  # noqa: F401  (loaded before no file can be opened)
from mudroom.ext.views.kinds.row import FileView, NoView, clean

MODULES = {
    "packages": "packages",
    "notebook": "notebook",
    "database": "database",
    "archive": "archive",
    "json": "keys",
    "yaml": "keys",
    "toml": "keys",
}
"""By kind, in ``kinds``."""
MEMORY = 1 << 30
"""Bytes of address space."""
SECONDS = 6
"""Of processor time."""

_LD_W_ABS, _JEQ_K, _RET_K = 0x20, 0x15, 0x06
_ALLOW, _EPERM, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_CALLS = {
    "x86_64": (
        0xC000003E,
        (0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 28, 35, 39, 60, 96, 186, 201, 202, 228, 231, 318),
    ),
    "aarch64": (
        0xC00000B7,
        (63, 64, 57, 80, 62, 222, 226, 215, 214, 134, 135, 139, 124, 216, 233, 101, 172, 93, 169, 178, 98, 113, 94,
         278),
    ),
}  # fmt: skip
"""By machine: AUDIT_ARCH, and read, write, close, fstat, lseek, mmap, mprotect, munmap, brk, rt_sigaction,
rt_sigprocmask, rt_sigreturn, sched_yield, mremap, madvise, nanosleep, getpid, exit, gettimeofday, gettid, time
(x86-64 only), futex, clock_gettime, exit_group, getrandom."""


class ViewRequest(msgspec.Struct, array_like=True):
    kind: str
    path: bytes
    before: bytes | None
    after: bytes | None


def confine(machine: str) -> None:
    """Refuse all system calls but those of ``_CALLS``, for good. Raise OSError if the kernel does not do it."""
    arch, calls = _CALLS[machine]
    code = [(_LD_W_ABS, 0, 0, 4), (_JEQ_K, 1, 0, arch), (_RET_K, 0, 0, _KILL), (_LD_W_ABS, 0, 0, 0)]
    code += [(_JEQ_K, len(calls) - number, 0, call) for number, call in enumerate(calls)]
    code += [(_RET_K, 0, 0, _EPERM), (_RET_K, 0, 0, _ALLOW)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in code))
    program = struct.pack("@HxxxxxxQ", len(code), ctypes.addressof(text))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    where = ctypes.cast(ctypes.c_char_p(program), ctypes.c_void_p).value or 0
    for words in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _MODE_FILTER, where, 0, 0)):
        if prctl(*map(ctypes.c_ulong, words)):
            raise OSError(ctypes.get_errno(), "the kernel confines no process here")


def make(request: ViewRequest, view: Callable[[bytes, bytes | None, bytes | None], FileView]) -> FileView:
    """Return the view, or one with the problem."""
    try:
        return clean(view(request.path, request.before, request.after))
    except NoView as problem:
        return clean(FileView(request.kind, problem=str(problem)))
    except MemoryError:
        return FileView(request.kind, problem="it takes too much memory")
    except RecursionError:
        return FileView(request.kind, problem="it is nested too deeply")


def _limit() -> None:
    if sys.platform == "win32":
        return
    import resource

    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_AS, MEMORY),
    ):
        hard = resource.getrlimit(kind)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):
            if sys.platform == "linux":
                raise


def main() -> None:
    _limit()
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ViewRequest)
    view = import_module(f"mudroom.ext.views.kinds.{MODULES[request.kind]}").view
    if sys.platform == "linux" and os.uname().machine in _CALLS:
        confine(os.uname().machine)
    sys.stdout.buffer.write(msgspec.json.encode(make(request, view)))
    sys.stdout.buffer.flush()
    os._exit(0)
