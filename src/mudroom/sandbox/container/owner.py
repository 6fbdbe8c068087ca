"""Whose a container is: written on it as labels, and read again by who comes after a crash.

Rules of this file: somebody is gone only if that is certain. A number of a process means something in one pid namespace
of one boot, and its start in one time namespace; of whoever was elsewhere nothing is known. Sources: proc(5),
random(4), pid_namespaces(7), time_namespaces(7), kill(2).
"""

from __future__ import annotations

import _thread
import itertools
import os
from typing import NamedTuple

_numbers = itertools.count()
_START = 19
"""Of the words behind the name in /proc/PID/stat: field 22, in clock ticks since the boot."""


class Owner(NamedTuple):
    pid: int
    started: int
    boot: str
    """Of the running kernel."""
    namespaces: str
    """Inodes of those of pid and time."""

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}:{self.boot}:{self.namespaces}"


def parse(text: str) -> Owner | None:
    """What ``str`` has made of one; None if it is something else."""
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
    """A name beside ``path`` for what is to be renamed to it: no other process has it, and no other thread."""
    return path + b".%d.%d.%d" % (os.getpid(), _thread.get_ident(), next(_numbers))


def _inode(name: str) -> int:
    try:
        return os.stat(f"/proc/self/ns/{name}").st_ino
    except FileNotFoundError:  # a kernel without time namespaces
        return 0


def started(pid: int) -> int | None:
    """When a process was started; None if there is none, or it is not to be seen (hidepid)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            words = stream.read().rpartition(b") ")[2].split()
    except OSError:
        return None
    return int(words[_START]) if len(words) > _START and words[0] not in (b"Z", b"X") else None


def is_gone(owner: Owner, here: Owner, *, ended: bool) -> bool:
    """Whether nobody is there any more to whom a container belongs. ``ended``: it does not run any more, or never
    will; the launcher of another boot, or of another machine, has seen the end of its owner then, or was ended
    itself."""
    if owner.boot != here.boot:
        return ended
    if owner.namespaces != here.namespaces:
        return False
    found = started(owner.pid)
    return found != owner.started if found is not None else not _exists(owner.pid)


def _exists(pid: int) -> bool:
    """Of a process whose start is not to be seen: a zombie has ended, and holds no socket any more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return stream.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
    except OSError:
        return True
