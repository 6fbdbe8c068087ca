"""A child process in a job, which runs mudroom's own code: the gate's. The counterpart to posix_spawn(3), rlimits and
pidfd.

Rules of this file:
1. This process has the job's only handle (KILL_ON_JOB_CLOSE): the child ends when this process ends, in any way.
2. The child does nothing until it is given a socket, which is after it is in the job.
3. It is the interpreter itself and not a virtual environment's launcher, which would start a second process.
"""

from __future__ import annotations

import ctypes
import socket
import subprocess
import sys
from ctypes import byref, sizeof

from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.typing import Any

_LENGTH = 4
_ENDED = 1
_LONGEST = 260
"""MAX_PATH."""


class Child:
    """A child of this process. ``pid`` is its number as long as it is not closed.

    Owner: the caller, or its holder's lock.
    """

    def __init__(self, program: str, memory: int, library: Library | None = None) -> None:
        """Start an interpreter with a program, which may take ``memory`` bytes and start no other process. Raise
        OSError."""
        self._library = library or Library()
        self._job = 0
        root = ctypes.create_unicode_buffer(_LONGEST)
        self._library.GetSystemWindowsDirectoryW(root, _LONGEST)
        self._process = subprocess.Popen(
            [getattr(sys, "_base_executable", "") or sys.executable, "-I", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"SYSTEMROOT": root.value},  # without it no socket can be made
            creationflags=w.CREATE_NO_WINDOW | w.CREATE_NEW_PROCESS_GROUP,  # Ctrl-C is for the command
        )
        self.pid = self._process.pid
        self._handle: int = int(getattr(self._process, "_handle"))  # noqa: B009 - of Windows alone
        try:
            self._confine(memory)
        except CallFailed as failed:
            self.kill_child()
            self.close()
            raise OSError(failed.code, str(failed)) from failed

    def _confine(self, memory: int) -> None:
        self._job = self._library.CreateJobObjectW(None, None)
        limits = w.JOBOBJECT_EXTENDED_LIMIT_INFORMATION()
        limits.BasicLimitInformation.LimitFlags = (
            w.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
            | w.JOB_OBJECT_LIMIT_JOB_MEMORY
            | w.JOB_OBJECT_LIMIT_ACTIVE_PROCESS
            | w.JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION
        )
        limits.BasicLimitInformation.ActiveProcessLimit = 1
        limits.JobMemoryLimit = memory
        kind = w.ENUM["JobObjectExtendedLimitInformation"]
        self._library.SetInformationJobObject(self._job, kind, byref(limits), sizeof(limits))
        self._library.AssignProcessToJobObject(self._job, self._handle)

    def give(self, channel: socket.socket) -> None:
        """Give the child a socket, and let it begin. Raise OSError."""
        end: Any = channel
        data: bytes = end.share(self.pid)
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(len(data).to_bytes(_LENGTH, "little") + data)
        pipe.close()

    def ends_within(self, seconds: float) -> bool:
        return self._library.WaitForSingleObject(self._handle, max(0, round(seconds * 1000))) == w.WAIT_OBJECT_0

    def kill_child(self) -> None:
        """End the child and wait for it."""
        try:
            self._library.TerminateProcess(self._handle, _ENDED)
        except CallFailed as failed:
            if failed.code != w.ERROR_ACCESS_DENIED:  # "TerminateProcess": it has ended
                raise OSError(failed.code, str(failed)) from failed
        self._process.wait()

    def close(self) -> None:
        """Close the handles: the rest of the job ends."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        job, self._job = self._job, 0
        if job:
            self._library.CloseHandle(job)


def given_socket() -> socket.socket:
    """Return the socket that the parent has given to this process. Raise EOFError if there is none."""
    stream = sys.stdin.buffer
    length = int.from_bytes(stream.read(_LENGTH), "little")
    data = stream.read(length)
    if not length or len(data) != length:
        raise EOFError("no socket was given")
    module: Any = socket
    given: socket.socket = module.fromshare(data)
    return given
