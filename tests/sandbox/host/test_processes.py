"""Resource use of running commands: the choice of the oldest process."""

from __future__ import annotations

import itertools

import pytest

from mudroom.sandbox.host import processes


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
