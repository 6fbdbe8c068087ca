"""Relay between the caller's descriptors and a command's pipes: no descriptor of the caller gets into a sandbox.

With a file's descriptor a command could change the file's mode (fchmod(2)), read it back, empty it, map it, or open it
again through /proc/self/fd; with a pipe's it could read bytes that others have written, or change its size and flags.

Rules:
1. A command gets a pipe, or /dev/null opened anew. The bytes move here, in the loop that attends to the command
   (``capture.py``), by splice(2) where both ends allow it.
2. No call here blocks, except writes to regular files. The flags on the caller's descriptors are not changed: other
   processes share them.
3. stdout and stderr that lead to the same place share one pipe, so their order is kept.
4. Input that the command has not read stays the caller's where the kernel allows it: in a file the position is set
   back; from a pipe bytes are copied by tee(2) and taken only when the command has read them. A command that reads more
   than ``CAREFUL`` bytes from a pipe is taken to read it all: then up to a pipe's size is read ahead.
5. If the caller's end fails, the command's pipe is closed: it gets EPIPE and SIGPIPE, as it would have. A failure other
   than a reader that has gone is kept for the caller.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from mudroom.typing import Any

CAREFUL = 1 << 20
CHUNK = 1 << 20
"""Bytes per call, and the wanted pipe size. Users may get less (/proc/sys/fs/pipe-user-pages-soft)."""
_WRITE = 1 << 16
_PAGE = 4096
_NULL = os.makedev(1, 3)
_SPLICE_MOVE, _SPLICE_NONBLOCK = 1, 2
_SYS_TEE = {"x86_64": 276, "aarch64": 77}
_SYS_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_FILE = 0
_GONE = (errno.EPIPE, errno.ECONNRESET)
_NO_SPLICE = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EBADF)

Ready = Mapping[int, int]
"""Descriptors with their poll(2) events."""


def leads_to_null(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL


def is_same(first: int, second: int) -> bool:
    """Return whether bytes written to both descriptors come out in call order: both are one open file, or one pipe,
    socket or device. kcmp(2) tells open files with one path apart; without it they count as one."""
    one, two = os.fstat(first), os.fstat(second)
    if (one.st_dev, one.st_ino) != (two.st_dev, two.st_ino):
        return False
    if not stat.S_ISREG(one.st_mode):
        return True
    number = _SYS_KCMP.get(os.uname().machine)
    if sys.platform != "linux" or number is None:
        return True
    pid = os.getpid()
    return _syscall(number, pid, pid, _KCMP_FILE, first, second) in (0, None)


def _syscall(number: int, *arguments: int) -> int | None:
    """Return a system call's result, or None if the kernel or a filter refuses it. Raise BlockingIOError for EAGAIN."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
    if result >= 0:
        return result
    if ctypes.get_errno() == errno.EAGAIN:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return None


def _make_pipe(ours: int) -> tuple[int, int]:
    """Return a new pipe. ``ours``: 0 or 1, the end that does not block. The flag is that end's alone."""
    pair = os.pipe()
    os.set_blocking(pair[ours], False)
    return pair


def resize(pipe: int, size: int) -> None:
    """Set a pipe's size, if the kernel allows it."""
    if sys.platform == "linux":
        with suppress(OSError):  # the user's pipes have reached their limit: the present size works, too
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)


def unread(pipe: int) -> int:
    """Return how many bytes are in a pipe (FIONREAD, pipe(7))."""
    from termios import FIONREAD  # few commands need it

    return int.from_bytes(fcntl.ioctl(pipe, FIONREAD, bytes(4)), "little")


