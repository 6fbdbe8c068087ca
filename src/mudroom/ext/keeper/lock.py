"""A keeper's lock file: "PID START VERSION BOOT NAMESPACE".

A pid identifies a process only until it ends (its start time shows that, proc_pid_stat(5)), until the machine is
rebooted, and within its namespace (pid_namespaces(7)). A state directory may be shared: by machines, in a network file
system, and by containers.
"""

from __future__ import annotations

import os

from mudroom import __version__
from mudroom.typing import NamedTuple

_START = 22
"""Field number in proc_pid_stat(5): clock ticks from boot to the process's start."""


class LockContent(NamedTuple):
    pid: int
    version: str


def lock_content(pid: int) -> bytes:
    return f"{pid} {started(pid)} {__version__} {_here()}".encode()


def parse_lock(data: bytes) -> LockContent | None:
    """Return the running keeper that a lock file names, or None if it has ended or belongs to another machine or
    namespace."""
    words = data.decode("ascii", "replace").split(" ")
    if len(words) != 5 or not words[0].isdigit() or " ".join(words[3:]) != _here():
        return None
    pid = int(words[0])
    return LockContent(pid, words[2]) if words[1] == str(started(pid)) else None


def started(pid: int) -> int:
    """Return a process's start in clock ticks since boot; -1 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return int(stream.read().rpartition(b")")[2].split()[_START - 3])
    except OSError:
        return -1


def _here() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        return f"{stream.read().strip()} {os.readlink('/proc/self/ns/pid')}"
