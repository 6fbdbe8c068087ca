"""Messages on the sockets and pipes to the launcher, a program in C. ``src/native/launcher/launcher.c`` describes its
processes, and its requests and reports."""

from __future__ import annotations

import _socket
import marshal
import os

from mudroom.core.system import rights
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Request = dict[str, Any]

_MOST_DESCRIPTORS = 16
"""With a request."""
PLAIN = 2
"""The marshal version whose values do not refer to each other: the launcher reads it."""


def tell(report: int, record: tuple[Any, ...]) -> None:
    os.write(report, marshal.dumps(record))


def receive(control: _socket.socket) -> tuple[Request | None, list[int]]:
    """Receive a request with its descriptors. Return None at the end of file."""
    head, descriptors, _is_cut = rights.receive(control, 4, _MOST_DESCRIPTORS)
    if not head:
        return None, []
    try:
        return marshal.loads(rights.receive_exactly(control, int.from_bytes(head, "little"))), descriptors
    except EOFError:
        return None, []
