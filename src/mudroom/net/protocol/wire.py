"""Messages between the host process and the gate process: JSON in packets (``core/system/packet.py``).

Rules of this file: both ends use it. A message is one or more packets, each with a first byte that says whether more
follow: rules may be longer than a socket's buffer. Descriptors travel with a message's first packet. The gate reads
untrusted data, so its messages are parsed strictly, by a parser that can only create values (never marshal or pickle).
"""

from __future__ import annotations

import _socket
import socket
import sys
from collections.abc import Sequence

import msgspec

from mudroom.core.network.flow import Flow, FlowQuestion
from mudroom.core.network.fork_host import ForkDial
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection

if sys.platform == "win32":
    from mudroom.core.registry import twin

    PacketReader, packet_pair = twin("packet").SocketPacketReader, twin("packet").packet_pair
    framed, send_framed = twin("packet").framed, twin("packet").send_framed
else:
    from mudroom.core.system.packet import PacketReader, framed, send_framed
    from mudroom.core.system.packet import packet_pair as packet_pair

_PACKET = 65_536
_LONGEST = 64 << 20
_LAST, _MORE = b"\0", b"\1"
MAX_DESCRIPTORS = 253
"""Per message: SCM_MAX_FD, unix(7)."""


class BrokenMessage(Exception):
    """The other end sent an invalid message."""


# --- from the host ---


class OpenMessage(msgspec.Struct, tag="open", array_like=True):
    """A new guard. Its descriptors: the guard's own socket, then the listeners in this order."""

    kinds: list[str]
    rules: list[HostRule]
    ask: bool
    ask_timeout: float
    first: int
    """The number of its first question. Answers to questions from a gate that died therefore match no question in this
    gate."""
    upstream: str
    """As for ``parse_upstream``; empty: no proxy."""
    inspection: Inspection | None = None
    fork: str = ""
    """Label of the command's fork, for other forks; empty: it has none."""
    all_hosts: bool = False
    """The host makes every connection, not only those to other forks."""


class AnswerMessage(msgspec.Struct, tag="answer", array_like=True):
    identity: int
    allowed: bool
    rule: HostRule | None
    why: str = ""
    """Not empty: the question is not answered, and the waiting connections are refused with this reason."""


class UpdateMessage(msgspec.Struct, tag="update", array_like=True):
    rules: list[HostRule]


class ListenMessage(msgspec.Struct, tag="listen", array_like=True):
    """Further listeners. Its descriptors: the listeners in this order."""

    kinds: list[str]


class CloseMessage(msgspec.Struct, tag="close", array_like=True):
    """Close the listeners with these kinds. Open connections stay open."""

    kinds: list[str]


class DialledMessage(msgspec.Struct, tag="dialled", array_like=True):
    """The answer to ``DialMessage``: its descriptor is the connected socket, if there is no error."""

    identity: int
    error: str = ""
    is_refused: bool = False
    """Whether the error is that a fork does not consent."""
    rule: str = ""
    """The rules by which both forks consent."""
    http: bool = False
    """Only plain HTTP/1 may be sent."""


class ShutMessage(msgspec.Struct, tag="shut", array_like=True):
    pass


# --- from the gate ---


class AskedMessage(msgspec.Struct, tag="asked", array_like=True):
    question: FlowQuestion


class DialMessage(msgspec.Struct, tag="dial", array_like=True):
    """The gate asks for a connection to another fork, which only the host can make."""

    request: ForkDial


class BeganMessage(msgspec.Struct, tag="began", array_like=True):
    """A tunnel is open. The host keeps the flow until ``EndedMessage`` arrives, so that it is not lost if the gate
    dies."""

    number: int
    flow: Flow


class EndedMessage(msgspec.Struct, tag="ended", array_like=True):
    number: int
    """0 if there was no ``BeganMessage``."""
    flow: Flow


class DroppedMessage(msgspec.Struct, tag="dropped", array_like=True):
    """The flow is replaced by others: a tunnel that turned out to be plain HTTP."""

    number: int


class ClosedMessage(msgspec.Struct, tag="closed", array_like=True):
    """The guard is shut; this is the last message."""


ToGate = OpenMessage | AnswerMessage | DialledMessage | UpdateMessage | ListenMessage | CloseMessage | ShutMessage
ToHost = AskedMessage | DialMessage | BeganMessage | EndedMessage | DroppedMessage | ClosedMessage

_encode = msgspec.json.Encoder().encode
to_gate = msgspec.json.Decoder(ToGate)
to_host = msgspec.json.Decoder(ToHost)


def packets(message: ToGate | ToHost) -> list[bytes]:
    """Return the packets for a message, as ``framed`` makes them."""
    data = _encode(message)
    if len(data) <= _PACKET:
        return [framed(_LAST + data)]
    parts = [data[at : at + _PACKET] for at in range(0, len(data), _PACKET)]
    return [*(framed(_MORE + part) for part in parts[:-1]), framed(_LAST + parts[-1])]


def send(channel: socket.socket, message: ToGate | ToHost, descriptors: Sequence[int] = ()) -> None:
    """Send a message. Block as the socket does; raise OSError if the other end is closed."""
    first, *rest = packets(message)
    send_framed(channel, first, descriptors)
    for packet in rest:
        send_framed(channel, packet)


class Inbox:
    """Assembles packets into messages."""

    def __init__(self) -> None:
        self._packets = PacketReader(_PACKET + 1, MAX_DESCRIPTORS)
        self._parts: list[bytes] = []
        self._length = 0
        self._descriptors: list[int] = []

    def receive(self, channel: socket.socket) -> tuple[bytes, list[int]] | None:
        """Return a message and its descriptors, which the caller owns then, or None if it is incomplete or, on a
        non-blocking socket, no packet is waiting. Raise EOFError at the end, BrokenMessage for an invalid message."""
        try:
            data, descriptors, is_cut = self._packets.receive(channel)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            raise EOFError from None
        self._descriptors += descriptors
        if is_cut:
            raise self._broken("a packet was longer than agreed")
        if not data:
            self._drop()
            raise EOFError
        self._parts.append(data[1:])
        self._length += len(data)
        if data[:1] == _MORE and self._length < _LONGEST:
            return None
        if data[:1] != _LAST:
            raise self._broken("a packet with no mark, or a message without an end")
        message, descriptors = b"".join(self._parts), self._descriptors
        self._parts, self._length, self._descriptors = [], 0, []
        return message, descriptors

    def _broken(self, reason: str) -> BrokenMessage:
        self._drop()
        return BrokenMessage(reason)

    def _drop(self) -> None:
        """Close the descriptors that came with an invalid or incomplete message."""
        while self._descriptors:
            _socket.close(self._descriptors.pop())
