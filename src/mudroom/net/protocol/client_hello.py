"""Parse TLS's first message for the name of the wanted host.

Rules of this file: pure. Every length is checked against its container, no bytes may be left over, and no extension may
occur twice: a message that a lenient server could read differently is refused (RFC 8446 4.1.2, 5.1; RFC 6066 3). An
encrypted ClientHello (ECH) cannot be read: its outer name is compared, so a hello that hides another name does not
match.
"""

from __future__ import annotations

from mudroom.typing import Literal, NamedTuple

LIMIT = 16 << 10
"""Maximum bytes in a hello, without the record headers. With post-quantum keys it has about 1,700."""

Kind = Literal["tls", "http", "raw"]

_SERVER_NAME, _ALPN = 0, 16
_METHOD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ-_")
_LONGEST_METHOD = 32


class Hello(NamedTuple):
    name: bytes | None
    """As it was sent; None: no name."""
    alpn: tuple[bytes, ...] = ()


def kind_of(data: bytes) -> Kind | None:
    """Return the protocol that a client's first bytes indicate, or None if there are too few. A request line that ends
    with LF alone counts, too: servers accept it (RFC 9112, 2.2)."""
    if not data:
        return None
    if data[0] == 0x16:
        return "tls"
    method, space, rest = data.partition(b" ")
    if len(method) > _LONGEST_METHOD or not _METHOD.issuperset(method) or not method:
        return "raw"
    line, end, _ = rest.partition(b"\n")
    if not end:
        return None if len(data) < LIMIT else "raw"
    return "http" if space and line.removesuffix(b"\r")[-9:-1] == b" HTTP/1." else "raw"


def parse_hello(data: bytes) -> Hello | None:
    """Return the hello, or None if it is incomplete. ``data``: the client's bytes so far. Raise ValueError if they are
    not a ClientHello."""
    message = _handshake(data)
    return None if message is None else _client_hello(message)


def _handshake(data: bytes) -> bytes | None:
    """Return the first handshake message's body, assembled from its records."""
    message, at = b"", 0
    while len(data) - at >= 5:
        kind, major, length = data[at], data[at + 1], int.from_bytes(data[at + 3 : at + 5], "big")
        if kind != 22 or major != 3 or not 0 < length <= 1 << 14:
            raise ValueError("this is no record of a TLS handshake")
        record = data[at + 5 : at + 5 + length]
        message, at = message + record, at + 5 + length
        if not message:
            return None
        if message[0] != 1:
            raise ValueError("TLS does not begin with a ClientHello")
        length_of_hello = 4 + int.from_bytes(message[1:4], "big") if len(message) >= 4 else LIMIT
        if length_of_hello > LIMIT:
            raise ValueError("the ClientHello is too long")
        if len(message) > length_of_hello:
            raise ValueError("something follows the ClientHello in its record")
        if len(message) == length_of_hello:
            return message[4:]
        if len(record) < length:
            return None
    return None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, length: int) -> bytes:
        part = self._data[self._at : self._at + length]
        if len(part) != length:
            raise ValueError("the ClientHello ends too early")
        self._at += length
        return part

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def vector(self, length: int) -> bytes:
        return self.take(self.number(length))

    def end(self) -> None:
        if self:
            raise ValueError("there is more in the ClientHello than its lengths say")


def _client_hello(message: bytes) -> Hello:
    reader = _Reader(message)
    reader.take(2 + 32)  # version, random
    reader.vector(1)  # session
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression
    extensions: dict[int, bytes] = {}
    if reader:
        inside = _Reader(reader.vector(2))
        while inside:
            kind = inside.number(2)
            if kind in extensions:
                raise ValueError("an extension is in the ClientHello twice")
            extensions[kind] = inside.vector(2)
    reader.end()
    name = _server_name(extensions[_SERVER_NAME]) if _SERVER_NAME in extensions else None
    return Hello(name, _protocols(extensions[_ALPN]) if _ALPN in extensions else ())


def _server_name(data: bytes) -> bytes:
    outer = _Reader(data)
    inner = _Reader(outer.vector(2))
    outer.end()
    if inner.number(1) != 0:
        raise ValueError("the server's name is of an unknown kind")
    name = inner.vector(2)
    inner.end()
    if not name:
        raise ValueError("the server's name is empty")
    return name


def _protocols(data: bytes) -> tuple[bytes, ...]:
    outer = _Reader(data)
    inner = _Reader(outer.vector(2))
    outer.end()
    protocols = []
    while inner:
        protocols.append(inner.vector(1))
    return tuple(protocols)
