"""Messages on the sockets and pipes to the launcher, a program in C. ``src/native/launcher/launcher.c`` describes its
processes, and its requests and reports."""

from __future__ import annotations

import _socket
import marshal
import os

from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Request = dict[str, Any]

CMSG_CLOEXEC: int = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
"""recvmsg(2). macOS has no such flag; there close-on-exec is set after the descriptor has arrived."""
PLAIN = 2
"""The marshal version whose values do not refer to each other: the launcher reads it."""
PROTOCOL = "mudroom-launcher-1"
"""The version of the launcher's start and messages, as in ``launcher.h``. It is also the program's file name, so a
program built from an older tree is not found."""
LAUNCHER = os.fsencode(f"{os.path.dirname(os.path.abspath(__file__))}/{PROTOCOL}")
"""The program from ``src/native/launcher``, shipped in a wheel."""


def tell(report: int, record: tuple[Any, ...]) -> None:
    os.write(report, marshal.dumps(record))


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
