"""Processes of this user, with parent, process group and start: for platforms without pid namespaces.

Part of the warden's process: the rules at the top of ``sandbox/macos/warden.py`` hold here. On macOS by libproc
(proc_listallpids, proc_pidinfo: bsd/sys/proc_info.h) and sysctl(3); on Linux, where this is tested, by proc(5). The
part for macOS has never been run.
"""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = tuple[int, int, int, bool, int]
    """pid, parent's pid, process group, whether it is stopped, start time (in any unit; it tells a reused pid
    apart)."""

PROC_PIDTBSDINFO, SSTOP, SZOMB = 3, 4, 5
CTL_KERN, KERN_PROCARGS2 = 1, 49
BSDINFO_SIZE, AT_STATUS, AT_PPID, AT_UID, AT_PGID, AT_START = 136, 4, 16, 20, 100, 120
"""struct proc_bsdinfo: eleven words of 32 bits and one reserved, 16 and 32 bytes of names, pbi_nfiles, pbi_pgid,
pbi_pjobc, e_tdev, e_tpgid, pbi_nice; then two words of 64 bits, seconds and microseconds."""


def rows() -> Iterator[Row]:
    """Yield all live processes of this user. A process that ends meanwhile is left out."""
    return _rows()


def carries(pid: int, variable: bytes) -> bool:
    """Return whether a process was started with ``NAME=VALUE`` in its environment. The process may have changed that
    since.

    macOS leaves the environment out of KERN_PROCARGS2 for programs that it restricts (CS_RESTRICT: xnu,
    bsd/kern/kern_sysctl.c, sysctl_procargsx), as Apple's own are: /bin/sh, /usr/bin/perl. For those the result is
    always False.
    """
    try:
        return variable in _words(pid)
    except OSError:
        return False  # it has ended, or may not be inspected


def _linux_rows() -> Iterator[Row]:
    mine = os.getuid()
    for name in os.listdir(b"/proc"):
        if not name.isdigit():
            continue
        try:
            with open(b"/proc/%s/stat" % name, "rb") as stream:
                if os.fstat(stream.fileno()).st_uid != mine:
                    continue
                words = stream.read().rpartition(b") ")[2].split()
        except OSError:
            continue
        if len(words) > 19 and words[0] not in (b"Z", b"X"):
            yield int(name), int(words[1]), int(words[2]), words[0] in (b"T", b"t"), int(words[19])


def _linux_words(pid: int) -> list[bytes]:
    with open(b"/proc/%d/environ" % pid, "rb") as stream:
        return stream.read().split(b"\0")


def row_of(pid: int, info: bytes, mine: int) -> Row | None:
    """Parse ``struct proc_bsdinfo`` into a row. Return None for a process that has ended, or of another user."""

    def word(offset: int) -> int:
        return int.from_bytes(info[offset : offset + 4], "little")

    if word(AT_UID) != mine or word(AT_STATUS) == SZOMB:
        return None
    started = int.from_bytes(info[AT_START : AT_START + 8], "little") * 1_000_000
    started += int.from_bytes(info[AT_START + 8 : AT_START + 16], "little")
    return pid, word(AT_PPID), word(AT_PGID), word(AT_STATUS) == SSTOP, started


def words_of(arguments: bytes) -> list[bytes]:
    """Return the arguments and variables in the answer of KERN_PROCARGS2: a count, the path, then all of them, with
    NULs."""
    return [word for word in arguments[4:].split(b"\0") if word]


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

    def _darwin_rows() -> Iterator[Row]:
        mine = os.getuid()
        room = _libc.proc_listallpids(None, 0) + 64
        pids = (ctypes.c_int * room)()
        count = _libc.proc_listallpids(pids, ctypes.sizeof(pids))
        info = ctypes.create_string_buffer(BSDINFO_SIZE)
        for pid in pids[: max(0, count)]:
            if _libc.proc_pidinfo(pid, PROC_PIDTBSDINFO, 0, info, BSDINFO_SIZE) == BSDINFO_SIZE:
                row = row_of(pid, info.raw, mine)
                if row is not None:
                    yield row

    def _darwin_words(pid: int) -> list[bytes]:
        name = (ctypes.c_int * 3)(CTL_KERN, KERN_PROCARGS2, pid)
        size = ctypes.c_size_t(1 << 20)  # ARG_MAX of macOS
        answer = ctypes.create_string_buffer(size.value)
        if _libc.sysctl(name, 3, answer, ctypes.byref(size), None, 0) < 0:
            raise OSError(ctypes.get_errno(), "sysctl")
        return words_of(answer.raw[: size.value])

    _rows, _words = _darwin_rows, _darwin_words
else:
    _rows, _words = _linux_rows, _linux_words
