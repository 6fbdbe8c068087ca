"""Metadata: modes, owners, times, attributes of a file outside, by every system call that changes them."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from .attempt import World, attempt, register
from .call import AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, HIGH, O_PATH, address, buffer, call, ioctl, words

_LANDLOCK = "landlock(7): Landlock has nothing to say on it"
_TIMES = struct.pack("<4q", 5, 0, 5, 0)


def _target(world: World) -> str:
    return f"{world.outside}/target"


def _xattr(world: World) -> tuple[Any, ...]:
    """The arguments of setxattrat(2) behind the flags: the name, struct xattr_args and its size."""
    value = buffer(world.mark.encode())
    return "user.escape", struct.pack("<QII", address(value), len(world.mark), 0), 16, value


def _setxattrat(world: World) -> None:
    name, args, size, _kept = _xattr(world)
    call("setxattrat", AT_FDCWD, _target(world), 0, name, args, size)


def _path(world: World) -> int:
    return os.open(_target(world), O_PATH)


def _own() -> tuple[int, int]:
    return os.getuid(), os.getgid()


CALLS: dict[str, Callable[[World], Any]] = {
    "chmod": lambda w: call("chmod", _target(w), 0o777),
    "fchmodat": lambda w: call("fchmodat", AT_FDCWD, _target(w), 0o777),
    "fchmodat2": lambda w: call("fchmodat2", AT_FDCWD, _target(w), 0o777, 0),
    "fchmodat2_nofollow": lambda w: call("fchmodat2", AT_FDCWD, _target(w), 0o777, AT_SYMLINK_NOFOLLOW),
    "fchmodat2_empty": lambda w: call("fchmodat2", _path(w), "", 0o777, AT_EMPTY_PATH),
    "chmod_high": lambda w: call("fchmodat", HIGH | (AT_FDCWD & 0xFFFFFFFF), _target(w), HIGH | 0o777),
    "fchmod": lambda w: call("fchmod", os.open(_target(w), os.O_RDONLY), 0o777),
    "chmod_directory": lambda w: os.chmod(w.outside, 0o700),
    "chown": lambda w: call("chown", _target(w), *_own()),
    "lchown": lambda w: call("lchown", _target(w), *_own()),
    "fchownat": lambda w: call("fchownat", AT_FDCWD, _target(w), *_own(), 0),
    "fchownat_empty": lambda w: call("fchownat", _path(w), "", *_own(), AT_EMPTY_PATH),
    "fchown": lambda w: call("fchown", os.open(_target(w), os.O_RDONLY), *_own()),
    "utime": lambda w: call("utime", _target(w), struct.pack("<2q", 5, 5)),
    "utimes": lambda w: call("utimes", _target(w), _TIMES),
    "futimesat": lambda w: call("futimesat", AT_FDCWD, _target(w), _TIMES),
    "utimensat": lambda w: call("utimensat", AT_FDCWD, _target(w), _TIMES, 0),
    "utimensat_link": lambda w: call("utimensat", AT_FDCWD, f"{w.outside}/link", _TIMES, AT_SYMLINK_NOFOLLOW),
    "utimensat_empty": lambda w: call("utimensat", _path(w), "", _TIMES, AT_EMPTY_PATH),
    "utimensat_fd": lambda w: call("utimensat", os.open(_target(w), os.O_RDONLY), 0, _TIMES, 0),
    "setxattr": lambda w: call("setxattr", _target(w), "user.escape", w.mark, len(w.mark), 0),
    "lsetxattr": lambda w: call("lsetxattr", _target(w), "user.escape", w.mark, len(w.mark), 0),
    "fsetxattr": lambda w: call("fsetxattr", os.open(_target(w), 0), "user.escape", w.mark, len(w.mark), 0),
    "setxattrat": _setxattrat,
    "removexattr": lambda w: call("removexattr", _target(w), "user.kept"),
    "lremovexattr": lambda w: call("lremovexattr", _target(w), "user.kept"),
    "fremovexattr": lambda w: call("fremovexattr", os.open(_target(w), os.O_RDONLY), "user.kept"),
    "removexattrat": lambda w: call("removexattrat", AT_FDCWD, _target(w), 0, "user.kept"),
    "file_setattr": lambda w: call("file_setattr", AT_FDCWD, _target(w), words(0x80, 0, 0), 24, 0),
    "inode_flags": lambda w: ioctl(os.open(_target(w), os.O_RDONLY), 0x40086602, struct.pack("<Q", 0x40)),
    "project_quota": lambda w: ioctl(os.open(_target(w), os.O_RDONLY), 0x401C5820, struct.pack("<I24x", 0x80)),
    "acl": lambda w: os.setxattr(
        _target(w), "system.posix_acl_access",
        struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, 7, 0xFFFFFFFF) for tag in (1, 4, 32)),
    ),
}  # fmt: skip

for _name, _call in CALLS.items():
    register(f"meta_{_name}", "metadata", f"a file outside is changed by {_name}", _call, source=_LANDLOCK)


@attempt("metadata", "chmod through a link in the project", _LANDLOCK)
def chmod_link(world: World) -> None:
    os.symlink(_target(world), "chmod_link")
    os.chmod("chmod_link", 0o777)


@attempt("metadata", "chmod by a name relative to a directory outside", _LANDLOCK)
def chmod_relative(world: World) -> None:
    os.chdir(world.outside)
    os.chmod("target", 0o777)


@attempt("metadata", "chmod by a directory descriptor", _LANDLOCK)
def chmod_dirfd(world: World) -> None:
    os.chmod("target", 0o777, dir_fd=os.open(world.outside, O_PATH))


for _name, _way in {
    "proc_fd": "/proc/self/fd/{fd}",
    "dev_fd": "/dev/fd/{fd}",
    "task_fd": "/proc/self/task/{tid}/fd/{fd}",
    "thread_fd": "/proc/thread-self/fd/{fd}",
    "proc_root": "/proc/self/root{target}",
    "proc_cwd": "/proc/self/cwd/{up}{target}",
    "double_slash": "//proc/self//fd/{fd}",
    "dot_proc": "/proc/./self/fd/../fd/{fd}",
}.items():

    def _by_way(world: World, way: str = _way) -> None:
        found = way.format(
            fd=_path(world), tid=threading.get_native_id(), target=_target(world), up="../" * 30, pid=os.getpid()
        )
        os.chmod(found, 0o777)

    register(f"chmod_{_name}", "metadata", f"chmod by way of {_way}", _by_way, source="proc_pid_fd(5)")


@attempt("metadata", "the path is changed while a mediator reads it", "seccomp_unotify(2), time of check")
def mediator_race(world: World) -> None:
    """Another thread writes now the one path, now the other into the memory that the call points at."""
    with open("r", "w") as stream:
        stream.write("own")
    good, bad = os.path.abspath("r").encode(), _target(world).encode()
    length = max(len(good), len(bad)) + 1
    good, bad = good.ljust(length, b"\0"), bad.ljust(length, b"\0")
    area = buffer(length)
    area.raw = good
    over = False

    def flip() -> None:
        while not over:
            area.raw = good
            area.raw = bad

    thread = threading.Thread(target=flip)
    thread.start()
    _again_and_again(lambda: call("fchmodat", AT_FDCWD, area, 0o777))
    over = True
    thread.join()


@attempt("metadata", "a directory on the way becomes a link while a mediator looks", "CVE-2018-15664")
def link_race(world: World) -> None:
    os.mkdir("race")
    with open("race/target", "w") as stream:
        stream.write("own")
    os.symlink(world.outside, "race-link")
    over = False

    def flip() -> None:
        while not over:
            call("renameat2", AT_FDCWD, "race", AT_FDCWD, "race-link", 2)

    thread = threading.Thread(target=flip)
    thread.start()
    _again_and_again(lambda: os.chmod("race/target", 0o777))
    over = True
    thread.join()


def _again_and_again(action: Callable[[], object]) -> None:
    """For a fifth of a second, whatever it says."""
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        try:
            action()
        except OSError:
            continue  # this time it lost


@attempt("metadata", "a listener of one's own lets the calls continue that another would judge", "seccomp_unotify(2)")
def second_listener(world: World) -> None:
    nr = 268 if os.uname().machine == "x86_64" else 53
    rows = ((0x20, 0, 0, 0), (0x15, 0, 1, nr), (0x06, 0, 0, 0x7FC00000), (0x06, 0, 0, 0x7FFF0000))
    program = buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
    call_prctl_no_new_privs()
    listener = call("seccomp", 1, 8, struct.pack("<QQ", 4, address(program)))
    child = os.fork()
    if child == 0:
        try:
            call("fchmodat", AT_FDCWD, _target(world), 0o777)
        finally:
            os._exit(0)
    request = buffer(80)
    ioctl(listener, 0xC0502100, request)
    ioctl(listener, 0xC0182101, request.raw[:8] + bytes(12) + struct.pack("<I", 1))
    os.waitpid(child, 0)


def call_prctl_no_new_privs() -> None:
    """An ordinary user may install a filter only so: seccomp(2)."""
    from .call import libc

    libc.prctl(38, 1, 0, 0, 0)
