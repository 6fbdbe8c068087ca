"""Default limits, for commands whose policy names none: their values, and what enforces each. Pure.

| limit | default | held by |
| --- | --- | --- |
| tmp | /tmp: 25 % of the machine's memory; home, /var/tmp and /dev/shm: 12 % each; a million files each | tmpfs(5) |
| inotify | 64 instances, at most half of the user's own number | user namespace |
| inotify_watches | 65,536, at most half of the user's own number | user namespace |
| processes | 4,096 | RLIMIT_NPROC in an ordinary user's user namespace; the control group, if there is one |
| memory | 75 % of the machine's | the control group, if there is one |

A default is never a reason to refuse a command: where it cannot be enforced, it is dropped. Memory has no harmless
replacement: RLIMIT_AS and RLIMIT_DATA count reserved memory, and a JVM, a sanitizer or a thousand threads reserve more
than a machine has. So the launcher, and with it every command, is the kernel's first choice when memory runs out
(``sandbox/client/launcher_client.py``).

A user namespace's counters (/proc/sys/user, namespaces(7)) count for all commands in a session together. The kernel
charges an inotify instance to the user in the sandbox's namespace and in every namespace above it, and refuses it at
the first limit that is reached (inc_ucount in kernel/ucount.c).
"""

from __future__ import annotations

from mudroom.core.confinement.limit import OFF, PREPARED_PROCESSES, RLIMIT_NPROC, Limits
from mudroom.typing import NamedTuple

PROCESSES = 4096
INOTIFY, INOTIFY_WATCHES = 64, 65536
MEMORY_SHARE = 0.75
_KERNEL_SIZE = b"50%"
"""The kernel's own default (Documentation/filesystems/tmpfs.rst)."""


class TmpfsSize(NamedTuple):
    """In-memory file system sizes, as tmpfs(5) takes them."""

    tmp: bytes = b"25%"
    other: bytes = b"12%"
    """For each of the home directory, /var/tmp and /dev/shm."""


Counter = tuple[bytes, int, bool]
"""A file in /proc/sys/user, the number to write, and whether a command may run without it."""
NO_NAMESPACES: Counter = (b"max_user_namespaces", 0, True)
"""For level 1, where the filter refuses namespaces as well: no capability can be gained in a nested namespace."""


def tmpfs_size(limits: Limits) -> TmpfsSize:
    if limits.tmp is None:
        return TmpfsSize()
    if limits.tmp == OFF:
        return TmpfsSize(_KERNEL_SIZE, _KERNEL_SIZE)
    return TmpfsSize(b"%d" % int(limits.tmp), b"%d" % (int(limits.tmp) // 2))


def counters(limits: Limits, users_own: tuple[int, int]) -> tuple[Counter, ...]:
    """Return the counters for the sandbox's user namespace. ``users_own``: the user's own inotify limits, (instances,
    watches); 0: unknown."""
    rows = (
        (b"max_inotify_instances", limits.inotify, INOTIFY, users_own[0]),
        (b"max_inotify_watches", limits.inotify_watches, INOTIFY_WATCHES, users_own[1]),
    )
    found: list[Counter] = []
    for name, wanted, usual, own in rows:
        if wanted is not None and wanted != OFF:
            found.append((name, int(wanted), False))
        elif wanted is None and own:
            found.append((name, min(usual, own // 2), True))
    return tuple(found)


def session_rlimits(limits: Limits, *, counts_processes: bool) -> tuple[tuple[int, int, int], ...]:
    """Return the rlimits that all commands in a session share: (resource, soft, hard). ``counts_processes``: as in
    ``limit.stand_in``."""
    if limits.processes is not None or not counts_processes:
        return ()
    count = PROCESSES + PREPARED_PROCESSES
    return ((RLIMIT_NPROC, count, count),)


def group_defaults(limits: Limits, memory: int) -> Limits:
    """Return the limits that a command's control group holds in addition to the requested ones. ``memory``: the
    machine's, in bytes."""
    return Limits(
        memory=int(memory * MEMORY_SHARE) if limits.memory is None and memory else None,
        processes=PROCESSES if limits.processes is None else None,
    )
