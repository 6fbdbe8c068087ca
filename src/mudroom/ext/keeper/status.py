"""A state directory's keepers, from outside: list and end them.

A keeper lives as long as its lock file is locked; the file has its pid and start. A pid is used only through a pidfd
that was opened while both held, so a later process with the same number is never taken for a keeper.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from mudroom import __version__
from mudroom.typing import NamedTuple
from mudroom.vault.lock import LOCK_SH, try_lock

_START = 22
"""Field number in proc_pid_stat(5): clock ticks from boot to the process's start."""


class LockContent(NamedTuple):
    """A lock file: "PID START VERSION BOOT NAMESPACE". A pid identifies a process only until it ends (its start
    time shows that, proc_pid_stat(5)), until the machine is rebooted, and within its namespace (pid_namespaces(7)). A
    state directory may be shared: by machines, in a network file system, and by containers."""

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


PATIENCE = 5.0
"""Seconds that a keeper may take to end before it is killed."""
_LOCK = b".lock"


class KeeperStatus(NamedTuple):
    name: str
    """Its socket (``src/native/name.c``)."""
    pid: int
    version: str
    age: float
    """Seconds since its start."""
    idle: float
    """Seconds since its last command, or since its start."""
    commands: int
    """Commands that run now."""
    memory: int
    """Bytes used by the keeper, its launchers, the waiting process and the sandbox kept ready (Pss in
    proc_pid_smaps(5)); without commands."""


def keepers(directory: bytes) -> list[KeeperStatus]:
    with _living(directory) as living:
        return [_status(found) for found in living]


def stop(directory: bytes) -> list[int]:
    """End the keepers, and return their pids. Running commands continue. A starting keeper has no pid in its lock file
    yet; it ends when it finds that the file has lost its name."""
    with _living(directory) as living:
        for name in _locks(directory):
            unlink_vacant(directory + b"/" + name)
        for found in living:
            _signal(found.pidfd, signal.SIGTERM)
        for found in living:
            if not select.select([found.pidfd], [], [], PATIENCE)[0]:
                _signal(found.pidfd, signal.SIGKILL)
                select.select([found.pidfd], [], [], PATIENCE)
        return [found.pid for found in living]


def retire(directory: bytes, locks: Iterable[bytes], since: float) -> bool:
    """End keepers, and remove the lock files of dead ones. Return False, and end none, if one was started or used after
    ``since``. Does not wait for them: a name is free at once."""
    living: list[_Living] = []
    is_free = True
    for name in locks:
        found = _look(directory, name)
        if found is not None:
            living.append(found)
        elif is_recent(directory + b"/" + name, since):
            is_free = False
        else:
            unlink_vacant(directory + b"/" + name)
    is_free = is_free and all(found.used <= since for found in living)
    for found in living:
        if is_free:
            _signal(found.pidfd, signal.SIGTERM)
            for path in (found.lock, found.lock.removesuffix(_LOCK)):
                with suppress(FileNotFoundError):  # it has ended
                    os.unlink(directory + b"/" + path)
        os.close(found.pidfd)
    return is_free


def is_recent(path: bytes, since: float) -> bool:
    """Return whether a lock file is that of a keeper which has no pid yet, and was started after ``since``."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return found.st_size == 0 and found.st_mtime > since


def _signal(pidfd: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has ended
        signal.pidfd_send_signal(pidfd, number)


class _Living(NamedTuple):
    lock: bytes
    """The name of its lock file."""
    pid: int
    version: str
    used: float
    """The end of its last command, in seconds since 1970."""
    pidfd: int


@contextmanager
def _living(directory: bytes) -> Iterator[list[_Living]]:
    living: list[_Living] = []
    try:
        living.extend(found for name in _locks(directory) if (found := _look(directory, name)) is not None)
        yield living
    finally:
        for found in living:
            os.close(found.pidfd)


def _locks(directory: bytes) -> list[bytes]:
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(_LOCK))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _look(directory: bytes, name: bytes) -> _Living | None:
    """Return the keeper whose lock this is, or None if it has ended."""
    try:
        lock = os.open(directory + b"/" + name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        data = os.read(lock, 256)
        content = parse_lock(data)
        if content is None:
            return None  # it has just been started, or runs on another machine
        pidfd = os.pidfd_open(content.pid)
        has_ended = select.select([pidfd], [], [], 0)[0]  # also true for a zombie
        if has_ended or try_lock(lock, LOCK_SH) or parse_lock(data) != content:
            os.close(pidfd)
            return None
        return _Living(name, content.pid, content.version, os.fstat(lock).st_mtime, pidfd)
    except ProcessLookupError:
        return None
    finally:
        os.close(lock)


def unlink_vacant(path: bytes) -> None:
    """Remove a lock file that no keeper holds, or that a starting keeper holds."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if try_lock(lock, LOCK_SH) or not os.read(lock, 1):
            os.unlink(path)
    except FileNotFoundError:
        pass  # another process did
    finally:
        os.close(lock)


def _status(found: _Living) -> KeeperStatus:
    pid = found.pid
    family = [pid, *_children(pid)]
    commands = [child for child in family[1:] if _is_command(child, pid)]
    resident = [pid, *(member for child in family[1:] if child not in commands for member in _descent(child))]
    idle = max(0.0, time.time() - found.used)
    name = os.fsdecode(found.lock.removesuffix(_LOCK))
    return KeeperStatus(name, pid, found.version, _age(pid), idle, len(commands), sum(map(_memory, resident)))


def _is_command(child: int, keeper: int) -> bool:
    """Return whether a child runs a command: it has its own session then."""
    try:
        return os.getsid(child) == child and _words(child) == _words(keeper)
    except (ProcessLookupError, FileNotFoundError):
        return False


def _words(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as stream:
        return stream.read()


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as stream:
            return [int(word) for word in stream.read().split()]
    except OSError:
        return []


def _descent(pid: int) -> list[int]:
    return [pid, *(member for child in _children(pid) for member in _descent(child))]


def _memory(pid: int) -> int:
    """Return the proportional share of memory in bytes; 0 if the process has gone or is not readable."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as stream:
            lines = stream.read().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))


def _age(pid: int) -> float:
    ticks = started(pid)
    return 0.0 if ticks < 0 else max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
