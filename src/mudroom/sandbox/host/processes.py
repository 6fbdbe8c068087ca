"""What the processes of running commands use, seen from outside: /proc, and nothing else (proc(5)).

What a process says of itself there is its own: a command can blank the variable by which it is told apart. This is for
people to look at, never for a decision.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from mudroom.sandbox.launcher.pause import generations

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LISTEN = b"0A"
"""TCP_LISTEN in include/net/tcp_states.h, as /proc/net/tcp has it."""


class ProcessUsage(NamedTuple):
    pid: int
    """Of the oldest process, outside the sandbox."""
    inside: int
    """The same process, as the sandbox numbers it."""
    processes: int
    cpu: float
    """Seconds, of those that are there."""
    memory: int
    """Bytes that are resident; what several share is counted for each."""
    ports: tuple[int, ...]
    """TCP ports on which they listen, inside."""


def usages(keeper: int, mark: bytes) -> dict[str, ProcessUsage]:
    """By the value of the variable ``mark``: what the processes have that descend from ``keeper``."""
    groups: dict[str, list[int]] = {}
    for pid in descendants(keeper):
        value = _variable(pid, mark)
        if value:
            groups.setdefault(value, []).append(pid)
    return {value: _usage(pids) for value, pids in groups.items()}


def descendants(pid: int) -> Iterator[int]:
    for generation in generations(pid):
        yield from generation


def _usage(pids: list[int]) -> ProcessUsage:
    """Of ``pids``, parents before their children.

    The oldest is the first of those that started in the earliest tick: numbers begin again at 300 when the kernel has
    come to pid_max, so a child may have a lower one than its parent.
    """
    cpu, memory, ports = 0.0, 0, set[int]()
    oldest, earliest = pids[0], None
    for pid in pids:
        words = _read(pid, b"stat").rpartition(b") ")[2].split()
        if len(words) > 21:  # utime, stime, starttime and rss are the fields 14, 15, 22 and 24
            cpu += (int(words[11]) + int(words[12])) / _TICK
            memory += int(words[21]) * _PAGE
            if earliest is None or int(words[19]) < earliest:
                oldest, earliest = pid, int(words[19])
        ports |= _ports(pid)
    return ProcessUsage(oldest, _inside(oldest), len(pids), cpu, memory, tuple(sorted(ports)))


def _inside(pid: int) -> int:
    """Its number in the innermost pid namespace; 0 if it has gone."""
    for line in _read(pid, b"status").splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return 0


def _variable(pid: int, name: bytes) -> str:
    for one in _read(pid, b"environ").split(b"\0"):
        if one.startswith(name + b"="):
            return one[len(name) + 1 :].decode("utf-8", "replace")
    return ""


def _ports(pid: int) -> set[int]:
    """Where a process listens: its sockets, among those of its network namespace that listen."""
    sockets = _sockets(pid)
    if not sockets:
        return set()
    found = set()
    for name in (b"net/tcp", b"net/tcp6"):
        for line in _read(pid, name).splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTEN and words[9] in sockets:
                found.add(int(words[1].rpartition(b":")[2], 16))
    return found


def _sockets(pid: int) -> set[bytes]:
    found = set()
    try:
        for name in os.listdir(b"/proc/%d/fd" % pid):
            target = os.readlink(b"/proc/%d/fd/%s" % (pid, name))
            if target.startswith(b"socket:["):
                found.add(target[8:-1])
    except OSError:
        pass  # it has ended, or is not ours to look into
    return found


def _read(pid: int, name: bytes) -> bytes:
    try:
        with open(b"/proc/%d/%s" % (pid, name), "rb") as stream:
            return stream.read()
    except OSError:
        return b""
