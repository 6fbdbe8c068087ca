"""Namespaces and mounts, by the old calls and the new ones, and what a new user namespace would give."""

from __future__ import annotations

import errno
import os
import signal
import struct
from collections.abc import Callable
from typing import Any

from .attempt import PID_1, World, attempt, register
from .call import AT_EMPTY_PATH, AT_FDCWD, HIGH, address, buffer, call, ioctl, reached, words

NEW = {
    "user": 0x10000000, "mount": 0x00020000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000,
    "cgroup": 0x02000000, "time": 0x00000080,
}  # fmt: skip
_USER = "a new user namespace gives every capability again: user_namespaces(7)"
_API = "the new mount API; CVE-2022-0185"


def in_child(action: Callable[[], Any]) -> str:
    """Do it in a child, which what it enters cannot follow out of. Raises what it raised."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = f"0 {action()}"
        except OSError as error:
            answer = f"{error.errno} "
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    answer = os.read(reading, 4096).decode()
    _pid, status = os.waitpid(pid, 0)
    if not answer:
        raise OSError(errno.EPERM, f"killed by signal {status & 0x7F}")
    number, _space, evidence = answer.partition(" ")
    if number != "0":
        raise OSError(int(number), os.strerror(int(number)))
    return evidence


def _cloned(flags: int) -> str:
    """clone(2) with a null stack behaves as fork does."""
    pid = call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return f"process {pid}"


def _cloned3(flags: int) -> str:
    pid = call("clone3", words(flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return f"process {pid}"


for _name, _bit in NEW.items():
    register(
        f"unshare_{_name}",
        "namespaces",
        f"a new {_name} namespace by unshare(2)",
        lambda world, bit=_bit: in_child(lambda: call("unshare", bit)),  # type: ignore[misc]
        source=_USER,
        proof="claim",
        control="anybody" if _name == "user" else "root",
    )
for _name, _flags, _make in (
    ("unshare_both", NEW["user"] | NEW["mount"], lambda flags: call("unshare", flags)),
    ("clone_user", NEW["user"], _cloned),
    ("clone_all", 0x7E020000, _cloned),
    ("clone_high", HIGH | NEW["user"], _cloned),
    ("clone3_user", NEW["user"], _cloned3),
    ("clone3_time", NEW["user"] | NEW["time"], _cloned3),
):
    register(
        _name,
        "namespaces",
        f"new namespaces by {_name.partition('_')[0]} ({_flags:#x})",
        lambda world, flags=_flags, make=_make: in_child(lambda: make(flags)),  # type: ignore[misc]
        source=_USER,
        proof="claim",
    )


@attempt("namespaces", "unshare with a bit above 32", "CVE-2019-10063", proof="claim", control="never",
         why="the kernel refuses unknown bits of unshare")  # fmt: skip
def unshare_high(world: World) -> str:
    return in_child(lambda: call("unshare", HIGH | NEW["user"]))


@attempt("namespaces", "unshare(1) is run, and becomes root in it", _USER, proof="claim")
def unshare_program(world: World) -> str | None:
    with os.popen("unshare --user --map-root-user --mount cat /proc/self/uid_map 2>&1 | tail -1") as stream:
        said = stream.read()
    return said if said.split()[:1] == ["0"] and "unshare" not in said else None


for _name, _path in (
    ("setns_mount", "/proc/1/ns/mnt"),
    ("setns_user", "/proc/1/ns/user"),
    ("setns_net", "/proc/1/ns/net"),
    ("setns_own", "/proc/self/ns/uts"),
):
    register(
        _name,
        "namespaces",
        f"{_path} is entered",
        lambda world, path=_path: in_child(lambda: call("setns", os.open(path, os.O_RDONLY), 0)),  # type: ignore[misc]
        source="setns(2)",
        proof="claim",
        control="root" if _name == "setns_own" else "never",
        why="" if _name == "setns_own" else PID_1,
    )


@attempt("namespaces", "all namespaces of the host's process at once, by its pidfd", "setns(2)", proof="claim",
         control="root")  # fmt: skip
def setns_pidfd(world: World) -> str:
    return in_child(lambda: call("setns", call("pidfd_open", world.harness, 0), NEW["mount"] | NEW["net"]))


@attempt("namespaces", "the parent of the own user namespace is asked for", "ioctl_ns(2), NS_GET_PARENT",
         proof="claim", control="never", why="the first user namespace has no parent")  # fmt: skip
def parent_namespace(world: World) -> str:
    return f"descriptor {ioctl(os.open('/proc/self/ns/user', os.O_RDONLY), 0xB702)}"


@attempt("namespaces", "the own id maps are written", "user_namespaces(7)", proof="claim", control="never",
         why="the first user namespace's maps cannot be written")  # fmt: skip
def id_maps(world: World) -> str:
    with open("/proc/self/uid_map", "w") as stream:
        stream.write("0 0 1")
    return "written"


def _mounted(*arguments: Any) -> Callable[[World], str]:
    """In a mount namespace of its own where that can be had: the control is not to change the host."""

    def body(world: World) -> str:
        def action() -> int:
            try:
                call("unshare", NEW["mount"])
                call("mount", "none", "/", 0, 0x44000, 0)  # private, recursively
            except OSError:
                pass  # inside a sandbox: mount here, then
            return call(*(value(world) if callable(value) else value for value in arguments))

        return in_child(action)

    return body


def _outside(world: World) -> str:
    return world.outside


MOUNTS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "mount_tmpfs": ("a tmpfs is mounted", "mount(2)", ("mount", "none", "/tmp", "tmpfs", 0, 0)),
    "mount_proc": ("a second proc is mounted", "mount(2)", ("mount", "none", "/tmp", "proc", 0, 0)),
    "mount_sysfs": ("a sysfs is mounted", "mount(2)", ("mount", "none", "/tmp", "sysfs", 0, 0)),
    "mount_cgroup": ("cgroups are mounted", "CVE-2022-0492", ("mount", "none", "/tmp", "cgroup2", 0, 0)),
    "mount_bind": ("a directory is mounted over another", "mount(2)", ("mount", "/usr", "/tmp", 0, 0x1000, 0)),
    "mount_remount": ("/usr is made writable again", "mount(2)", ("mount", "none", "/", 0, 0x20 | 0x1000, 0)),
    "mount_shared": ("propagation is switched on", "mount(2)", ("mount", "none", "/", 0, 0x100000, 0)),
    "mount_propagate": ("a mount is moved", "mount(2)", ("mount", "/proc", "/tmp", 0, 0x2000, 0)),
    "umount": ("what covers something is unmounted", "umount2(2)", ("umount2", "/proc", 2)),
    "umount_dev": ("the private /dev/shm is unmounted", "umount2(2)", ("umount2", "/dev/shm", 2)),
    "chroot": ("a new root", "chroot(2)", ("chroot", "/tmp")),
    "fsopen": ("a file system is begun", _API, ("fsopen", "tmpfs", 0)),
    "fspick": ("a mounted file system is taken up", _API, ("fspick", AT_FDCWD, "/", 0)),
    "open_tree": ("a tree is cloned", _API, ("open_tree", AT_FDCWD, "/", 1)),
    "open_tree_attr": ("a tree is cloned, changed", _API, ("open_tree_attr", AT_FDCWD, "/", 1, words(0, 0, 0, 0), 32)),
    "mount_setattr": ("a mount becomes writable", _API, ("mount_setattr", AT_FDCWD, "/", 0, words(0, 1, 0, 0), 32)),
}  # fmt: skip
for _name, (_tries, _source, _arguments) in MOUNTS.items():
    register(
        _name, "mounts", _tries, _mounted(*_arguments), source=_source, proof="claim", control="root",
    )  # fmt: skip


@attempt("mounts", "the root is exchanged", "pivot_root(2)", proof="claim", control="root")
def pivot_root(world: World) -> str | None:
    return reached((errno.EINVAL, errno.EBUSY), "pivot_root", ".", ".")


@attempt("mounts", "a mount is moved by the new API", _API, proof="claim", control="root")
def move_mount(world: World) -> str | None:
    return reached((errno.EINVAL, errno.ENOENT), "move_mount", AT_FDCWD, "/proc", AT_FDCWD, "/tmp/none-there/..", 0)


@attempt("mounts", "a file system is configured through a descriptor", _API, proof="claim")
def fsconfig(world: World) -> str | None:
    return reached((errno.EINVAL, errno.EOPNOTSUPP), "fsconfig", os.open("/", os.O_RDONLY), 99, 0, 0, 0)


@attempt("mounts", "a configured file system is made a mount", _API, proof="claim", control="root")
def fsmount(world: World) -> str | None:
    return reached((errno.EINVAL,), "fsmount", os.open("/", os.O_RDONLY), 0, 0)


@attempt("mounts", "the parent of a new user namespace's mounts is uncovered", "CVE-2023-2640, CVE-2023-32629",
         proof="claim")  # fmt: skip
def nested_overlay(world: World) -> str:
    def action() -> int:
        maps = {"setgroups": "deny", "uid_map": f"0 {os.getuid()} 1", "gid_map": f"0 {os.getgid()} 1"}
        call("unshare", NEW["user"] | NEW["mount"])
        for name, content in maps.items():
            with open(f"/proc/self/{name}", "w") as stream:
                stream.write(content)
        base = os.getcwd()
        for name in ("l", "u", "w", "m"):
            os.makedirs(f"{base}/{name}", exist_ok=True)
        layers = f"lowerdir={base}/l,upperdir={base}/u,workdir={base}/w,userxattr"
        return call("mount", "none", f"{base}/m", "overlay", 0, layers)

    return in_child(action)


@attempt("namespaces", "listing the mounts of another namespace", "listmount(2)", proof="claim", control="never",
         why="whether it may is the kernel's to say for one's own namespace, too")  # fmt: skip
def mounts_of_others(world: World) -> str | None:
    """A mount namespace by its id; init's is the first that the kernel gave out."""
    request = buffer(struct.pack("<IIQQQ", 32, 0, 0xFFFFFFFFFFFFFFFF, 0, 0xF0000000))
    found = buffer(800)
    count = call("listmount", request, found, 100, 0)
    return f"{count} mounts" if count and address(found) else None