class OutputRelay:
    """A pipe for a command's output. Owner: the thread that attends to the command."""

    is_output = True

    def __init__(self, name: str, target: int) -> None:
        self.name, self.target = name, target
        self._read, self.theirs = _make_pipe(0)
        self.failure: OSError | None = None
        self.ended = self.is_blocked = False
        self._waiting = b""
        self._until_large = _WRITE
        """Bytes until the pipe is made larger: most commands write less."""
        self._move = self._way()

    def _way(self) -> Callable[[], int]:
        mode = os.fstat(self.target).st_mode
        appends = bool(fcntl.fcntl(self.target, fcntl.F_GETFL) & os.O_APPEND)  # splice(2): EINVAL
        if hasattr(os, "splice") and ((stat.S_ISREG(mode) and not appends) or stat.S_ISFIFO(mode)):
            return self._splice
        return self._send if stat.S_ISSOCK(mode) else self._write_all if stat.S_ISREG(mode) else self._write_some

    def close_theirs(self) -> None:
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def events(self) -> dict[int, int]:
        if self.ended:
            return {}
        return {self.target: select.POLLOUT} if self.is_blocked else {self._read: select.POLLIN}

    def has_more(self) -> bool:
        """Return whether bytes of the command are left, in the pipe or here."""
        return not self.ended and bool(self._waiting or unread(self._read))

    def attend(self, _ready: Ready) -> None:
        self.is_blocked = False
        try:
            count = self._move()
            if not count:
                self._end()
            elif 0 < self._until_large <= count:
                resize(self._read, CHUNK)
            self._until_large -= count
        except BlockingIOError:
            self.is_blocked = bool(self._waiting or unread(self._read))
        except OSError as error:
            self.failure = None if error.errno in _GONE else error
            self._end()

    def _splice(self) -> int:
        flags = _SPLICE_MOVE | _SPLICE_NONBLOCK
        try:
            return os.splice(self._read, self.target, CHUNK, flags=flags)
        except OSError as error:
            if error.errno not in _NO_SPLICE:
                raise
            mode = os.fstat(self.target).st_mode
            self._move = self._write_all if stat.S_ISREG(mode) else self._write_some
            return self._move()

    def _take(self, size: int) -> bool:
        """Read into ``_waiting`` if it is empty. Return False when the output has ended."""
        if not self._waiting:
            self._waiting = os.read(self._read, size)
        return bool(self._waiting)

    def _write_all(self) -> int:
        return self._take(CHUNK) and self._written(os.write(self.target, self._waiting))

    def _write_some(self) -> int:
        """Write to a device or pipe that may block: when it is ready, as much as it takes at once (pipe(7),
        PIPE_BUF)."""
        if not self._take(_WRITE):
            return 0
        if not _has(self.target, select.POLLOUT):
            raise BlockingIOError
        return self._written(os.write(self.target, self._waiting[:_PAGE]))

    def _send(self) -> int:
        import socket

        if not self._take(_WRITE):
            return 0
        with socket.socket(fileno=os.dup(self.target)) as sock:
            return self._written(sock.send(self._waiting, socket.MSG_DONTWAIT))

    def _written(self, count: int) -> int:
        self._waiting = self._waiting[count:]
        return max(count, 1)

    def _end(self) -> None:
        self.ended, self.is_blocked, self._waiting = True, False, b""
        os.close(self._read)

    def hand_over(self) -> None:
        """Let cat(1) relay the output of processes that go on. Do nothing if none of them has the pipe."""
        if self.ended or _has(self._read, 0):
            return
        os.set_blocking(self._read, True)
        actions = [(os.POSIX_SPAWN_DUP2, self._read, 0), (os.POSIX_SPAWN_DUP2, self.target, 1)]
        os.posix_spawnp("cat", ["cat"], {}, file_actions=actions, setsid=True)

    def close(self) -> None:
        self.close_theirs()
        if not self.ended:
            self._end()


def _has(descriptor: int, events: int) -> bool:
    """Return whether one of the poll(2) events, a hang-up or an error has occurred."""
    poller = select.poll()
    poller.register(descriptor, events)
    return bool(poller.poll(0))


