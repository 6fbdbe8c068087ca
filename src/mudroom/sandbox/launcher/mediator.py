"""The mediator performs or refuses the system calls that ``sandbox/linux/metadata.py`` routes to it.

It runs in the sandbox's init, which is in the same Landlock domain as the command and has no more rights.

Rules:
1. It may import only modules that the launcher may import: the launcher loads it.
2. A path is read from the caller's memory once and opened once (O_PATH). It is judged by the opened descriptor's place,
   as the kernel reports it (/proc/self/fd/N, proc_pid_fd(5)), and the change is made through that same descriptor. The
   caller's own system call never continues, so there is no race (seccomp_unotify(2)).
3. Anything unclear is EPERM.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import select

AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x1000
EPERM, EINTR, EIO, EBADF, EACCES, EFAULT, EINVAL, ENAMETOOLONG = 1, 4, 5, 9, 13, 14, 22, 36
ENOSYS, ENOTSOCK, ENOTSUP = 38, 88, 95
_LONGEST_ADDRESS = 28
"""Size of struct sockaddr_in6 (ipv6(7)); struct sockaddr_in has 16 bytes."""
_CONNECT_TIMEOUT = 5.0
"""Seconds that a connection to the gate, on the same machine, may take; all other calls wait meanwhile."""
_MAPPED = bytes(10) + b"\xff\xff"
PATH_MAX, XATTR_NAME_MAX, XATTR_SIZE_MAX = 4096, 255, 65536

# include/uapi/linux/seccomp.h: struct seccomp_notif is 80 bytes, struct seccomp_notif_resp 24.
NOTIF_RECV, NOTIF_SEND, NOTIF_ID_VALID, NOTIF_ADDFD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_ADDFD_SETFD = 1
_SYS_seccomp = {"x86_64": 317, "aarch64": 277}.get(os.uname().machine, 0)
_FILTER_FLAG_NEW_LISTENER = 8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = tuple[str, int, int, int, int, bool, str, tuple[tuple[str, int, int], ...]]

libc = ctypes.CDLL(None, use_errno=True)


def install(program: bytes) -> int:
    """Install the routing filter in this process. Return the listener (seccomp(2))."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = (len(program) // 8).to_bytes(8, "little") + ctypes.addressof(buffer).to_bytes(8, "little")
    listener: int = libc.syscall(
        ctypes.c_long(_SYS_seccomp), ctypes.c_long(1), ctypes.c_long(_FILTER_FLAG_NEW_LISTENER), header
    )
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp listener")
    return listener


def _control(listener: int, operation: int, message: Any) -> bool:
    """Call ioctl(2), repeated while signals interrupt it. Return whether the call succeeded; errno has the error."""
    # Init gets a signal for every process that ends, and a caller whose answer is lost waits for ever.
    while libc.ioctl(listener, ctypes.c_ulong(operation), message) < 0:
        if ctypes.get_errno() != EINTR:
            return False
    return True


class Mediator:
    """Answers one command's calls. ``rows``: by system call number; ``roots``: directories in which changes are
    allowed."""

    def __init__(self, listener: int, rows: dict[int, Row], roots: tuple[bytes, ...]) -> None:
        self._listener = listener
        self._rows = rows
        self._roots = roots
        self.refused: list[bytes] = []

    def attend(self, pidfd: int, wake: int) -> None:
        """Answer calls until the process behind ``pidfd`` has ended. ``wake`` is readable when a signal has arrived;
        the signal's handler runs when the poll returns."""
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(pidfd, select.POLLIN)
        poller.register(wake, select.POLLIN)
        while True:
            for descriptor, events in poller.poll():
                if descriptor == pidfd:
                    return
                if descriptor == wake:
                    os.read(wake, 4096)
                elif events & select.POLLIN:
                    self._answer()
                else:
                    poller.unregister(self._listener)  # no process with this filter is left

    def _answer(self) -> None:
        request = ctypes.create_string_buffer(80)
        if libc.ioctl(self._listener, ctypes.c_ulong(NOTIF_RECV), request) < 0:
            return  # the caller was killed meanwhile, or a signal came: poll(2) reports calls that still wait again
        raw = request.raw
        identity, pid = raw[:8], int.from_bytes(raw[8:12], "little")
        number = int.from_bytes(raw[16:20], "little", signed=True)
        arguments = [int.from_bytes(raw[i : i + 8], "little") for i in range(32, 80, 8)]
        try:
            error = self._perform(Caller(pid, identity, self._listener), self._rows[number], arguments)
        except OSError as failure:
            error = failure.errno or EPERM
        reply = identity + bytes(8) + (-error).to_bytes(4, "little", signed=True) + bytes(4)
        _control(self._listener, NOTIF_SEND, ctypes.c_char_p(reply))

    def _perform(self, caller: Caller, row: Row, arguments: list[int]) -> int:
        action, _directory, _path, _flags, values, _follow, clock, places = row
        if action == "refuse":
            return ENOSYS
        if action == "connect":
            return self._connect(caller, arguments, values, places)
        target = caller.open(row, arguments)
        try:
            where = os.readlink(b"/proc/self/fd/%d" % target)
            if not any(where == root or where.startswith(root + b"/") for root in self._roots):
                if len(self.refused) < 20:
                    self.refused.append(action.encode() + b" " + where)
                return EPERM
            caller.check()
            return int(ACTIONS[action](caller, target, arguments[values:], clock))
        finally:
            os.close(target)

    def _connect(
        self, caller: Caller, arguments: list[int], gate: int, places: tuple[tuple[str, int, int], ...]
    ) -> int:
        """Connect to the gate and to no other address. A place on the host's loopback leads to its gate listener.
        Return 0 or EACCES."""
        where = address(caller.read(arguments[1], min(arguments[2] & 0xFFFFFFFF, _LONGEST_ADDRESS)))
        ports = {(_bracketed(host), port): listener for host, port, listener in places}
        port = gate if where == (b"127.0.0.1", gate) else ports.get(where)
        if port is None:
            if len(self.refused) < 20:
                self.refused.append(b"connect %s:%d" % where)
            return EACCES
        number = _signed(arguments[0])
        flags = caller.flags(number)
        # The caller's socket is replaced by one connected here, so it leads to the gate whatever the caller changes
        # meanwhile (SECCOMP_ADDFD_FLAG_SETFD, seccomp_unotify(2)).
        replacement = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        try:
            replacement.settimeout(_CONNECT_TIMEOUT)
            replacement.connect(("127.0.0.1", port))
            replacement.setblocking(not flags & os.O_NONBLOCK)
            caller.give(replacement.fileno(), number, flags & os.O_CLOEXEC)
        finally:
            replacement.close()
        return 0


