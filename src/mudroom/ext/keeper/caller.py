"""Who calls: what the kernel says of a process, as far as it decides how a command of that process runs.

A command that a keeper runs must run as it would in its caller's own process. The keeper's process is of the same user,
and takes over words, environment, descriptors, directory and ignored signals. Everything else has to be equal
already: credentials, capabilities, namespaces, root directory, control group, limits, confinement, priorities.

Rules of this file:
1. In doubt different: a file that cannot be read, or a field that is not there, differs from one that is.
2. A process that may be confined by what nobody can see from outside has no equal. Landlock is such, and needs
   no_new_privs of an ordinary user (landlock(7)). Filters of seccomp can only be added, and their number is seen.
3. A process that is traced has no equal: its tracer would not see the command.
4. ``directory`` is a descriptor of /proc/PID. It stays that of the same process: reading from it fails when the process
   has gone, also if the number is that of another one by then (proc(5)).
"""

from __future__ import annotations

import ctypes
import os

FIELDS = (
    b"Umask", b"Uid", b"Gid", b"Groups", b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb", b"Seccomp",
    b"Seccomp_filters", b"Cpus_allowed", b"Mems_allowed", b"SigBlk",
)  # fmt: skip
"""Of proc_pid_status(5)."""
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts")
FILES = ("cgroup", "limits", "oom_score_adj", "attr/current", "coredump_filter", "loginuid")
"""Those that a process of the same user may read, also where Yama restricts ptrace(2). The personality is not among
them; the client puts its own into the keeper's name."""
_NICE, _RT_PRIORITY, _SCHEDULING_POLICY = 19, 40, 41
"""Numbers of fields of proc_pid_stat(5)."""
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31, "riscv64": 31}
"""Number of ioprio_get(2) by machine (asm/unistd.h)."""
_IOPRIO_WHO_PROCESS = 1
_LIBC = ctypes.CDLL(None)
_MACHINE = os.uname().machine


def identity(directory: int) -> tuple[object, ...] | None:
    """Return what has to be equal, or None if the process has no equal. Raise OSError if it has gone."""
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
    """Return the priority of a process for input and output, which no file tells; -1 if this machine is not known."""
    number = _IOPRIO_GET.get(_MACHINE)
    return -1 if number is None else int(_LIBC.syscall(number, _IOPRIO_WHO_PROCESS, pid))


def ignored_signals(directory: int) -> frozenset[int]:
    """Return the numbers of the signals that the process ignores. Raise OSError if it has gone."""
    mask = int(_status(directory)[b"SigIgn"], 16)
    return frozenset(number for number in range(1, 65) if mask >> (number - 1) & 1)


def _root(directory: int) -> tuple[int, int, bytes]:
    """Return what names the root directory within a mount namespace: device and inode, which a bind mount of / shares,
    and the number of the mount (proc_pid_fdinfo(5))."""
    root = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        found = os.fstat(root)
        text = _content(root, f"/proc/self/fdinfo/{root}") or b""
        lines = dict(line.split(b":", 1) for line in text.splitlines())
        return found.st_dev, found.st_ino, lines[b"mnt_id"]
    finally:
        os.close(root)


def _namespace(directory: int, name: str) -> str | None:
    """Return a namespace; None if this kernel has none of that kind, as it may be built without."""
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
    """Return a file of the process; None if this kernel has none of that name, or refuses it."""
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
