"""Finding a place for control groups: the kernel's tables, and a tree of plain files instead of a real one. Tests with
real groups are in test_limits.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.core.confinement.limit import Limits
from mudroom.sandbox.limits.cgroup import (
    CgroupMount,
    CgroupTree,
    Leaf,
    NoControlGroup,
    directory,
    find,
    find_v2,
    memberships,
    mounts,
    sweep,
)
from mudroom.sandbox.limits.limiter import bus_address, disks, make_scope
from tiers import each

pytestmark = [pytest.mark.both_users, pytest.mark.root]

MOUNTINFO = """\
22 28 0:20 / /proc rw,nosuid - proc proc rw
30 28 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
31 28 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct
32 28 0:28 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""


def test_the_mounts() -> None:
    assert mounts(MOUNTINFO) == [
        CgroupMount("cgroup2", "/sys/fs/cgroup", "/", ("rw", "nsdelegate")),
        CgroupMount("cgroup", "/sys/fs/cgroup/cpu,cpuacct", "/", ("rw", "cpu", "cpuacct")),
        CgroupMount("cgroup", "/sys/fs/cgroup/memory", "/docker/1", ("rw", "memory")),
    ]
    assert mounts("") == []


def test_the_memberships() -> None:
    table = "3:cpu,cpuacct:/\n2:memory:/a:b\n0::/user.slice/session-1.scope\n"
    assert memberships(table) == {"cpu": "/", "cpuacct": "/", "memory": "/a:b", "": "/user.slice/session-1.scope"}


@each(
    ("root", "path", "place"),
    [
        ("/", "/", "/cg"),
        ("/", "/a/b", "/cg/a/b"),
        ("/docker/1", "/docker/1/x", "/cg/x"),
        ("/docker/1", "/docker/1", "/cg"),
        ("/docker/1", "/docker/12", None),
        ("/", "/../..", None),
    ],
)
def test_where_a_group_is_in_the_file_system(root: str, path: str, place: str | None) -> None:
    assert directory(CgroupMount("cgroup2", "/cg", root, ()), path) == place


def group(path: Path, controllers: str) -> Path:
    path.mkdir()
    for name, content in (("controllers", controllers), ("subtree_control", ""), ("procs", "")):
        (path / f"cgroup.{name}").write_text(content)
    return path


def test_no_group_is_left_where_none_can_be_used(tmp_path: Path) -> None:
    """A plain directory that looks like a group: groups made below it have no controllers, and are removed again."""
    top = group(tmp_path / "top", "cpu memory pids")
    here = group(top / "session", "memory pids")
    with pytest.raises(NoControlGroup, match="No such file or directory at"):
        find_v2(str(here), str(top), "vault", Limits(), frozenset(["memory"]))
    assert not list(tmp_path.rglob("mudroom"))


def test_a_controller_that_nobody_has(tmp_path: Path) -> None:
    top = group(tmp_path / "top", "cpu")
    with pytest.raises(NoControlGroup, match=r"no group from .* upwards has io, memory"):
        find_v2(str(top), str(top), "vault", Limits(), frozenset(["memory", "io"]))


def test_a_machine_without_any(tmp_path: Path) -> None:
    for name in ("mountinfo", "cgroup"):
        (tmp_path / name).write_text("")
    with pytest.raises(NoControlGroup, match="no control group file system is mounted"):
        find("vault", Limits(), frozenset(["memory"]), own=str(tmp_path))


def test_a_container_that_hides_its_own_group(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTINFO.splitlines()[1] + "\n")
    (tmp_path / "cgroup").write_text("0::/../../system.slice\n")
    with pytest.raises(NoControlGroup, match="not visible"):
        find("vault", Limits(), frozenset(["memory"]), own=str(tmp_path))


def test_a_leaf_that_cannot_have_its_limit_is_not_left(tmp_path: Path) -> None:
    tree = CgroupTree(2, {"memory": str(tmp_path)}, (str(tmp_path),), "for a test")
    with pytest.raises(FileNotFoundError):
        Leaf(tree, Limits(memory=1 << 30), ())
    assert list(tmp_path.iterdir()) == []


def test_only_leaves_of_the_dead_are_swept(tmp_path: Path) -> None:
    dead = os.fork()
    if not dead:
        os._exit(0)
    os.waitpid(dead, 0)
    names = {f"{dead}.1": False, f"{os.getpid()}.1": True, "1.7": True, "something": True}
    for name in names:
        (tmp_path / name).mkdir()
    sweep(CgroupTree(2, {"memory": str(tmp_path)}, (str(tmp_path),), "for a test"))
    assert {path.name for path in tmp_path.iterdir()} == {name for name, stays in names.items() if stays}


def test_where_the_users_bus_is() -> None:
    assert bus_address({}, 1000) == "unix:path=/run/user/1000/bus"
    assert bus_address({b"DBUS_SESSION_BUS_ADDRESS": b"unix:abstract=x"}, 1000) == "unix:abstract=x"


@pytest.mark.parametrize("address", ["unix:path=/nowhere", "tcp:host=x", "nonsense", "unix:path=/dev/null"])
def test_no_bus_is_no_crash(address: str) -> None:
    with pytest.raises(NoControlGroup, match="user manager"):
        make_scope(
            "vault", os.getpid(), Limits(), frozenset(["memory"]), {b"DBUS_SESSION_BUS_ADDRESS": address.encode()}
        )


def test_a_file_system_without_a_disk() -> None:
    found, why = disks([b"/proc"])
    assert found == ()
    assert why == "/proc is on no block device of its own"
