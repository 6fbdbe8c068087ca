"""Limits as values: sizes, what is written where, and what is said of what the kernel has counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.confinement.limit import (
    RLIMIT_CORE,
    RLIMIT_DATA,
    RLIMIT_FSIZE,
    RLIMIT_NOFILE,
    RLIMIT_NPROC,
    LimitReached,
    Limits,
    Reading,
    Write,
    command_limits,
    difference,
    explain_limits,
    needed_controllers,
    other_reached_limits,
    parse_size,
    reached_limits,
    reading_v1,
    reading_v2,
    rlimits,
    show_size,
    stand_in,
    total_limits,
    writes_v1,
    writes_v2,
)
from tiers import each

ALL = Limits(
    memory=512_000_000, processes=100, cpus=1.5, io=1 << 20, open_files=64, file_size=10**6, total_memory=2 << 30,
    total_processes=500, total_cpus=2,
)  # fmt: skip


@each(
    ("text", "size"),
    [
        ("0", 0), ("4096", 4096), ("17B", 17), ("512 MB", 512_000_000), ("512M", 512 << 20), ("2 GiB", 2 << 30),
        ("2g", 2 << 30),
        ("1.5kB", 1500), (" 1 TB ", 10**12), ("64KiB", 65536),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@each("text", ["", "MB", "-1", "1e3", "1,5 MB", "1 PB", "half", "1.2.3", "\u0663MB", "9999999999 TB", "."])
def test_what_is_no_size(text: str) -> None:
    assert parse_size(text) is None


@each(
    ("size", "text"),
    [
        (512_000_000, "512 MB"), (512 << 20, "512 MiB"), (1 << 30, "1 GiB"), (10_000, "10 kB"), (10, "10 bytes"),
        (123_456_789, "123.5 MB"), (0, "0 bytes"), (3 << 40, "3 TiB"),
    ],
)  # fmt: skip
def test_a_size_is_shown_as_somebody_may_have_written_it(size: int, text: str) -> None:
    assert show_size(size) == text


@given(st.integers(0, 10**5), st.sampled_from(["kB", "MB", "GB", "KiB", "MiB", "GiB"]))
def test_what_is_shown_can_be_read_again(number: int, unit: str) -> None:
    size = parse_size(f"{number} {unit}")
    assert size is not None
    assert parse_size(show_size(size).replace("bytes", "b")) == size


def test_only_what_needs_a_group_asks_for_one() -> None:
    assert needed_controllers(Limits(open_files=10, file_size=10)) == frozenset()
    assert needed_controllers(Limits(total_memory=10)) == {"memory"}
    assert needed_controllers(ALL) == {"memory", "pids", "cpu", "io"}


def test_what_is_written_in_version_2() -> None:
    assert list(writes_v2(command_limits(ALL), ["8:0", "259:1"], 1)) == [
        Write("memory", "memory.max", "512000000"),
        Write("memory", "memory.swap.max", "0", True),
        Write("pids", "pids.max", "101"),
        Write("cpu", "cpu.max", "150000 100000"),
        Write("io", "io.max", "8:0 rbps=1048576 wbps=1048576"),
        Write("io", "io.max", "259:1 rbps=1048576 wbps=1048576"),
    ]
    assert [one.content for one in writes_v2(total_limits(ALL), ())] == ["2147483648", "0", "500", "200000 100000"]


def test_what_is_written_in_version_1() -> None:
    assert list(writes_v1(command_limits(ALL._replace(io=None)), 1)) == [
        Write("memory", "memory.limit_in_bytes", "512000000"),
        Write("memory", "memory.swappiness", "0", True),
        Write("pids", "pids.max", "101"),
        Write("cpu", "cpu.cfs_period_us", "100000"),
        Write("cpu", "cpu.cfs_quota_us", "150000"),
    ]


def test_the_kernel_takes_no_less_than_a_millisecond() -> None:
    assert [one.content for one in writes_v2([("cpus", 0.001)], ())] == ["1000 100000"]


def test_what_would_be_done_in_lines() -> None:
    assert list(explain_limits(Limits(open_files=3))) == []
    assert list(explain_limits(ALL)) == [
        "  +  a control group of its own: memory 512 MB, processes 100, cpus 1.5, io 1 MiB/s",
        "  +  the project's group: memory 2 GiB, processes 500, cpus 2",
    ]


def test_rlimits() -> None:
    assert rlimits(Limits()) == ((RLIMIT_CORE, 1, 1),)
    assert rlimits(ALL) == ((RLIMIT_CORE, 1, 1), (RLIMIT_NOFILE, 64, 64), (RLIMIT_FSIZE, 10**6, 10**6))


def test_what_stands_in_for_a_group() -> None:
    assert stand_in("memory", 1 << 30, counts_processes=False)[0] == (RLIMIT_DATA, 1 << 30, 1 << 30)
    assert stand_in("processes", 10, counts_processes=True)[0] == (RLIMIT_NPROC, 13, 13)
    nothing = stand_in("processes", 10, counts_processes=False)
    assert nothing == (None, "limit processes, 10: not enforced")
    assert stand_in("cpus", 1.5, counts_processes=True) == (None, "limit cpus, 1.5: not enforced")
    assert stand_in("io", 10**6, counts_processes=True) == (None, "limit io, 1 MB/s: not enforced")


OF_ALL = " for all commands of this project"
V2 = {
    "memory.events": "low 0\nhigh 0\nmax 40\noom 2\noom_kill 1\noom_group_kill 0\n",
    "memory.peak": "67108864\n",
    "pids.events": "max 7\n",
    "pids.peak": "11\n",
    "cpu.stat": "usage_usec 1500000\nuser_usec 1\nnr_periods 9\nnr_throttled 4\nthrottled_usec 250000\n",
    "io.stat": "8:0 rbytes=10 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n253:0 rbytes=1 wbytes=2\n",
}
V1 = {
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    "memory.failcnt": "33\n",
    "memory.max_usage_in_bytes": "67108864\n",
    "pids.events": "max 7\n",
    "cpu.stat": "nr_periods 9\nnr_throttled 4\nthrottled_time 250000000\n",
    "cpuacct.usage": "1500000000\n",
}


def test_readings() -> None:
    assert reading_v2(V2) == Reading(1, 2, 7, 0.25, 67108864, 11, 1.5, 11, 22)
    assert reading_v1(V1) == Reading(1, 33, 7, 0.25, 67108864, None, 1.5, None, None)
    assert reading_v2({}) == reading_v1({}) == Reading()


@given(st.dictionaries(st.sampled_from(sorted({*V1, *V2})), st.text(max_size=40)))
def test_a_kernel_that_writes_something_else_breaks_nothing(texts: dict[str, str]) -> None:
    for reading in (reading_v1(texts), reading_v2(texts)):
        assert reading.memory_kills >= 0


@each(
    ("limits", "now", "total", "lines"),
    [
        (ALL, Reading(), Reading(), []),
        (ALL, Reading(1, 5), Reading(), ["killed: memory, 512 MB"]),
        (ALL, Reading(1, 0), Reading(memory_full=1), ["killed: memory, 2 GiB" + OF_ALL]),
        (ALL, Reading(1, 0), Reading(), ["killed: memory, the machine had no more"]),
        (ALL, Reading(0, 9), Reading(), []),  # it was full, and something could be freed
        (ALL, Reading(processes_refused=3), Reading(), ["refused: processes, 100 (3 times)"]),
        (Limits(total_processes=9), Reading(), Reading(processes_refused=1), ["refused: processes, 9" + OF_ALL]),
        (Limits(total_processes=9), Reading(processes_refused=1), Reading(), ["refused: processes, 9" + OF_ALL]),
        (ALL, Reading(throttled=3.21), Reading(), ["slowed: cpus, 1.5 (held back for 3.2 s)"]),
        (Limits(total_cpus=2), Reading(), Reading(0, 0, 0, 1), ["slowed: cpus, 2" + OF_ALL + " (held back for 1.0 s)"]),
    ],
)  # fmt: skip
def test_what_is_said(limits: Limits, now: Reading, total: Reading, lines: list[str]) -> None:
    assert [str(one) for one in reached_limits(limits, now, total)] == lines


def test_what_is_said_of_the_others() -> None:
    assert other_reached_limits(Limits(), 25, None, None) == ()  # a signal of that name, but no limit of ours
    assert [str(one) for one in other_reached_limits(ALL, 25, 90.0, 8 << 20)] == [
        "killed: file size, 1 MB",
        "killed: time, 90 s",
        "cut: output, 8 MiB",
    ]


def test_only_what_was_counted_during_the_command() -> None:
    before, now = Reading(1, 2, 3, 0.5, memory_peak=7), Reading(4, 4, 4, 2.0, memory_peak=9)
    assert difference(now, before) == Reading(3, 2, 1, 1.5, memory_peak=9)


def test_json() -> None:
    assert LimitReached("memory", "killed", 10, amount=1)._asdict() == {
        "kind": "memory", "action": "killed", "limit": 10, "whose": "command", "amount": 1,
    }  # fmt: skip
