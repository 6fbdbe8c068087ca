"""Packets with sockets between two Windows processes, over a pair of connected sockets on 127.0.0.1: the twin of
``packet.py``.

Windows passes no descriptor with a message. A socket is described for one process by WSADuplicateSocket
(``socket.share``), and made anew from the description there ("WSADuplicateSocketW"); the sender keeps its own. A packet
is a frame in a stream: the number of sockets, a description for each, the packet's length, the packet itself; numbers
in four bytes.

Rules for the frames: as in ``packet.py``, 2 and 3. A frame with more sockets than agreed counts as cut off.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from mudroom.typing import Any

_NUMBER = 4
DESCRIPTION = 628
"""Bytes in a WSAPROTOCOL_INFOW (winsock2.h)."""
_NONE = bytes(_NUMBER)

Received = tuple[bytes, list[int], bool]
"""As in ``packet.py``; the descriptors are socket handles."""


class PacketSocket(socket.socket):
    """A socket that knows which process reads from its other end. Without a known process it passes no sockets.

    Owner: the caller.
    """

    process = 0


def packet_pair() -> tuple[PacketSocket, PacketSocket]:
    """Return a pair of connected sockets that no other process can get into. Raise OSError."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        ours = PacketSocket()
        theirs: socket.socket | None = None
        try:
            ours.connect(listener.getsockname())
            theirs, peer = listener.accept()
            if peer != ours.getsockname():
                raise ConnectionAbortedError(0, "another process has connected first")
            for end in (ours, theirs):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return ours, PacketSocket(fileno=theirs.detach())
        except BaseException:
            ours.close()
            if theirs is not None:
                theirs.close()
            raise


def framed(packet: bytes) -> bytes:
    """Return a frame without sockets, as in ``packet.py``."""
    return _NONE + len(packet).to_bytes(_NUMBER, "little") + packet


def send_framed(channel: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send the whole result of ``framed``, and sockets with it. Raise OSError."""
    if descriptors:
        process = getattr(channel, "process", 0)
        if not process:
            raise OSError(0, "no process is known at the other end of the socket")
        rows = [len(descriptors).to_bytes(_NUMBER, "little"), *(_describe(one, process) for one in descriptors)]
        data = b"".join(rows) + data[_NUMBER:]
    channel.sendall(data)


def _describe(descriptor: int, process: int) -> bytes:
    end: Any = socket.socket(fileno=descriptor)
    try:
        described: bytes = end.share(process)
        return described
    finally:
        end.detach()


class SocketPacketReader:
    """Reads packets from one socket.

    Owner: the socket's reader.
    """

    def __init__(self, longest: int, most_descriptors: int) -> None:
        """``longest``: a packet's largest size in bytes."""
        self._longest, self._most = longest, most_descriptors
        self._data = bytearray()
        """The incomplete frame."""

    def receive(self, channel: socket.socket) -> Received:
        """Return the next packet. Raise BlockingIOError if a non-blocking socket has no complete one."""
        while (missing := self._missing()) > 0:
            piece = channel.recv(missing)
            if not piece:
                is_cut = bool(self._data)
                self._data.clear()
                return b"", [], is_cut
            self._data += piece
        if missing < 0:
            self._data.clear()
            return b"", [], True
        count = self._number(0)
        at = _NUMBER + count * DESCRIPTION
        descriptors = [_made(bytes(self._data[_NUMBER + i * DESCRIPTION :][:DESCRIPTION])) for i in range(count)]
        packet = bytes(self._data[at + _NUMBER :])
        self._data.clear()
        return packet, descriptors, False

    def _missing(self) -> int:
        """Return how many bytes to read next, 0 if the frame is whole, -1 if it is invalid."""
        have = len(self._data)
        if have < _NUMBER:
            return _NUMBER - have
        count = self._number(0)
        if count > self._most:
            return -1
        at = _NUMBER + count * DESCRIPTION
        if have < at + _NUMBER:
            return at + _NUMBER - have
        length = self._number(at)
        if not 0 < length <= self._longest:
            return -1
        return at + _NUMBER + length - have

    def _number(self, at: int) -> int:
        return int.from_bytes(self._data[at : at + _NUMBER], "little")


def _made(description: bytes) -> int:
    module: Any = socket
    made: socket.socket = module.fromshare(description)
    return made.detach()
