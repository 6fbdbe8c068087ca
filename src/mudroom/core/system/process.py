"""Processes and boots, as this system identifies them: a process handle, its start time, the present boot.

On Windows this file has only the start time and the boot (``ext/windows/win32/process.py``); there a handle tells a
process's end (``ext/windows/win32/child.py``).

| fact | Linux | macOS |
| --- | --- | --- |
| a process's end, as a descriptor | pidfd_open(2) | kqueue(2), EVFILT_PROC with NOTE_EXIT |
| a signal to that process, not to a later one with its pid | pidfd_send_signal(2) | kill(2) to a child not waited for |
| start time | proc_pid_stat(5), field 22 | proc_pidinfo, pbi_start_tvsec (bsd/sys/proc_info.h) |
| boot | /proc/sys/kernel/random/boot_id (random(4)) | sysctl kern.bootsessionuuid |
"""

from __future__ import annotations

import errno
import functools
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class ProcessHandle:
    """A child of this process, or its parent. ``fileno`` is readable once that process has ended.

    Owner: the caller, or the lock of its holder.
    """

    def __init__(self, pid: int) -> None:
        """Raise ProcessLookupError if there is no such process."""
        self.pid = pid
        self._descriptor, self._close = _end_of(pid)

    def fileno(self) -> int:
        return self._descriptor

    def ends_within(self, seconds: float) -> bool:
        """Wait at most this long. Return whether the process has ended."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(seconds * 1000))

    def kill_child(self) -> None:
        """Kill a child and wait for it. Do nothing if another caller has already waited for it."""
        with suppress(ProcessLookupError, ChildProcessError):
            _kill(self._descriptor, self.pid)
            os.waitpid(self.pid, 0)

    def close(self) -> None:
        self._close()


def ends_with_parent(number: int) -> Callable[[], None]:
    """Return a ``preexec_fn`` by which a child gets this signal when the thread that has started it ends
    (PR_SET_PDEATHSIG, prctl(2)); its own children do not. Another system than Linux has no such signal."""
    import ctypes

    parent, prctl = os.getpid(), getattr(ctypes.CDLL(None), "prctl", None)
    words = [ctypes.c_ulong(word) for word in (number, 0, 0, 0)]

    def prepare() -> None:
        if prctl is not None:
            prctl(1, *words)
            if os.getppid() != parent:  # it ended before the call
                os._exit(1)

    return prepare


def boot() -> str:
    """Return a name for the present boot; empty if the system has none."""
    try:
        return _boot()
    except OSError:
        return ""


def started(pid: int) -> int:
    """Return a process's start time, in any unit that distinguishes processes within a boot; 0 if it does not exist."""
    return _started(pid)


def _linux_boot() -> str:
    with open(_BOOT_ID, encoding="ascii") as stream:
        return stream.read().strip()


def _linux_started(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return int(stream.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


if sys.platform == "darwin":
    from mudroom.core.system.libproc import bsd_info, kernel_text, start_in

    def _end_of(pid: int) -> tuple[int, Callable[[], None]]:
        """Return a descriptor that is readable once a process has ended, and its close. A kqueue(2) descriptor is
        readable while it has an event that has not been taken. A process that is already ending cannot be watched
        (ESRCH: filt_procattach in bsd/kern/kern_event.c finds none): then the descriptor is readable at once."""
        queue = select.kqueue()
        try:
            queue.control([select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)], 0, 0)
        except ProcessLookupError:
            queue.close()
            read, write = os.pipe()
            os.close(write)
            return read, functools.partial(os.close, read)
        return queue.fileno(), queue.close

    def _kill(_descriptor: int, pid: int) -> None:
        """Kill a child. It keeps its pid until it is waited for."""
        from signal import SIGKILL

        if os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, SIGKILL)

    def _boot() -> str:
        return kernel_text(b"kern.bootsessionuuid")

    def _started(pid: int) -> int:
        info = bsd_info(pid)
        return 0 if info is None else start_in(info)

elif sys.platform == "win32":
    from mudroom.core.registry import twin

    _boot, _started = twin("process").boot_name, twin("process").start_time

    def _end_of(pid: int) -> tuple[int, Callable[[], None]]:
        raise OSError(errno.ENOTSUP, "no descriptor is the end of a process", str(pid))

    def _kill(_descriptor: int, pid: int) -> None:
        raise OSError(errno.ENOTSUP, "a child is ended by its handle", str(pid))

else:
    _boot, _started = _linux_boot, _linux_started

    def _end_of(pid: int) -> tuple[int, Callable[[], None]]:
        """Return a descriptor that is readable once a process has ended, and its close."""
        descriptor = os.pidfd_open(pid)
        return descriptor, functools.partial(os.close, descriptor)

    def _kill(descriptor: int, _pid: int) -> None:
        from signal import SIGKILL, pidfd_send_signal  # its enums cost a start a millisecond

        pidfd_send_signal(descriptor, SIGKILL)
