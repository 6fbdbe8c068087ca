"""A command's caller: facts from the kernel about a process that decide how its command would run.

A command that a keeper runs must run as it would in its caller's own process. The keeper's process belongs to the same
user, and takes over words, environment, descriptors, directory, ignored signals, and what differs between terminals
(``CallerSurroundings``). Everything else must be equal already: credentials, capabilities, namespaces, root directory,
the other limits, confinement, priorities.

Rules of this file:
1. In doubt, two processes differ: an unreadable file or a missing field differs from one that is there.
2. A process that may be confined by something invisible from outside has no equal. Landlock is invisible, and needs
   no_new_privs for an ordinary user (landlock(7)). Seccomp filters can only be added, and their number is visible.
3. A traced process has no equal: its tracer would not see the command.
4. ``directory`` is a /proc/PID descriptor. It stays tied to the same process: reading from it fails once the process
   has gone, even if its number has been reused (proc(5)).
"""

from __future__ import annotations

import ctypes
import os
import resource

from mudroom.core.system.closing import Descriptor
from mudroom.sandbox.limits.cgroup import directory as directory_of_group
from mudroom.sandbox.limits.cgroup import memberships, mounts, read, write
from mudroom.typing import NamedTuple

FIELDS = (
    b"Umask", b"Uid", b"Gid", b"Groups", b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb", b"Seccomp",
    b"Seccomp_filters", b"Cpus_allowed", b"Mems_allowed", b"SigBlk",
)  # fmt: skip
"""Fields in proc_pid_status(5)."""
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts")
FILES = ("attr/current", "coredump_filter", "loginuid")
"""Files that a process of the same user may read, also where Yama restricts ptrace(2). The personality is not among
them; the client puts its own into the keeper's name."""
_NICE, _RT_PRIORITY, _SCHEDULING_POLICY = 19, 40, 41
"""Field numbers in proc_pid_stat(5)."""
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31, "riscv64": 31}
"""System call number for ioprio_get(2), by machine (asm/unistd.h)."""
_IOPRIO_WHO_PROCESS = 1
TAKEN_OVER = (
    resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC, resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE,
)  # fmt: skip
"""Limits that a process may be given after its start, with the effect that they have from the start on. Those of memory
and stack are not among them: the process has more than a new one. Editors and systemd raise RLIMIT_NOFILE."""
_LIMITS = range(16)
"""All of getrlimit(2): RLIM_NLIMITS of asm-generic/resource.h."""
_LIBC = ctypes.CDLL(None)
_MACHINE = os.uname().machine


def identity(directory: int) -> tuple[object, ...] | None:
    """Return the facts that must be equal, or None if the process has no equal. Raise OSError if it has gone."""
    status = _status(directory)
    if status.get(b"NoNewPrivs") != b"0" or status.get(b"TracerPid") != b"0":
        return None
    if status.get(b"Seccomp") != b"0" and b"Seccomp_filters" not in status:  # Linux before 5.9
        return None
    return (
        *(status.get(field) for field in FIELDS),
        *(_namespace(directory, name) for name in NAMESPACES),
        _root(directory),
        *(_content(directory, name) for name in FILES),
        _priorities(directory),
    )


class CallerSurroundings(NamedTuple):
    """What a process takes over from its caller. One that does not may be refused a file, or escape a limit."""

    groups: str
    """/proc/PID/cgroup: each terminal of systemd's is a group (a scope)."""
    limits: tuple[tuple[int, int], ...]
    """Soft and hard limits, by number (prlimit(2))."""
    oom: str
    """/proc/PID/oom_score_adj."""


class Elsewhere(Exception):
    """The caller's surroundings may not be taken over."""


def surroundings(pid: int) -> CallerSurroundings:
    """Return those of a process of this user. Raise OSError if it has gone."""
    limits = tuple(resource.prlimit(pid, number) for number in _LIMITS)
    with open(f"/proc/{pid}/oom_score_adj", encoding="ascii") as stream:
        return CallerSurroundings(_read_groups(pid), limits, stream.read())


def _read_groups(pid: int) -> str:
    with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read()


