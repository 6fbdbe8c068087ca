"""The command's processes, where the kernel keeps no account of them."""

from __future__ import annotations

import os
import struct

from mudroom.core.system.libproc import BSDINFO_SIZE, SSTOP, SZOMB
from mudroom.sandbox.host.process_table import carries, row_of, rows, words_of

ME = 501


def bsdinfo(
    pid: int, parent: int, group: int, *, status: int = 2, uid: int = ME, started: tuple[int, int] = (7, 8)
) -> bytes:
    """As bsd/sys/proc_info.h lays it out."""
    words = (0, status, 0, pid, parent, uid, 20, uid, 20, uid, 20, 0)
    return struct.pack("<12I16s32sIIIIIiQQ", *words, b"sh", b"sh", 3, group, 0, 0, 0, 0, *started)


def test_the_layout_of_a_row() -> None:
    info = bsdinfo(100, 1, 99)
    assert len(info) == BSDINFO_SIZE
    assert row_of(100, info, ME) == (100, 1, 99, False, 7_000_008)
    assert row_of(100, bsdinfo(100, 1, 99, status=SSTOP), ME) == (100, 1, 99, True, 7_000_008)
    assert row_of(100, bsdinfo(100, 1, 99, status=SZOMB), ME) is None
    assert row_of(100, info, 502) is None


def test_words_and_variables() -> None:
    answer = struct.pack("<I", 2) + b"/bin/sh\0\0\0\0sh\0-c\0A=1\0MUDROOM_RUN=abc\0\0"
    assert b"MUDROOM_RUN=abc" in words_of(answer)


def test_ourselves() -> None:
    (row,) = [row for row in rows() if row[0] == os.getpid()]
    assert row[1:4] == (os.getppid(), os.getpgrp(), False)
    assert carries(os.getpid(), b"PATH=" + os.environb[b"PATH"]) and not carries(1 << 22, b"PATH=/")
