"""Limits that nobody asked for, on this machine."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Place
from mudroom.core.confinement.default_limit import INOTIFY, PROCESSES
from mudroom.core.confinement.limit import OFF, PREPARED_PROCESSES, Limits
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported
from mudroom.sandbox.client.launcher_client import FIRST_TO_GO
from mudroom.sandbox.limits.cgroup import Leaf, find, read
from test_limits import if_held

pytestmark = [
    pytest.mark.both_users,
    pytest.mark.root,
    pytest.mark.alone,  # they use up the user's instances of inotify, which other tests need, too
    if_namespaces,
]

PYTHON = b"/usr/bin/python3"
OWN = int(Path("/proc/sys/user/max_inotify_instances").read_text())
TAKE_ALL = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
number = 0
while libc.inotify_init1(0) >= 0:
    number += 1
print(number)
"""
REPORT = """
import json, os, resource
def size(path):
    found = os.statvfs(path)
    return [found.f_blocks * found.f_frsize, found.f_files]
print(json.dumps({
    "tmp": size("/tmp"), "others": [size(path) for path in ("/var/tmp", "/dev/shm")],
    "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
    "namespaces": int(open("/proc/sys/user/max_user_namespaces").read()),
}))
"""


def inside(place: Place, program: str, settings: Settings, before: int = 0) -> str:
    session = place.session(settings)
    for _number in range(before):
        assert session.run([b"true"], fork="f").exit_code == 0
    result = session.run([PYTHON, b"-c", program.encode()], fork="f")
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode()


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("before", [0, 3], ids=["first", "prepared"])
def test_watchers_of_files_leave_half_to_the_user(place: Place, level: int, before: int) -> None:
    taken = int(inside(place, TAKE_ALL, Settings(level=level), before))
    assert 0 < taken <= min(INOTIFY, OWN // 2)


@pytest.fixture
def background(place: Place) -> Iterator[None]:
    """A command that holds all instances that it can get."""
    session = place.session(Settings())
    started, leave = os.pipe(), os.pipe()
    program = TAKE_ALL + "sys.stdout.flush(); sys.stdin.read()"
    child = os.fork()
    if not child:
        os.close(started[0])
        os.close(leave[1])
        os.dup2(leave[0], 0)
        os.dup2(started[1], 1)
        from mudroom.session import Stdio

        session.run([PYTHON, b"-c", program.encode()], fork="f", stdio=Stdio(0, 1, 2))
        os._exit(0)
    os.close(started[1])
    os.close(leave[0])
    assert os.read(started[0], 100)
    yield
    os.close(leave[1])
    os.close(started[0])
    os.waitpid(child, 0)


def test_the_user_can_watch_files_while_a_command_takes_all(background: None) -> None:
    libc = ctypes.CDLL(None)
    mine = [libc.inotify_init1(0) for _number in range(OWN // 4)]
    try:
        assert min(mine) >= 0
    finally:
        for descriptor in mine:
            if descriptor >= 0:
                os.close(descriptor)


@pytest.mark.parametrize(
    ("limit", "least", "most"), [(3, 3, 3), (OFF, OWN // 2 + 1, OWN)], ids=["asked for", "switched off"]
)
def test_the_number_of_watchers_is_the_policys(place: Place, limit: float, least: int, most: int) -> None:
    assert least <= int(inside(place, TAKE_ALL, Settings(limits=Limits(inotify=limit)))) <= most


@pytest.mark.parametrize("before", [0, 3], ids=["first", "prepared"])
def test_memory_and_processes_are_bounded(place: Place, before: int) -> None:
    found = json.loads(inside(place, REPORT, Settings(), before))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found["tmp"][0] <= memory * 0.26
    assert all(size <= memory * 0.13 for size, _files in found["others"])
    assert all(files <= 1 << 20 for _size, files in (found["tmp"], *found["others"]))
    assert found["namespaces"] == 0
    if os.geteuid():
        assert found["processes"] <= PROCESSES + PREPARED_PROCESSES


def test_a_program_of_many_threads_ends_at_the_limit_of_the_session(place: Place) -> None:
    """The limit itself, with a small number: the rlimit of the default is the same step."""
    if not os.geteuid():
        pytest.skip("RLIMIT_NPROC does not hold for root")
    program = """
import os
children = []
try:
    while len(children) < 500:
        child = os.fork()
        if not child:
            os.read(0, 1)
            os._exit(0)
        children.append(child)
except BlockingIOError:
    pass
print(len(children))
for child in children:
    os.kill(child, 9)
"""
    settings = Settings(limits=Limits(processes=40, missing="degrade"))
    assert int(inside(place, program, settings)) <= 40 + PREPARED_PROCESSES


def test_commands_are_the_first_to_go_when_the_machine_has_no_memory(place: Place) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    found = int(inside(place, 'print(open("/proc/self/oom_score_adj").read())', Settings(), before=2))
    assert found == max(own, FIRST_TO_GO)


def test_the_size_of_tmp_is_the_policys(place: Place) -> None:
    found = json.loads(inside(place, REPORT, Settings(limits=Limits(tmp=64 << 20))))
    assert found["tmp"][0] == 64 << 20
    assert [size for size, _files in found["others"]] == [32 << 20, 32 << 20]


def test_a_full_tmp_is_an_error_of_the_program(place: Place) -> None:
    program = """
import errno
try:
    with open("/tmp/big", "wb") as stream:
        for _number in range(10):
            stream.write(bytes(1 << 20))
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    assert inside(place, program, Settings(limits=Limits(tmp=4 << 20))) == "ENOSPC\n"


@if_held
def test_a_group_that_is_made_anyway_holds_the_usual_limits(place: Place) -> None:
    if os.geteuid():
        pytest.skip("a group of an ordinary user is made by systemd: test_limits.py")
    tree = find("usual", Limits(), frozenset(["cpu"]))
    leaf = Leaf(tree, Limits(cpus=1), (), Limits(memory=1 << 30, processes=99))
    try:
        if "memory" in tree.parents or tree.version == 2:
            assert leaf.completed(Limits(cpus=1)) == Limits(cpus=1, memory=1 << 30, processes=99)
        place_of_pids = tree.parents.get("pids", tree.totals[0])
        numbers = [read(f"{place_of_pids}/{name}/pids.max") for name in os.listdir(place_of_pids)]
        assert "100\n" in numbers
    finally:
        leaf.close()


def test_a_limit_that_needs_namespaces_is_refused_without_them(place: Place) -> None:
    session = place.session(Settings(limits=Limits(inotify=5)))
    session.machine.confinement.mode = "landlock"  # as after a refusal of the kernel
    with pytest.raises(Unsupported, match="inotify"):
        session.run([b"true"], fork="f")