@attempt("namespaces", "the next namespace of mounts is opened", "linux/nsfs.h, NS_MNT_GET_NEXT; CVE-2026-43403",
         proof="claim", control="root")  # fmt: skip
def next_mounts(world: World) -> str:
    own, info = os.open("/proc/self/ns/mnt", os.O_RDONLY), buffer(16)
    try:
        return f"descriptor {ioctl(own, 0x8010B70B, info)}"
    except FileNotFoundError:  # the one before it, then
        return f"descriptor {ioctl(own, 0x8010B70C, info)}"


@attempt("namespaces", "the host's namespace of mounts is opened by its handle",
         "linux/nsfs.h, FD_NSFS_ROOT; CVE-2026-43391", proof="claim")  # fmt: skip
def namespace_handle(world: World) -> str:
    """The first namespace of mounts: its inode is fixed (MNT_NS_INIT_INO), and its id is a small number."""
    refusal = OSError(errno.ESTALE, "none of them")
    for number in range(1, 17):
        try:
            handle = struct.pack("<IiQII", 16, 0xF1, number, NEW["mount"], 0xEFFFFFF8)
            return f"descriptor {call('open_by_handle_at', -10003, handle, os.O_RDONLY)}"
        except OSError as error:
            refusal = error
    raise refusal


@attempt("namespaces", "the host's name is changed", "sethostname(2)", proof="claim", control="root")
def hostname(world: World) -> str:
    name = os.uname().nodename
    return f"set {call('sethostname', name, len(name))}"


@attempt("namespaces", "root's identity is taken", "setuid(2)", proof="claim", control="never",
         why="who is root has it, who is not cannot have it")  # fmt: skip
def become_root(world: World) -> str | None:
    if os.getuid() == 0:
        return None
    os.setuid(0)
    return "uid 0"


@attempt("namespaces", "the groups are changed", "CVE-2014-8989", proof="claim", control="root")
def groups(world: World) -> str:
    os.setgroups([0, 6, 27])
    return f"{os.getgroups()}"


@attempt("mounts", "an empty path with a descriptor of the root", _API, proof="claim", control="root")
def open_tree_empty(world: World) -> str:
    return in_child(lambda: call("open_tree", os.open("/", os.O_PATH), "", 1 | AT_EMPTY_PATH))
