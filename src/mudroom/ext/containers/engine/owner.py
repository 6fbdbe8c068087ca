"""A container's owner: stored as a label, and read again by a later process after a crash.

Rules of this file: an owner counts as gone only if that is certain. A pid is valid in one pid namespace during
one boot, and a start time in one time namespace; the state of processes elsewhere is unknown. Sources: proc(5),
random(4), pid_namespaces(7), time_namespaces(7), kill(2).
"""

from __future__ import annotations

import _thread
import itertools
import os

from mudroom.sandbox.limits.cgroup import is_alive
from mudroom.typing import NamedTuple

_numbers = itertools.count()
_START = 19
"""Index among the words after the name in /proc/PID/stat: field 22, in clock ticks since the boot."""


class Owner(NamedTuple):
    pid: int
    started: int
    boot: str
    """The running kernel's boot_id."""
    namespaces: str
    """Inodes of the pid and the time namespace."""

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}:{self.boot}:{self.namespaces}"


def parse(text: str) -> Owner | None:
    """Parse an owner's ``str``; return None for any other text."""
    words = text.split(":")
    if len(words) != 4 or not (words[0].isdecimal() and words[1].isdecimal()):
        return None
    return Owner(int(words[0]), int(words[1]), words[2], words[3])


def this_process() -> Owner:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        boot = stream.read().strip()
    pid = os.getpid()
    return Owner(pid, started(pid) or 0, boot, f"{_inode('pid')}-{_inode('time')}")


def beside(path: bytes) -> bytes:
    """Return a temporary name beside ``path``, for a file that will be renamed to it; unique among processes and
    threads."""
    return path + b".%d.%d.%d" % (os.getpid(), _thread.get_ident(), next(_numbers))


def _inode(name: str) -> int:
    try:
        return os.stat(f"/proc/self/ns/{name}").st_ino
    except FileNotFoundError:  # a kernel without time namespaces
        return 0


def started(pid: int) -> int | None:
    """Return a process's start time, or None if it does not exist or is not visible (hidepid)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            words = stream.read().rpartition(b") ")[2].split()
    except OSError:
        return None
    return int(words[_START]) if len(words) > _START and words[0] not in (b"Z", b"X") else None


def is_gone(owner: Owner, current: Owner, *, ended: bool) -> bool:
    """Return whether a container's owner is certainly gone. ``ended`` says that the container runs no more, or never
    will: a launcher from another boot or machine has then seen its owner's end, or was killed itself."""
    if owner.boot != current.boot:
        return ended
    if owner.namespaces != current.namespaces:
        return False
    start = started(owner.pid)
    return start != owner.started if start is not None else not _exists(owner.pid)


def _exists(pid: int) -> bool:
    """Return whether a process exists whose start is not visible. A zombie has ended, and holds no socket any more."""
    return is_alive(pid) and not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return stream.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
    except OSError:
        return True