class InputRelay:
    """The pipe for a command's input. Owner: the thread that attends to the command."""

    is_output = is_blocked = False
    name = "stdin"

    def __init__(self, source: int) -> None:
        self.source = source
        self.theirs, self._write = _make_pipe(1)
        self.failure: OSError | None = None
        self.ended = False
        self._rest = -1
        """The pipe's end for the command, opened again at the file's end: it tells how many bytes were not read."""
        self._copied = self._passed = 0
        """Bytes that were copied by tee(2) and not taken yet; bytes that the command has read from a pipe."""
        self._waiting = b""
        self._mode = os.fstat(source).st_mode
        self._start = self._position = os.lseek(source, 0, os.SEEK_CUR) if stat.S_ISREG(self._mode) else -1
        """``_position``: the caller's file position, unless another process has read or sought there."""
        self._is_careful = stat.S_ISFIFO(self._mode) and sys.platform == "linux" and os.uname().machine in _SYS_TEE
        if self._is_careful:
            resize(self._write, _PAGE)

    def close_theirs(self) -> None:
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def events(self) -> dict[int, int]:
        """Return the events to wait for. A file is always ready, so only room in the pipe matters. POLLERR tells that
        no reader is left (pipe(7)); poll(2) reports it unasked."""
        if self.ended:
            return {}
        if stat.S_ISREG(self._mode) or self._copied or self._waiting:
            return {self._write: select.POLLOUT}
        return {self.source: select.POLLIN, self._write: 0}

    def attend(self, ready: Ready) -> None:
        if ready.get(self._write, 0) & select.POLLERR:
            self._end()
            return
        try:
            move = self._tee if self._is_careful else self._splice if hasattr(os, "splice") else self._pass
            if not move():
                self._end_input()
        except BlockingIOError:
            pass
        except OSError as error:
            self.failure = None if error.errno in (*_GONE, errno.EIO) else error  # EIO: a terminal in the background
            self._end()

    def _tee(self) -> bool:
        """Copy the next bytes from a pipe. The pipe to the command has one page, so there is room again only when the
        command has read all previous bytes."""
        if self._copied:
            self._take(self._copied)
            self._copied = 0
            if self._passed >= CAREFUL:
                self._is_careful = False
                resize(self._write, CHUNK)
            return True
        number = _SYS_TEE[os.uname().machine]
        count = _syscall(number, self.source, self._write, _PAGE, _SPLICE_NONBLOCK)
        if count is None:
            self._is_careful = False
            return True
        self._copied = count
        return bool(count)

    def _take(self, count: int) -> None:
        """Take bytes that the command has read from the caller's pipe. There are fewer if another reader took some."""
        count = min(count, unread(self.source))
        self._passed += count
        if count:
            os.read(self.source, count)

    def _splice(self) -> bool:
        try:
            count = os.splice(self.source, self._write, CHUNK, flags=_SPLICE_MOVE | _SPLICE_NONBLOCK)
            self._position += count
            return bool(count)
        except OSError as error:
            if error.errno not in _NO_SPLICE:
                raise
            return self._pass()

    def _pass(self) -> bool:
        if not self._waiting:
            self._waiting = os.read(self.source, _WRITE)
            self._position += len(self._waiting)
            if not self._waiting:
                return False
        self._waiting = self._waiting[os.write(self._write, self._waiting) :]
        return True

    def has_more(self) -> bool:
        return False

    def _end_input(self) -> None:
        """Close the pipe when the input has ended. The command may still read the bytes in it."""
        if stat.S_ISREG(self._mode) and sys.platform == "linux":
            self._rest = os.open(b"/proc/self/fd/%d" % self._write, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.ended = True
        os.close(self._write)

    def _end(self) -> None:
        """Close the pipe, and give back the bytes that the command has not read."""
        self.ended = True
        left = unread(self._write) + len(self._waiting)
        os.close(self._write)
        self._give_back(left)

    def _give_back(self, left: int) -> None:
        """Give back the last ``left`` bytes. The command can open its end of the pipe again and write to it, so there
        may be more than were passed on."""
        if self._copied:
            self._take(max(self._copied - left, 0))
        elif left and stat.S_ISREG(self._mode) and os.lseek(self.source, 0, os.SEEK_CUR) == self._position:
            os.lseek(self.source, max(self._position - left, self._start), os.SEEK_SET)

    def close(self) -> None:
        self.close_theirs()
        if not self.ended:
            self._end()
        elif self._rest >= 0:
            self._give_back(unread(self._rest))
            os.close(self._rest)
            self._rest = -1


StreamRelay = OutputRelay | InputRelay


def failures(relays: Sequence[StreamRelay]) -> list[str]:
    """Return the failures of the caller's descriptors, as clauses."""
    found: list[Any] = [(relay.name, relay.failure) for relay in relays if relay.failure is not None]
    return [f"{name}: {os.strerror(error.errno or 0)}" for name, error in found]
