"""Messages with descriptors over a unix socket (SCM_RIGHTS in unix(7)): to the launcher, the gate, a keeper, or a
helper in a namespace.

It uses ``_socket``: ``socket`` makes enumerations, which a cold command would pay for.
"""

from __future__ import annotations

import _socket
import os
from collections.abc import Sequence

CMSG_CLOEXEC: int = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
"""A recvmsg(2) flag. macOS lacks it; there close-on-exec is set after the descriptor has arrived."""

Received = tuple[bytes, list[int], bool]
"""Bytes, empty at the end; the descriptors that came with them, which the caller owns; whether a part is missing."""


def send(channel: _socket.socket, data: bytes, descriptors: Sequence[int]) -> int:
    """Send as much as the socket takes in one call, with the descriptors. Return the number of bytes. Raise OSError."""
    rights = b"".join(descriptor.to_bytes(4, "little") for descriptor in descriptors)
    return channel.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if rights else [])


def receive(channel: _socket.socket, longest: int, most: int) -> Received:
    """Receive up to ``longest`` bytes and ``most`` descriptors in one call. Raise OSError."""
    data, ancillary, flags, _address = channel.recvmsg(longest, _socket.CMSG_SPACE(4 * most), CMSG_CLOEXEC)
    descriptors = descriptors_of(ancillary)
    if not CMSG_CLOEXEC:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
    return data, descriptors, bool(flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC))


def descriptors_of(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors in what recvmsg(2) has received beside the bytes."""
    rights = (data for level, kind, data in ancillary if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS))
    return [int.from_bytes(data[at : at + 4], "little") for data in rights for at in range(0, len(data) - 3, 4)]


def receive_exactly(channel: _socket.socket, length: int) -> bytes:
    """Receive this many bytes. Raise EOFError if the socket ends before, OSError."""
    parts: list[bytes] = []
    while length:
        part = channel.recv(min(length, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
