"""A sandbox-exec(1) on Linux that confines: the profile is judged by ``sbpl.py``, by seccomp user notification.

    sandbox-exec -f PROFILE -- PROGRAM ARGUMENT…      (made by ``macbox.enforcing_sandbox_exec``)

Calls that open, make, move, link, change or remove a file, connect, bind, signal and execute wait for a supervisor, a
process that this one starts before it becomes the command. A permitted call goes on in the kernel
(SECCOMP_USER_NOTIF_FLAG_CONTINUE): a second thread could change a path meanwhile, so this holds honest attempts, not
races. What the supervisor does not know, metadata for example, is permitted.

``settings``: ``reading`` of the language, or ``wildcards`` (one that no source names); ``permit`` ((operation, path or
name) pairs that are permitted against the profile: a mutant), with the name "" for all; ``forbid`` (the contrary);
``log`` (a file that is told each refusal); ``unmarked`` (the command does not get the mark of its run).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import sys
from typing import Any

from sbpl import READINGS, Profile, parse

from mudroom.ext.macos.seatbelt import real
from mudroom.sandbox.linux.seccomp import _FORMAT, _Instruction

CONTINUE, EPERM, EINTR, EIO, EFAULT, ENAMETOOLONG, AT_FDCWD = 1, 1, 4, 5, 14, 36, -100
NOTIF_RECV, NOTIF_SEND, NOTIF_ID_VALID = 0xC0502100, 0xC0182101, 0x40082102
"""include/uapi/linux/seccomp.h: struct seccomp_notif is 80 bytes, struct seccomp_notif_resp 24."""
libc = ctypes.CDLL(None, use_errno=True)
_LD_W_ABS, _JEQ_K, _RET_K, _ALLOW, _USER_NOTIF = 0x20, 0x15, 0x06, 0x7FFF0000, 0x7FC00000
_O_ACCMODE, _O_CREAT, _O_TRUNC, _O_NOFOLLOW, _O_PATH = 3, 0o100, 0o1000, 0o400000, 0o10000000

SETUGID = "file-write-setugid"
SERVICES = b"/services/"
"""In this directory of a canary a unix socket stands for a service of launchd."""
READ, WRITE, CREATE, UNLINK = "file-read-data", "file-write-data", "file-write-create", "file-write-unlink"
# Arguments by number: directory (-1: none) and path. ``end``: the last name is not followed.
Path = tuple[int, int, bool]
CALLS: dict[str, tuple[int, tuple[tuple[str, Path], ...]]] = {
    "truncate": (76, ((WRITE, (-1, 0, True)),)),
    "rename": (82, ((UNLINK, (-1, 0, False)), (CREATE, (-1, 1, False)))),
    "mkdir": (83, ((CREATE, (-1, 0, False)),)),
    "rmdir": (84, ((UNLINK, (-1, 0, False)),)),
    "link": (86, (("file-link", (-1, 0, False)), (CREATE, (-1, 1, False)))),
    "unlink": (87, ((UNLINK, (-1, 0, False)),)),
    "symlink": (88, ((CREATE, (-1, 1, False)),)),
    "chmod": (90, (("file-write-mode", (-1, 0, True)),)),
    "mknod": (133, ((CREATE, (-1, 0, False)),)),
    "mkdirat": (258, ((CREATE, (0, 1, False)),)),
    "mknodat": (259, ((CREATE, (0, 1, False)),)),
    "unlinkat": (263, ((UNLINK, (0, 1, False)),)),
    "renameat": (264, ((UNLINK, (0, 1, False)), (CREATE, (2, 3, False)))),
    "linkat": (265, (("file-link", (0, 1, False)), (CREATE, (2, 3, False)))),
    "symlinkat": (266, ((CREATE, (1, 2, False)),)),
    "fchmodat": (268, (("file-write-mode", (0, 1, True)),)),
    "utimensat": (280, (("file-write-times", (0, 1, True)),)),
    "renameat2": (316, ((UNLINK, (0, 1, False)), (CREATE, (2, 3, False)))),
    "execve": (59, (("process-exec", (-1, 0, True)),)),
}
"""Calls about paths alone, with their number (x86_64) and the operations that Seatbelt asks about."""
OPEN, OPENAT, CREAT, CONNECT, SENDTO, BIND, KILL = 2, 257, 85, 42, 44, 49, 62
BY_NUMBER = dict(CALLS.values())


def program() -> bytes:
    numbers = sorted({*BY_NUMBER, OPEN, OPENAT, CREAT, CONNECT, SENDTO, BIND, KILL})
    code = [_Instruction(_LD_W_ABS, 0, 0, 0)]
    code += [_Instruction(_JEQ_K, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    code += [_Instruction(_RET_K, 0, 0, _ALLOW), _Instruction(_RET_K, 0, 0, _USER_NOTIF)]
    return b"".join(_FORMAT.pack(*instruction) for instruction in code)


def install(program: bytes) -> int:
    """Install the routing filter in this process. Return the listener (seccomp(2))."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = (len(program) // 8).to_bytes(8, "little") + ctypes.addressof(buffer).to_bytes(8, "little")
    listener: int = libc.syscall(ctypes.c_long(317), ctypes.c_long(1), ctypes.c_long(8), header)
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


