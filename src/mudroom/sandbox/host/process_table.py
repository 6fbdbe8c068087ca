"""This user's processes with parent, process group and start time, for platforms without pid namespaces.

Warden code: the rules in ``ext/macos/warden.py`` hold here. macOS: libproc and sysctl(3) (``core/system/libproc.py``).
Linux, where this is tested: proc(5). The macOS part has never been run.
"""

from __future__ import annotations

import os
import sys

from mudroom.core.system.libproc import AT_PGID, AT_PPID, AT_STATUS, AT_UID, SSTOP, SZOMB, start_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = tuple[int, int, int, bool, int]
    """pid, parent's pid, process group, whether it is stopped, start time (any unit; it tells a reused pid apart)."""


def rows() -> Iterator[Row]:
    """Yield this user's live processes. A process that ends meanwhile is left out."""
    return _rows()


def carries(pid: int, variable: bytes) -> bool:
    """Return whether a process was started with ``NAME=VALUE`` in its environment. It may have changed that since.

    For programs that macOS restricts (CS_RESTRICT), such as Apple's own /bin/sh and /usr/bin/perl, KERN_PROCARGS2
    leaves out the environment (xnu, bsd/kern/kern_sysctl.c, sysctl_procargsx): the result is always False.
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
    """Parse ``struct proc_bsdinfo`` into a row. Return None for a process that has ended or is another user's."""

    def word(offset: int) -> int:
        return int.from_bytes(info[offset : offset + 4], "little")

    if word(AT_UID) != mine or word(AT_STATUS) == SZOMB:
        return None
    return pid, word(AT_PPID), word(AT_PGID), word(AT_STATUS) == SSTOP, start_in(info)


def words_of(arguments: bytes) -> list[bytes]:
    """Return the arguments and variables in a KERN_PROCARGS2 answer: a count, the path, then the words,
    NUL-separated."""
    return [word for word in arguments[4:].split(b"\0") if word]


if sys.platform == "darwin":
    from mudroom.core.system.libproc import all_pids, bsd_info, process_arguments

    def _darwin_rows() -> Iterator[Row]:
        mine = os.getuid()
        for pid in all_pids():
            info = bsd_info(pid)
            row = row_of(pid, info, mine) if info is not None else None
            if row is not None:
                yield row

    def _darwin_words(pid: int) -> list[bytes]:
        return words_of(process_arguments(pid))

    _rows, _words = _darwin_rows, _darwin_words
else:
    _rows, _words = _linux_rows, _linux_words
