"""Whether a command in a sandbox is at the other end of a loopback connection: at level 0 and with ``--net open`` it
shares the host's loopback, and may have learnt the token.

A sandboxed process descends from an init of the launcher, by its parents in /proc, whatever it does: orphans become
init's children. Its descriptors may be hidden (PR_SET_DUMPABLE), and it may pass the socket on while they are read. So
where any sandbox is, a connection is another's only if a process outside of all sandboxes is seen to have it.
Namespaces and no_new_privs tell nothing: browsers have them, too (Snap, Flatpak).

Call it before ``stranger_uid``: a socket that has been closed meanwhile is seen there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Literal

from mudroom.net.listeners.peer_user import Address, ConnectionEnd, other_end

SANDBOXED: Literal["a command in a sandbox"] = "a command in a sandbox"
_INIT = "mudroom-init"
"""The name of the launcher and of all its clones (``src/native/launcher/launcher.c``). A command that takes it is in a
sandbox, too."""

Table = Mapping[int, tuple[str, int]]
"""Name and parent by pid."""


def sandboxed(ours: Address, theirs: Address) -> str | None:
    """Return ``SANDBOXED`` if a command in a sandbox may be at the other end, or None."""
    if sys.platform != "linux":
        return None
    processes = _processes()
    inside = sandboxed_pids(processes, os.getpid())
    end = other_end(ours, theirs) if inside else None
    if end is None or _is_roots(end):
        return None
    held = f"socket:[{end.inode}]"
    outside = sorted(processes.keys() - inside, reverse=True)  # a new process asks more often than an old one
    return None if any(held in _descriptors(pid) for pid in outside) else SANDBOXED


def sandboxed_pids(processes: Table, own: int) -> set[int]:
    """Return the processes in sandboxes that this one, ``own``, is not in itself."""
    above = set(_line_of(own, processes))
    inits = {pid for pid, (name, _parent) in processes.items() if name == _INIT and pid not in above}
    return {pid for pid in processes if inits and not inits.isdisjoint(_line_of(pid, processes))}


def _line_of(pid: int, processes: Table) -> Iterator[int]:
    """Yield a process and those above it."""
    for _generation in range(len(processes)):  # pids may be used again while the table is read
        if pid not in processes:
            return
        yield pid
        pid = processes[pid][1]


def _is_roots(end: ConnectionEnd) -> bool:
    """Whether root has it: its descriptors are hidden, and no sandbox of this user has root's uid outside."""
    return end.uid == 0 != os.geteuid()


def _processes() -> Table:
    found = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
                before, _sign, after = stream.read().rpartition(")")
        except OSError:
            continue  # it has ended
        found[pid] = before.partition("(")[2], int(after.split()[1])
    return found


def _descriptors(pid: int) -> Iterator[str]:
    """Yield where a process's descriptors lead, unless it hides them."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue  # closed meanwhile
