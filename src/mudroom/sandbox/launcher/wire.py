"""Messages on the sockets and pipes between the launcher's processes. ``launcher.py`` describes their senders.

Launcher code: the rules in ``launcher.py`` hold here.
"""

from __future__ import annotations

import _socket
import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Request = dict[str, Any]

CMSG_CLOEXEC: int = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
"""recvmsg(2). macOS has no such flag; there close-on-exec is set after the descriptor has arrived."""
PLAIN = 2
"""The marshal version whose values do not refer to each other: a native init reads it."""
PROTOCOL = "mudroom-init-3"
"""The version of a native init's start and messages, as in ``init.h``. It is also the program's file name, so a program
built from an older tree is not found."""
NATIVE_INIT = os.fsencode(f"{os.path.dirname(os.path.abspath(__file__))}/{PROTOCOL}")
"""The program from ``src/native/init``, shipped in a wheel. Where it is missing, launchers and templates do without."""
NATIVE_STEPS = frozenset((
    "beneath", "bind", "cover", "cwd", "devpts", "directory", "drop_capabilities", "enter", "file", "freeze",
    "hand_over", "inside", "landlock", "leave", "listen", "listen_on_loopback", "loopback", "mounted",
    "no_new_privs", "overlay", "left", "pivot", "proc", "rlimit", "routes", "seal", "seccomp", "spread", "symlink",
    "take", "terminal", "tmpfs", "umask", "view"
))  # fmt: skip
"""The steps that a native init performs: the table in ``src/native/init/step.c``."""


def tell(report: int, record: tuple[Any, ...]) -> None:
    os.write(report, marshal.dumps(record))


def send(channel: _socket.socket, data: bytes, descriptors: list[int]) -> None:
    """Send a message, already marshalled, with descriptors."""
    rights = b"".join(descriptor.to_bytes(4, "little") for descriptor in descriptors)
    whole = len(data).to_bytes(4, "little") + data  # in one call: the other end would wait for the rest
    sent = channel.sendmsg([whole], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    if sent < len(whole):
        channel.sendall(whole[sent:])


def opened(request: Request) -> Request:
    """Return the whole request. A command's request is mostly packed: a template passes it to the spare unread."""
    packed = request.get("whole")
    return marshal.loads(packed) if packed is not None else request


def receive(control: _socket.socket) -> tuple[Request | None, list[int]]:
    """Receive a request with its descriptors. Return None at the end of file."""
    head, ancillary, _flags, _address = control.recvmsg(4, _socket.CMSG_SPACE(64), CMSG_CLOEXEC)
    if not head:
        return None, []
    descriptors: list[int] = []
    for _level, _kind, data in ancillary:
        descriptors += [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data) - 3, 4)]
    if not CMSG_CLOEXEC:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
    length = int.from_bytes(head, "little")
    parts: list[bytes] = []
    while length:
        part = control.recv(min(length, 1 << 20))
        if not part:
            return None, []
        parts.append(part)
        length -= len(part)
    return marshal.loads(b"".join(parts)), descriptors