class Caller:
    """The process that made a call. It sleeps in the kernel until the call is answered."""

    def __init__(self, pid: int, identity: bytes, listener: int) -> None:
        self._proc = b"/proc/%d" % pid
        self._identity = identity
        self._listener = listener

    def check(self) -> None:
        """Raise OSError if the caller is gone: its pid, and data read by that pid, could belong to another process by
        now."""
        if not _control(self._listener, NOTIF_ID_VALID, ctypes.c_char_p(self._identity)):
            raise OSError(EPERM, "the caller is gone")

    def read(self, address: int, length: int) -> bytes:
        if address == 0:
            raise OSError(EFAULT, "null pointer")
        memory = os.open(self._proc + b"/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.check()
            return os.pread(memory, length, address)
        except (OverflowError, OSError) as error:  # EIO: no memory is mapped there; OverflowError: above 2**63
            if isinstance(error, OSError) and error.errno != EIO:
                raise
            raise OSError(EFAULT, "no memory there") from None
        finally:
            os.close(memory)

    def exactly(self, address: int, length: int) -> bytes:
        content = self.read(address, length)
        if len(content) < length:
            raise OSError(EFAULT, "its end is not mapped")
        return content

    def text(self, address: int, limit: int) -> bytes:
        """Read a C string, page by page: the page behind its end may not be mapped. Raise OSError if it is longer than
        ``limit``."""
        text = b""
        while len(text) <= limit:
            part = self.read(address + len(text), 4096 - (address + len(text)) % 4096)
            text += part
            if b"\0" in part or not part:
                return text.partition(b"\0")[0]
        raise OSError(ENAMETOOLONG, "a string without an end")

    def open(self, row: Row, arguments: list[int]) -> int:
        """Open the file that a call is about, as an O_PATH descriptor."""
        _action, directory, path, flags, values, follow, _clock, _places = row
        at = _signed(arguments[directory]) if directory >= 0 else AT_FDCWD
        if path < 0 or (arguments[path] == 0 and values == 2 and directory >= 0):  # utimensat, no path
            return self._descriptor(at)
        call_flags = arguments[flags] if flags >= 0 else 0
        name = self.text(arguments[path], PATH_MAX)
        if not name and call_flags & AT_EMPTY_PATH:
            return self._descriptor(at)
        nofollow = 0 if follow and not call_flags & AT_SYMLINK_NOFOLLOW else os.O_NOFOLLOW
        for alias, real in ((b"/proc/self/", self._proc + b"/"), (b"/dev/fd/", self._proc + b"/fd/")):
            if name.startswith(alias):
                name = real + name[len(alias) :]
        base = self._descriptor(AT_FDCWD if name.startswith(b"/") else at)  # an absolute name ignores it: openat(2)
        try:
            return os.open(name, os.O_PATH | os.O_CLOEXEC | nofollow, dir_fd=base)
        finally:
            os.close(base)

    def flags(self, number: int) -> int:
        """Return the flags on the caller's socket ``number``, with O_NONBLOCK and O_CLOEXEC (proc_pid_fdinfo(5)). Raise
        OSError if it is not a socket."""
        try:
            link = os.readlink(self._proc + b"/fd/%d" % number)
        except FileNotFoundError:
            raise OSError(EBADF, "no descriptor") from None
        if not link.startswith(b"socket:"):
            raise OSError(ENOTSOCK, "no socket")
        descriptor = os.open(self._proc + b"/fdinfo/%d" % number, os.O_RDONLY | os.O_CLOEXEC)
        try:
            info = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
        return int(info.partition(b"flags:")[2].split()[0], 8)

    def give(self, ours: int, number: int, flags: int) -> None:
        """Replace the caller's descriptor ``number`` with the descriptor ``ours`` (struct seccomp_notif_addfd)."""
        words = (_ADDFD_SETFD, ours, number, flags)
        message = self._identity + b"".join(word.to_bytes(4, "little") for word in words)
        if not _control(self._listener, NOTIF_ADDFD, ctypes.c_char_p(message)):
            raise OSError(ctypes.get_errno(), "the socket cannot be given")

    def _descriptor(self, number: int) -> int:
        if number == AT_FDCWD:
            return os.open(self._proc + b"/cwd", os.O_PATH | os.O_CLOEXEC)
        try:
            return os.open(self._proc + b"/fd/%d" % number, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OSError(EBADF, "no descriptor") from None


def address(raw: bytes) -> tuple[bytes, int]:
    """Parse a struct sockaddr_in or sockaddr_in6 into address text and port. Another family gives ``?`` and port 0."""
    family, port = int.from_bytes(raw[:2], "little"), int.from_bytes(raw[2:4], "big")
    packed = raw[4:8] if family == _socket.AF_INET and len(raw) >= 16 else b""
    if family == _socket.AF_INET6 and len(raw) >= 24:
        packed = raw[20:24] if raw[8:24].startswith(_MAPPED) else raw[8:24]
    if not packed:
        return b"?", 0
    shown = _socket.inet_ntop(_socket.AF_INET if len(packed) == 4 else _socket.AF_INET6, packed)
    return (b"[%s]" % shown.encode() if ":" in shown else shown.encode()), port


def _bracketed(host: str) -> bytes:
    return b"[%s]" % host.encode() if ":" in host else host.encode()


def _signed(value: int) -> int:
    """Return the C int in a 64 bit register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _result(returned: int) -> int:
    return ctypes.get_errno() if returned < 0 else 0


def _chmod(_caller: Caller, target: int, values: list[int], _clock: str) -> int:
    os.chmod(b"/proc/self/fd/%d" % target, values[0] & 0o7777)
    return 0


def _chown(_caller: Caller, target: int, values: list[int], _clock: str) -> int:
    uid, gid = _signed(values[0]), _signed(values[1])
    return _result(libc.fchownat(target, b"", ctypes.c_int(uid), ctypes.c_int(gid), AT_EMPTY_PATH))


def _times(caller: Caller, target: int, values: list[int], clock: str) -> int:
    times = None if values[0] == 0 else _timespecs(caller, values[0], clock)
    if os.fstat(target).st_mode & 0o170000 == 0o120000:
        return _result(libc.utimensat(target, b"", times, AT_EMPTY_PATH))
    return _result(libc.utimensat(AT_FDCWD, b"/proc/self/fd/%d" % target, times, 0))


def _timespecs(caller: Caller, address: int, clock: str) -> bytes:
    """Read a struct timespec[2] from any of the three formats (utime(2), utimes(2), utimensat(2))."""
    raw = caller.exactly(address, 16 if clock == "seconds" else 32)
    words = [int.from_bytes(raw[i : i + 8], "little", signed=True) for i in range(0, len(raw), 8)]
    if clock == "seconds":
        words = [words[0], 0, words[1], 0]
    elif clock == "timeval":
        if not all(0 <= microseconds < 1_000_000 for microseconds in words[1::2]):
            raise OSError(EINVAL, "no time of a second")
        words = [words[0], words[1] * 1000, words[2], words[3] * 1000]
    return b"".join(word.to_bytes(8, "little", signed=True) for word in words)


def _setxattr(caller: Caller, target: int, values: list[int], _clock: str) -> int:
    name = caller.text(values[0], XATTR_NAME_MAX)
    size = min(values[2], XATTR_SIZE_MAX + 1)
    content = caller.exactly(values[1], size) if size else b""
    path = b"/proc/self/fd/%d" % target
    return _result(libc.setxattr(path, name, content, ctypes.c_size_t(len(content)), ctypes.c_int(_signed(values[3]))))


def _removexattr(caller: Caller, target: int, values: list[int], _clock: str) -> int:
    return _result(libc.removexattr(b"/proc/self/fd/%d" % target, caller.text(values[0], XATTR_NAME_MAX)))


ACTIONS: dict[str, Any] = {
    "chmod": _chmod,
    "chown": _chown,
    "times": _times,
    "setxattr": _setxattr,
    "removexattr": _removexattr,
}
