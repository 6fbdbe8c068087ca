"""Running commands' resource use, seen from outside through /proc (proc(5)).

A process controls its own data there: a command can blank the variable that identifies it. The result is for display,
never for a decision.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from mudroom.typing import NamedTuple

_LISTEN = b"0A"
"""TCP_LISTEN in include/net/tcp_states.h, as in /proc/net/tcp."""


class ProcessUsage(NamedTuple):
    pid: int
    """The oldest process's pid, seen outside the sandbox."""
    inside: int
    """The same process's pid inside the sandbox."""
    processes: int
    cpu: float
    """CPU seconds used by the live processes."""
    memory: int
    """Resident bytes; shared memory is counted for each process."""
    ports: tuple[int, ...]
    """TCP ports that they listen on, inside."""


def usages(keeper: int, mark: bytes) -> dict[str, ProcessUsage]:
    """Return the usage of ``keeper``'s descendants, grouped by their variable ``mark``."""
    groups: dict[str, list[int]] = {}
    for pid in descendants(keeper):
        value = _variable(pid, mark)
        if value:
            groups.setdefault(value, []).append(pid)
    return {value: _usage(pids) for value, pids in groups.items()}


def descendants(pid: int) -> Iterator[int]:
    """Yield a process's pid, then its children's, then theirs, and so on. A process that ends meanwhile may be left
    out, and with it others (/proc/PID/task/TID/children, proc(5))."""
    generation = [pid]
    while generation:
        yield from generation
        generation = [child for parent in generation for child in _children(parent)]


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []  # it is gone, or hidden
    return [int(word) for thread in threads for word in _read(pid, b"task/%s/children" % os.fsencode(thread)).split()]


def _usage(pids: list[int]) -> ProcessUsage:
    """Return the usage of ``pids``, parents before their children.

    The oldest is the first that started in the earliest tick. Pids restart at 300 when the kernel has reached pid_max,
    so a child may have a lower pid than its parent.
    """
    cpu, memory, ports = 0.0, 0, set[int]()
    oldest, earliest = pids[0], None
    for pid in pids:
        words = _read(pid, b"stat").rpartition(b") ")[2].split()
        if len(words) > 21:  # fields 14, 15, 22 and 24: utime, stime, starttime and rss
            cpu += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            memory += int(words[21]) * os.sysconf("SC_PAGE_SIZE")
            if earliest is None or int(words[19]) < earliest:
                oldest, earliest = pid, int(words[19])
        ports |= _ports(pid)
    return ProcessUsage(oldest, _inside(oldest), len(pids), cpu, memory, tuple(sorted(ports)))


def _inside(pid: int) -> int:
    """Return the pid in the innermost pid namespace, or 0 if the process is gone."""
    for line in _read(pid, b"status").splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return 0


def _variable(pid: int, name: bytes) -> str:
    for entry in _read(pid, b"environ").split(b"\0"):
        if entry.startswith(name + b"="):
            return entry[len(name) + 1 :].decode("utf-8", "replace")
    return ""


def _ports(pid: int) -> set[int]:
    """Return the ports that a process listens on: its sockets among those that listen in its network namespace."""
    sockets = _sockets(pid)
    if not sockets:
        return set()
    ports = set()
    for name in (b"net/tcp", b"net/tcp6"):
        for line in _read(pid, name).splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTEN and words[9] in sockets:
                ports.add(int(words[1].rpartition(b":")[2], 16))
    return ports


def served_ports(network: int) -> tuple[int, ...]:
    """Return the TCP ports that this user's processes in a network namespace listen on. ``network``: its descriptor."""
    wanted, ports = os.fstat(network).st_ino, set[int]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}/ns/net").st_ino == wanted:
                ports |= _ports(int(name))
        except OSError:
            continue  # it has ended, or is another user's
    return tuple(sorted(ports))


def _sockets(pid: int) -> set[bytes]:
    sockets = set()
    with suppress(OSError):  # it has ended, or may not be inspected
        for name in os.listdir(b"/proc/%d/fd" % pid):
            target = os.readlink(b"/proc/%d/fd/%s" % (pid, name))
            if target.startswith(b"socket:["):
                sockets.add(target[8:-1])
    return sockets


def _read(pid: int, name: bytes) -> bytes:
    try:
        with open(b"/proc/%d/%s" % (pid, name), "rb") as stream:
            return stream.read()
    except OSError:
        return b""
