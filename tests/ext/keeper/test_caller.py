"""Which processes have no equal, and what is compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom.ext.keeper.caller import FIELDS, identity, ignored_signals

STATUS = (
    "Umask:\t0022\nUid:\t1 1 1 1\nSeccomp:\t0\nSeccomp_filters:\t0\nNoNewPrivs:\t0\nTracerPid:\t0\n"
    "SigIgn:\t0000000000001002\n"
)


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """A directory as /proc has one for a process."""
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "stat").write_text("7 (a ) b) S " + " ".join(map(str, range(4, 53))))
    (tmp_path / "root").mkdir()
    (tmp_path / "ns").mkdir()
    for name in ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts"):
        (tmp_path / "ns" / name).symlink_to(f"{name}:[1]")
    return tmp_path


def seen(process: Path) -> tuple[object, ...] | None:
    directory = os.open(process, os.O_PATH)
    try:
        return identity(directory)
    finally:
        os.close(directory)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("NoNewPrivs:\t0", "NoNewPrivs:\t1"),
        ("NoNewPrivs:\t0\n", ""),
        ("TracerPid:\t0", "TracerPid:\t12"),
        ("TracerPid:\t0\n", ""),
        ("Seccomp:\t0\nSeccomp_filters:\t0\n", "Seccomp:\t2\n"),
        ("Seccomp:\t0\nSeccomp_filters:\t0\n", ""),
    ],
)
def test_no_equal(process: Path, line: str, other: str) -> None:
    assert seen(process) is not None
    (process / "status").write_text(STATUS.replace(line, other))
    assert seen(process) is None


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("Umask:\t0022", "Umask:\t0002"),
        ("Uid:\t1 1 1 1", "Uid:\t1 2 1 1"),
        ("Seccomp:\t0\nSeccomp_filters:\t0", "Seccomp:\t2\nSeccomp_filters:\t2"),
    ],
)
def test_another_value_of_status_is_seen(process: Path, line: str, other: str) -> None:
    before = seen(process)
    (process / "status").write_text(STATUS.replace(line, other))
    assert seen(process) not in (before, None)


@pytest.mark.parametrize("name", ["attr/current", "coredump_filter", "loginuid"])
def test_another_file_or_none(process: Path, name: str) -> None:
    without = seen(process)
    (process / name).parent.mkdir(exist_ok=True)
    (process / name).write_text("one")
    one = seen(process)
    (process / name).write_text("two")
    assert len({without, one, seen(process)}) == 3


@pytest.mark.parametrize("name", ["user", "mnt", "net", "time_for_children"])
def test_another_namespace(process: Path, name: str) -> None:
    before = seen(process)
    (process / "ns" / name).unlink()
    (process / "ns" / name).symlink_to(f"{name}:[2]")
    assert seen(process) not in (before, None)


def test_another_root(process: Path) -> None:
    before = seen(process)
    (process / "root").rename(process / "other")
    (process / "root").mkdir()
    assert seen(process) not in (before, None)


@pytest.mark.parametrize("number", [19, 40, 41], ids=["nice", "rt_priority", "policy"])
def test_another_priority(process: Path, number: int) -> None:
    before = seen(process)
    (process / "stat").write_text((process / "stat").read_text().replace(f" {number} ", " 99 "))
    assert seen(process) not in (before, None)


def test_a_process_that_has_gone(tmp_path: Path) -> None:
    assert seen(tmp_path) is None


def test_the_signals_that_are_ignored(process: Path) -> None:
    directory = os.open(process, os.O_PATH)
    assert ignored_signals(directory) == {2, 13}
    os.close(directory)


def test_all_fields_are_there() -> None:
    names = {line.partition(b":")[0] for line in Path("/proc/self/status").read_bytes().splitlines()}
    assert set(FIELDS) <= names


BOUND = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from mudroom.ext.keeper.caller import identity
place = sys.argv[2]
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "--bind", "/", place], check=True)
def seen(pid):
    directory = os.open(f"/proc/{pid}", os.O_PATH)
    return identity(directory)
def child(enter):
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        if enter:
            os.chroot(place)
        os.write(ready[1], b"r")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    found = seen(pid)
    os.write(go[1], b"g")
    os.waitpid(pid, 0)
    return found
print(seen(os.getpid()) == child(False), seen(os.getpid()) == child(True))
"""


@pytest.mark.both_users
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount here")
def test_a_root_that_is_a_bind_mount_of_the_same_directory(tmp_path: Path) -> None:
    source = str(Path(__file__).parents[3] / "src")
    words = ["unshare", "--mount", sys.executable, "-c", BOUND, source, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
