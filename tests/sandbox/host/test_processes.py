"""Resource use of running commands: the choice of the oldest process."""

from __future__ import annotations

import itertools
import os
import struct
from pathlib import Path

import pytest

from mudroom.core.confinement.spec import Bind
from mudroom.core.system.libproc import BSDINFO_SIZE, SSTOP, SZOMB
from mudroom.sandbox.host import processes
from mudroom.sandbox.host.host import without
from mudroom.sandbox.host.process_table import carries, row_of, rows, words_of


def stat(pid: int, started: int) -> bytes:
    """proc_pid_stat(5): the fields 3 to 52, the 22nd is when it started, in clock ticks after boot."""
    fields = ["S", *("0" for _ in range(49))]
    fields[19] = str(started)
    return f"{pid} (a) b) {' '.join(fields)}\n".encode()


@pytest.mark.parametrize(
    ("generations", "started", "oldest"),
    [
        ([[32767], [305]], {32767: 90, 305: 91}, 32767),  # the numbers began again between parent and child
        ([[32767], [305]], {32767: 90, 305: 90}, 32767),  # in one tick: parents come first
        ([[310, 32760]], {310: 95, 32760: 90}, 32760),  # the parent has gone, both are children of the reaper
        ([[300, 301]], {301: 90}, 301),  # 300 ended meanwhile
        ([[300, 301]], {}, 300),
    ],
)
def test_the_oldest_is_who_started_first(
    monkeypatch: pytest.MonkeyPatch, generations: list[list[int]], started: dict[int, int], oldest: int
) -> None:
    def read(pid: int, name: bytes) -> bytes:
        if name == b"environ":
            return b"A=b\0MARK=one\0"
        return stat(pid, started[pid]) if name == b"stat" and pid in started else b""

    monkeypatch.setattr(processes, "descendants", lambda _pid: itertools.chain.from_iterable(generations))
    monkeypatch.setattr(processes, "_read", read)
    monkeypatch.setattr(processes, "_ports", lambda pid: set[int]())
    assert processes.usages(1, b"MARK")["one"].pid == oldest


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


def test_a_link_to_what_is_above_a_hidden_file_is_left_out(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    (etc / "ssh").mkdir(parents=True)
    for name in ("shadow", "hosts", "ssh/key", "ssh/config"):
        (etc / name).touch()
    for name, target in (("up", "."), ("top", "/"), ("same", "shadow"), ("fine", "hosts"), ("ssh/above", "..")):
        (etc / name).symlink_to(target)
    hidden = [os.fsencode(etc / "shadow"), os.fsencode(etc / "ssh/key")]
    shown = [os.path.relpath(os.fsdecode(bind.path), etc) for bind in without([Bind(bytes(etc), bytes(etc))], hidden)]
    assert shown == ["fine", "hosts", "ssh/config"]