class Supervisor:
    """Answers the calls of one command. Owner: its own process."""

    def __init__(self, listener: int, profile: Profile, settings: dict[str, Any], command: int) -> None:
        self._listener, self._profile, self._settings, self._command = listener, profile, settings, command
        self._permit = {(operation, name) for operation, name in settings.get("permit", ())}
        self._forbid = {(operation, name) for operation, name in settings.get("forbid", ())}
        self._known: dict[tuple[Any, ...], bool] = {}

    def serve(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        while True:
            for _descriptor, events in poller.poll():
                if not events & select.POLLIN:
                    return  # no process with this filter is left
                self._answer()

    def _answer(self) -> None:
        request = ctypes.create_string_buffer(80)
        if libc.ioctl(self._listener, ctypes.c_ulong(NOTIF_RECV), request) < 0:
            return
        raw = request.raw
        identity, pid = raw[:8], int.from_bytes(raw[8:12], "little")
        number = int.from_bytes(raw[16:20], "little", signed=True)
        words = [int.from_bytes(raw[i : i + 8], "little") for i in range(32, 80, 8)]
        caller = Caller(pid, identity, self._listener)
        try:
            decisions = [self._allows(pid, *asked) for asked in _asked(caller, pid, number, words)]  # all are logged
            refused = not all(decisions)
        except OSError as error:
            refused = error.errno not in (2, 9, 14, 20, 36, 40)  # the kernel says the same of them
        answer, flags = (-EPERM, 0) if refused else (0, CONTINUE)
        reply = identity + bytes(8) + answer.to_bytes(4, "little", signed=True) + flags.to_bytes(4, "little")
        libc.ioctl(self._listener, ctypes.c_ulong(NOTIF_SEND), ctypes.c_char_p(reply))

    def _allows(self, pid: int, operation: str, context: dict[str, Any]) -> bool:
        if operation == "signal":
            context = {"target": self._target(pid, context["pid"]), "pid": context["pid"]}
        key = (operation, *sorted(context.items()))
        if key not in self._known:
            self._known[key] = self._decide(operation, context)
        return self._known[key]

    def _decide(self, operation: str, context: dict[str, Any]) -> bool:
        name = os.fsdecode(context["path"]) if "path" in context else self._name(context)
        if (operation, name) in self._forbid:
            return False
        if (operation, name) in self._permit or (operation, "") in self._permit:
            return True
        context = {key: value for key, value in context.items() if key != "pid"}
        if self._profile.decide(self._settings.get("reading", "operation, filter"), operation, **context):
            return True
        if "log" in self._settings:
            with open(self._settings["log"], "a") as stream:
                stream.write(json.dumps([operation, name]) + "\n")
        return False

    def _name(self, context: dict[str, Any]) -> str:
        """Return the name of a peer: of a process, or of a server with a gate and without."""
        behind = (
            " beside a gate" if any(rule.allows and _is_of_gate(rule.filters) for rule in self._profile.rules) else ""
        )
        if "name" in context:
            all_services = any(
                "mach-lookup" in rule.operations and rule.allows and not rule.filters for rule in self._profile.rules
            )
            return str(context["name"]) + (" at level 0" if all_services else "")
        if "protocol" not in context:
            return "a process"
        return f"{context['protocol']}{self._where(context['host'], context['port'])}{behind}"

    def _where(self, host: str, port: int) -> str:
        """Return which of the rows of the network a peer is of."""
        if port == 53:
            return " to port 53"
        if host.startswith("224."):
            return " by multicast"
        if host == "::1":
            return " by IPv6"
        if host in ("127.0.0.1", "0.0.0.0"):
            return ""
        own = any(b":%d" % port in one[2] for rule in self._profile.rules for one in rule.filters if one[:2] == _GATE)
        return " at another address" + ", the port of the gate" * own

    def _target(self, pid: int, target: int) -> str:
        if target == pid:
            return "self"
        while target > 1:
            if target == self._command:
                return "same-sandbox"
            try:
                with open(f"/proc/{target}/stat") as stream:
                    target = int(stream.read().rpartition(")")[2].split()[1])
            except OSError:
                return "others"
        return "others"


_GATE = ["remote", "tcp"]


def _is_of_gate(filters: tuple[Any, ...]) -> bool:
    return any(one[:2] == _GATE for one in filters)


def _asked(caller: Caller, pid: int, number: int, words: list[int]) -> list[tuple[str, dict[str, Any]]]:
    """Return the operations, each with its context, that a call asks for."""
    if number in BY_NUMBER:
        wanted = BY_NUMBER[number]
        asked = [(operation, {"path": _path(caller, pid, words, at)}) for operation, at in wanted if words[at[1]]]
        mode = words[2] if number == CALLS["fchmodat"][0] else words[1] if number == CALLS["chmod"][0] else 0
        return [*asked, *((SETUGID, context) for _operation, context in asked if mode & 0o6000)]
    if number in (OPEN, OPENAT, CREAT):
        at = (0, 1) if number == OPENAT else (-1, 0)
        flags = words[at[1] + 1] if number != CREAT else 1 | _O_CREAT | _O_TRUNC
        path = _path(caller, pid, words, (*at, not flags & _O_NOFOLLOW))
        if path.endswith(b"/cmdline") and path.startswith(b"/proc/") and path != b"/proc/%d/cmdline" % pid:
            return [("sysctl-read", {"name": "kern.procargs2"})]
        if path.startswith(b"/dev/pts/"):
            path = b"/dev/ttys000"
        return [(operation, {"path": path}) for operation in _of_open(flags, path)]
    if number == KILL:
        target = words[0] - (1 << 64) if words[0] >> 63 else words[0] & 0xFFFFFFFF
        return [("signal", {"pid": target})] if 0 < target < 1 << 31 else []
    address, length = (words[4], words[5]) if number == SENDTO else (words[1], words[2])
    if not address:
        return []
    raw = caller.read(address, min(length, 110))
    operation = "network-bind" if number == BIND else "network-outbound"
    family = int.from_bytes(raw[:2], "little")
    if family == socket.AF_UNIX:
        text = raw[2:].partition(b"\0")[0]
        path = real(os.path.realpath(os.path.join(os.readlink(b"/proc/%d/cwd" % pid), text)))
        if SERVICES in path and number == CONNECT:
            return [("mach-lookup", {"name": os.path.basename(path).decode()})]
        made = [(CREATE, {"path": path})] if number == BIND else []
        return [(operation, {"path": path}), *made]
    if family not in (socket.AF_INET, socket.AF_INET6):
        return []
    port = int.from_bytes(raw[2:4], "big")
    host = socket.inet_ntop(family, raw[4:8] if family == socket.AF_INET else raw[8:24])
    kind = _kind(pid, words[0])
    return [(operation, {"host": host, "port": port, "protocol": kind})]


def _kind(pid: int, descriptor: int) -> str:
    """Return tcp or udp, by the tables of the caller's sockets: proc_pid_net(5)."""
    link = os.readlink(f"/proc/{pid}/fd/{descriptor & 0xFFFFFFFF}")
    inode = link.partition("[")[2].rstrip("]")
    for name in ("udp", "udp6"):
        with open(f"/proc/{pid}/net/{name}") as stream:
            if any(line.split()[9] == inode for line in list(stream)[1:]):
                return "udp"
    with open(f"/proc/{pid}/fdinfo/{descriptor & 0xFFFFFFFF}"):
        return "tcp" if _is_stream(pid, descriptor) else "udp"


def _is_stream(pid: int, descriptor: int) -> bool:
    """Return whether a socket is a stream, by a copy of it (pidfd_getfd(2))."""
    pidfd = os.pidfd_open(pid)
    copy = libc.syscall(438, pidfd, descriptor & 0xFFFFFFFF, 0)
    os.close(pidfd)
    with socket.socket(fileno=copy) as found:
        return found.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM


def _of_open(flags: int, path: bytes) -> list[str]:
    if flags & _O_PATH:
        return []
    mode = flags & _O_ACCMODE
    operations = [READ] * (mode in (0, 2)) + [WRITE] * (mode in (1, 2) or bool(flags & _O_TRUNC))
    return [*operations, *([CREATE] if flags & _O_CREAT and not os.path.lexists(path) else ())]


def _path(caller: Caller, pid: int, words: list[int], at: Path | tuple[int, int, bool]) -> bytes:
    """Return a path of a call as Seatbelt is told it: links followed, but for the last name where the call does not."""
    directory, number, follows = at
    base = words[directory] & 0xFFFFFFFF if directory >= 0 else AT_FDCWD & 0xFFFFFFFF
    text = caller.text(words[number], 4096)
    if not text:
        raise OSError(2, "an empty path")
    for alias in (b"/proc/self", b"/dev/fd"):
        if text == alias or text.startswith(alias + b"/"):
            text = (b"/proc/%d" % pid) + (b"/fd" if alias == b"/dev/fd" else b"") + text[len(alias) :]
    if not text.startswith(b"/"):
        link = b"cwd" if base == AT_FDCWD & 0xFFFFFFFF else b"fd/%d" % base
        text = os.readlink(b"/proc/%d/%s" % (pid, link)) + b"/" + text
    if follows:
        return real(os.path.realpath(text))
    above, _slash, name = text.rstrip(b"/").rpartition(b"/")
    if name in (b".", b".."):
        return real(os.path.realpath(text))
    return real(os.path.realpath(above or b"/").rstrip(b"/") + b"/" + name)


def _unmark() -> None:
    """Overwrite the mark of the run in this process's environment, as proc_pid_environ(5) shows it: the supervisor is
    the kernel's part, and the warden may not end it with the command's processes."""
    getenv = libc.getenv
    getenv.restype = ctypes.c_void_p
    if place := getenv(b"MUDROOM_RUN"):
        ctypes.memset(place, ord("x"), len(ctypes.string_at(place)))


READINGS["wildcards"] = lambda named, _filtered: (not named,)


def main(settings: dict[str, Any], words: list[bytes]) -> None:
    if words[0] != b"-f" or words[2] != b"--":
        sys.exit("usage")
    with open(words[1], "rb") as stream:
        profile = parse(stream.read())
    ours, theirs = socket.socketpair()
    command = os.getpid()
    if not (child := os.fork()):
        if os.fork():
            os._exit(0)  # not a child of the command: it would be waited for
        ours.close()
        _unmark()
        _message, descriptors, _flags, _address = socket.recv_fds(theirs, 1, 1)
        os.setsid()
        theirs.close()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)  # a pipe of the command ends with the command
        Supervisor(descriptors[0], profile, settings, command).serve()
        os._exit(0)
    os.waitpid(child, 0)
    theirs.close()
    libc.prctl(38, 1, 0, 0, 0)
    listener = install(program())
    socket.send_fds(ours, [b"l"], [listener])
    os.close(listener)
    ours.close()
    if settings.get("unmarked"):
        os.environb.pop(b"MUDROOM_RUN", None)
    os.execv(words[3], words[3:])
