"""A command's caller: facts from the kernel about a process that decide how its command would run.

A command that a keeper runs must run as it would in its caller's own process. The keeper's process belongs to the same
user, and takes over words, environment, descriptors, directory and ignored signals. Everything else must be equal
already: credentials, capabilities, namespaces, root directory, control group, limits, confinement, priorities.

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

FIELDS = (
    b"Umask", b"Uid", b"Gid", b"Groups", b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb", b"Seccomp",
    b"Seccomp_filters", b"Cpus_allowed", b"Mems_allowed", b"SigBlk",
)  # fmt: skip
"""Fields in proc_pid_status(5)."""
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts")
FILES = ("cgroup", "limits", "oom_score_adj", "attr/current", "coredump_filter", "loginuid")
"""Files that a process of the same user may read, also where Yama restricts ptrace(2). The personality is not among
them; the client puts its own into the keeper's name."""
_NICE, _RT_PRIORITY, _SCHEDULING_POLICY = 19, 40, 41
"""Field numbers in proc_pid_stat(5)."""
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31, "riscv64": 31}
"""System call number for ioprio_get(2), by machine (asm/unistd.h)."""
_IOPRIO_WHO_PROCESS = 1
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
    root = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        found = os.fstat(root)
        text = _content(root, f"/proc/self/fdinfo/{root}") or b""
        lines = dict(line.split(b":", 1) for line in text.splitlines())
        return found.st_dev, found.st_ino, lines[b"mnt_id"]
    finally:
        os.close(root)


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
