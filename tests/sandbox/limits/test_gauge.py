"""A container's control group, from recorded trees of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom.core.confinement.limit import Reading
from mudroom.sandbox.limits.gauge import Gauge, find

V1 = ("memory", "pids", "cpu", "cpuacct")


def proc(root: Path, mountinfo: str, own: str, theirs: str) -> str:
    for pid, cgroup in (("self", own), ("7", theirs)):
        (root / "proc" / pid).mkdir(parents=True)
        (root / "proc" / pid / "cgroup").write_text(cgroup)
    (root / "proc/self/mountinfo").write_text(mountinfo)
    return str(root / "proc")


def group(root: Path, name: str, **files: str) -> None:
    for file, content in files.items():
        place = root / name / file.replace("__", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content + "\n")


@pytest.fixture
def first(tmp_path: Path) -> str:
    """Version 1."""
    table = "".join(f"30 25 0:26 / {tmp_path}/cg/{name} rw - cgroup cgroup rw,{name}\n" for name in V1)
    own = "".join(f"{number}:{name}:/\n" for number, name in enumerate(V1, 1))
    theirs = "".join(f"{number}:{name}:/docker/c\n" for number, name in enumerate(V1, 1))
    return proc(tmp_path, table, own, theirs)


def test_version_1_is_read_as_a_difference(tmp_path: Path, first: str) -> None:
    memory, counts = tmp_path / "cg/memory/docker", tmp_path / "cg"
    group(memory, "c", memory__oom_control="oom_kill 0", memory__max_usage_in_bytes="900000000",
          memory__limit_in_bytes="1000000000", memory__failcnt="3")  # fmt: skip
    group(counts, "pids/docker/c", pids__events="max 2")
    group(counts, "cpuacct/docker/c", cpuacct__usage="5000000000")
    gauge = Gauge(find(7, first))
    gauge.begin()
    assert gauge.reading() == Reading(cpu=0.0)
    group(memory, "c", memory__oom_control="oom_kill 1", memory__max_usage_in_bytes="999999999")
    group(counts, "pids/docker/c", pids__events="max 5")
    group(counts, "cpuacct/docker/c", cpuacct__usage="6000000000")
    assert gauge.reading() == Reading(
        memory_kills=1, memory_full=1, processes_refused=3, memory_peak=999999999, cpu=1.0
    )


def test_a_kill_of_a_group_that_was_not_full_is_the_machines(tmp_path: Path, first: str) -> None:
    group(tmp_path / "cg/memory/docker", "c", memory__oom_control="oom_kill 0", memory__limit_in_bytes="1000000000",
          memory__max_usage_in_bytes="5000000")  # fmt: skip
    gauge = Gauge(find(7, first))
    group(tmp_path / "cg/memory/docker", "c", memory__oom_control="oom_kill 1")
    assert gauge.reading() == Reading(memory_kills=1)


def test_version_2_is_read_as_a_difference(tmp_path: Path) -> None:
    table = f"30 25 0:26 / {tmp_path}/cg rw - cgroup2 cgroup2 rw\n"
    place = find(7, proc(tmp_path, table, "0::/user.slice\n", "0::/docker/c\n"))
    group(tmp_path / "cg/docker", "c", memory__events="oom 1\noom_kill 1", memory__peak="10", pids__peak="9")
    gauge = Gauge(place)
    group(tmp_path / "cg/docker", "c", memory__events="oom 3\noom_kill 2", memory__peak="20", pids__peak="9")
    assert gauge.reading() == Reading(memory_kills=1, memory_full=2, memory_peak=20)


@pytest.mark.parametrize("theirs", ["", "0::/user.slice\n", "0::/../elsewhere\n"])
def test_a_group_that_is_ours_or_not_in_sight_says_nothing(tmp_path: Path, theirs: str) -> None:
    table = f"30 25 0:26 / {tmp_path}/cg rw - cgroup2 cgroup2 rw\n"
    assert Gauge(find(7, proc(tmp_path, table, "0::/user.slice\n", theirs))).reading() is None


def test_a_container_that_is_gone_says_nothing(tmp_path: Path, first: str) -> None:
    assert Gauge(find(7, first)).reading() is None
    assert Gauge(find(8, first)).reading() is None
    assert Gauge(None).reading() is None
