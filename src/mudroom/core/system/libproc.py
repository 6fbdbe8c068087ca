"""libSystem calls about processes and the kernel: libproc (proc_pidinfo, proc_listallpids: bsd/sys/proc_info.h in xnu)
and sysctl(3). For macOS only; on Linux this module defines the layout of their answers and no call.

**The calls have never been run on a Mac**: the tests emulate them.
"""

from __future__ import annotations

import ctypes
import os
import sys

PROC_PIDTBSDINFO, SSTOP, SZOMB = 3, 4, 5
CTL_KERN, KERN_PROCARGS2 = 1, 49
BSDINFO_SIZE, AT_STATUS, AT_PPID, AT_UID, AT_PGID, AT_START = 136, 4, 16, 20, 100, 120
"""struct proc_bsdinfo: eleven 32-bit words and a reserved one, 16 and 32 bytes of names, pbi_nfiles, pbi_pgid,
pbi_pjobc, e_tdev, e_tpgid, pbi_nice; then two 64-bit words, seconds and microseconds."""
_ARG_MAX = 1 << 20
"""The limit in macOS (sys/syslimits.h)."""


def start_in(info: bytes) -> int:
    """Return the start time in ``struct proc_bsdinfo``, in microseconds since 1970."""
    seconds, micro = (int.from_bytes(info[at : at + 8], "little") for at in (AT_START, AT_START + 8))
    return seconds * 1_000_000 + micro


if sys.platform == "darwin":
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.proc_listallpids.argtypes = (ctypes.c_void_p, ctypes.c_int)
    _libc.proc_listallpids.restype = ctypes.c_int
    _libc.proc_pidinfo.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int)
    _libc.proc_pidinfo.restype = ctypes.c_int
    _libc.sysctl.argtypes = (
        ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p,
        ctypes.c_size_t,
    )  # fmt: skip
    _libc.sysctl.restype = ctypes.c_int
    _libc.sysctlbyname.argtypes = (
        ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p, ctypes.c_size_t,
    )  # fmt: skip
    _libc.sysctlbyname.restype = ctypes.c_int

    def all_pids() -> list[int]:
        room = _libc.proc_listallpids(None, 0) + 64
        pids = (ctypes.c_int * room)()
        count = _libc.proc_listallpids(pids, ctypes.sizeof(pids))
        return list(pids[: max(0, count)])

    def bsd_info(pid: int) -> bytes | None:
        """Return a process's ``struct proc_bsdinfo``, or None if it has ended or may not be inspected."""
        info = ctypes.create_string_buffer(BSDINFO_SIZE)
        if _libc.proc_pidinfo(pid, PROC_PIDTBSDINFO, 0, info, BSDINFO_SIZE) != BSDINFO_SIZE:
            return None
        return info.raw

    def process_arguments(pid: int) -> bytes:
        """Return the answer to KERN_PROCARGS2. Raise OSError."""
        name = (ctypes.c_int * 3)(CTL_KERN, KERN_PROCARGS2, pid)
        size, answer = ctypes.c_size_t(_ARG_MAX), ctypes.create_string_buffer(_ARG_MAX)
        if _libc.sysctl(name, 3, answer, ctypes.byref(size), None, 0) < 0:
            raise OSError(ctypes.get_errno(), "sysctl")
        return answer.raw[: size.value]

    def kernel_text(name: bytes) -> str:
        """Return a text from sysctlbyname(3), such as ``kern.bootsessionuuid``. Raise OSError."""
        size, answer = ctypes.c_size_t(256), ctypes.create_string_buffer(256)
        if _libc.sysctlbyname(name, answer, ctypes.byref(size), None, 0) < 0:
            raise OSError(ctypes.get_errno(), os.fsdecode(name))
        return answer.value.decode("ascii", "replace")