def take_over(wanted: CallerSurroundings, pid: int) -> None:
    """Give a process without threads, of this user, these surroundings. Raise Elsewhere if it may not have them.

    A move into another group of version 2 waits 15 ms for all forks of the machine (``sandbox/limits/cgroup.py``)."""
    try:
        before = surroundings(pid)
        if before.groups != wanted.groups:
            enter_groups(pid, before.groups, wanted.groups)
        for number, (one, other) in enumerate(zip(before.limits, wanted.limits, strict=True)):
            if one != other:
                if number not in TAKEN_OVER:
                    raise Elsewhere
                resource.prlimit(pid, number, other)
        if before.oom != wanted.oom:
            write(f"/proc/{pid}/oom_score_adj", wanted.oom)
        is_done = surroundings(pid) == wanted  # otherwise a group was removed meanwhile
    except ProcessLookupError:
        raise  # it is gone: nothing that another keeper could do
    except (OSError, ValueError) as error:  # prlimit: a limit that would have to be raised
        raise Elsewhere from error
    if not is_done:
        raise Elsewhere


def enter_groups(pid: int, before: str, wanted: str) -> None:
    """Move a process into the groups of a /proc/PID/cgroup. Raise Elsewhere if that is not permitted: in version 2 the
    user needs cgroup.procs of the group and of the nearest above both (cgroup-v2.rst, under Delegation Containment)."""
    table, own = mounts(read("/proc/self/mountinfo")), memberships(before)
    for name, path in memberships(wanted).items():
        if own.get(name) == path:
            continue
        kinds = (mount for mount in table if (name in mount.options if name else mount.kind == "cgroup2"))
        mount = next(kinds, None)
        group = None if mount is None else directory_of_group(mount, path)
        if group is None:
            raise Elsewhere
        try:
            write(f"{group}/cgroup.procs", str(pid))
        except OSError as error:
            raise Elsewhere from error


def differences(one: int, other: int) -> list[str] | None:
    """Return the names of what differs between two processes, by descriptors of their directories in /proc, or None if
    either has no equal. Raise OSError if one has gone."""
    first, second = identity(one), identity(other)
    if first is None or second is None:
        return None
    names = (*(field.decode() for field in FIELDS), *NAMESPACES, "root directory", *FILES, "priorities")
    return [name for name, left, right in zip(names, first, second, strict=True) if left != right]


def io_priority(pid: int) -> int:
    """Return a process's I/O priority, which no file in /proc shows; -1 if this machine type is unknown."""
    number = _IOPRIO_GET.get(_MACHINE)
    return -1 if number is None else int(_LIBC.syscall(number, _IOPRIO_WHO_PROCESS, pid))


def ignored_signals(directory: int) -> frozenset[int]:
    """Return the numbers of the signals that the process ignores. Raise OSError if it has gone."""
    mask = int(_status(directory)[b"SigIgn"], 16)
    return frozenset(number for number in range(1, 65) if mask >> (number - 1) & 1)


def _root(directory: int) -> tuple[int, int, bytes]:
    """Return an identity for the root directory within a mount namespace: device and inode, which a bind mount of /
    shares, and the mount number (proc_pid_fdinfo(5))."""
    with Descriptor(os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)) as root:
        found = os.fstat(root)
        text = _content(root, f"/proc/self/fdinfo/{root}") or b""
        lines = dict(line.split(b":", 1) for line in text.splitlines())
        return found.st_dev, found.st_ino, lines[b"mnt_id"]


def _namespace(directory: int, name: str) -> str | None:
    """Return a namespace, or None if the kernel was built without that type."""
    try:
        return os.readlink("ns/" + name, dir_fd=directory)
    except FileNotFoundError:
        return None


def _status(directory: int) -> dict[bytes, bytes]:
    lines = (_content(directory, "status") or b"").split(b"\n")
    return {name: value.strip() for name, _colon, value in (line.partition(b":") for line in lines)}


def _priorities(directory: int) -> tuple[bytes, ...]:
    fields = (_content(directory, "stat") or b"").rpartition(b")")[2].split()  # from the 3rd field on, the state
    return tuple(fields[number - 3] for number in (_NICE, _RT_PRIORITY, _SCHEDULING_POLICY))


def _content(directory: int, name: str) -> bytes | None:
    """Read a file in the process's /proc directory. Return None if this kernel lacks it or refuses
    access."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except (FileNotFoundError, PermissionError):
        return None
    try:
        return os.read(descriptor, 65536)
    except OSError as error:
        if error.errno in _NOT_TOLD:
            return None
        raise
    finally:
        os.close(descriptor)


_NOT_TOLD = (1, 13, 22, 95)
"""EPERM, EACCES, EINVAL (attr/current without a security module) and EOPNOTSUPP."""
