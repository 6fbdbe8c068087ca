"""Packets with descriptors between two processes, over a pair of unix sockets.

Linux has SOCK_SEQPACKET for them (unix(7)). On macOS unix sockets are SOCK_STREAM or SOCK_DGRAM only (unix(4);
socketpair(2) fails with EPROTONOSUPPORT), and a datagram socket has no end-of-file. There a packet is a frame in a
stream: its length in four bytes, then its content.

Rules for the frames:
1. A reader never reads past a frame's end, so the descriptors that arrive belong to the frame being read: they travel
   with the first byte that their ``sendmsg`` carried.
2. A length that is zero, or above the agreed one, is reported as a truncated packet (MSG_TRUNC), as a packet socket
   reports it. Nothing after it is read.
3. An incomplete frame is kept until the rest arrives: a stream may end a read anywhere.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence

from mudroom.core.system import rights
from mudroom.core.system.rights import Received

HAS_PACKETS = sys.platform == "linux"
"""Whether unix sockets keep packets apart."""
_LENGTH = 4


def packet_pair() -> tuple[socket.socket, socket.socket]:
    """Return a pair of connected sockets. Raise OSError."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET if HAS_PACKETS else socket.SOCK_STREAM)


def framed(packet: bytes) -> bytes:
    """Return the bytes to send for a non-empty packet. They may be sent in parts if ``HAS_PACKETS`` is false."""
    return packet if HAS_PACKETS else len(packet).to_bytes(_LENGTH, "little") + packet


def send_framed(channel: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send all bytes that ``framed`` returned. Block as the socket does. Raise OSError."""
    sent = rights.send(channel, data, descriptors)
    while sent < len(data):
        sent += channel.send(data[sent:])


class PacketReader:
    """Reads a socket's packets.

    Owner: the socket's reader.
    """

    def __init__(self, longest: int, most_descriptors: int) -> None:
        """``longest``: most bytes in a packet."""
        self._longest, self._most = longest, most_descriptors
        self._head = b""
        self._length = 0
        self._parts: list[bytes] = []
        self._descriptors: list[int] = []
        """Descriptors that belong to the incomplete frame."""

    def receive(self, channel: socket.socket) -> Received:
        """Return the next packet. Raise BlockingIOError if a non-blocking socket has no complete one."""
        return rights.receive(channel, self._longest, self._most) if HAS_PACKETS else self._frame(channel)

    def _frame(self, channel: socket.socket) -> Received:
        while not self._length:
            # Never past the frame: a longer read could return the next frame's descriptors, too.
            data, descriptors, is_cut = rights.receive(channel, _LENGTH - len(self._head), self._most)
            self._head += data
            self._descriptors += descriptors
            if not data or is_cut:
                return self._whole(b"", is_cut)
            if len(self._head) == _LENGTH:
                self._length = int.from_bytes(self._head, "little")
                if not 0 < self._length <= self._longest:
                    return self._whole(b"", True)
        while self._length:
            data, descriptors, is_cut = rights.receive(channel, self._length, self._most)
            self._descriptors += descriptors
            if not data or is_cut:
                return self._whole(b"", is_cut)
            self._parts.append(data)
            self._length -= len(data)
        return self._whole(b"".join(self._parts), False)

    def _whole(self, data: bytes, is_cut: bool) -> Received:
        descriptors, self._descriptors = self._descriptors, []
        self._head, self._length = b"", 0
        self._parts.clear()
        return data, descriptors, is_cut
