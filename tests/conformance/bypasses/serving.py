"""What the servers of the host and of the internet say: a strict HTTP server, a name server, and for the control a
proxy that lets everything pass."""

from __future__ import annotations

import errno
import re
import select
import socket

from . import phone
from .internet import Servers


def talk(servers: Servers, channel: socket.socket) -> None:
    """To its end. Whatever it says is kept; requests of HTTP are answered."""
    channel.settimeout(120)
    said = bytearray()
    rest = b""
    try:
        while data := channel.recv(65536):
            said += data
            rest += data
            if rest[:1].isalpha():
                rest = _requests(servers, channel, rest)
            else:
                channel.sendall(b"CANARY")
    finally:
        servers.keep(bytes(said))


def _requests(servers: Servers, channel: socket.socket, data: bytes) -> bytes:
    """Answer all that are complete; what is left."""
    while b"\r\n\r\n" in data:
        head, _, rest = data.partition(b"\r\n\r\n")
        line, *fields = head.split(b"\r\n")
        named = {name.strip().lower(): value.strip() for name, _, value in (field.partition(b":") for field in fields)}
        if named.get(b"transfer-encoding") == b"chunked":
            end = _end_of_chunks(rest)
            if end < 0:
                return data
            rest = rest[end:]
        elif named.get(b"content-length", b"").isdigit():
            length = int(named[b"content-length"])
            if len(rest) < length:
                return data
            rest = rest[length:]
        servers.requests.append(line.decode("latin-1"))
        path = line.split(b" ")[1] if line.count(b" ") > 1 else b""
        if path == b"/switch":
            channel.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shell\r\n\r\n")
        elif path.startswith(b"/redirect/"):
            where = bytes.fromhex(path[10:].decode())
            channel.sendall(b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % where)
        else:
            channel.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nCANARY")
        data = rest
    return data


_SIZE = re.compile(rb"([0-9a-fA-F]{1,16})(?:;[^\r\n]*)?\r\n")


def _end_of_chunks(data: bytes) -> int:
    """Where a body of chunks ends, strictly; -1: not here. Raises OSError for what is none."""
    at = 0
    while match := _SIZE.match(data, at):
        size = int(match.group(1), 16)
        at = match.end() + size + 2
        if data[at - 2 : at] != b"\r\n":
            break
        if not size:
            return at
    if len(data) > at + 32:
        raise OSError(errno.EPROTO, "no chunks")
    return -1


def answer_names(servers: Servers, channel: socket.socket) -> None:
    """A name server, for ever: every name has the address of the directory."""
    while True:
        data, where = channel.recvfrom(4096)
        labels, at = [], 12
        while at < len(data) and 0 < data[at] < 64:
            labels.append(data[at + 1 : at + 1 + data[at]].decode("latin-1"))
            at += 1 + data[at]
        name = ".".join(labels)
        servers.names.append(name)
        servers.keep(data)
        packed = socket.inet_aton(_ipv4(phone.addresses(name)))
        record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\x04" + packed
        channel.sendto(data[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + data[12 : at + 5] + record, where)


def _ipv4(found: list[str]) -> str:
    return next((one for one in found if ":" not in one), "127.0.0.1")


# --- the proxy of the control ---


def proxy(_servers: Servers, channel: socket.socket) -> None:
    """CONNECT, URLs, SOCKS4 and SOCKS5, for everybody to everywhere."""
    channel.settimeout(5)
    data = channel.recv(65536)
    if data[:1] == b"\x05":
        data = data[2 + data[1] :]
        channel.sendall(b"\x05\0")
        data = data or channel.recv(65536)
        kind, size = data[3], {1: 4, 4: 16}.get(data[3], data[4])
        start = 5 if kind == 3 else 4
        raw, rest = data[start : start + size], data[start + size :]
        family = socket.AF_INET if kind == 1 else socket.AF_INET6
        host = raw.decode("latin-1") if kind == 3 else socket.inet_ntop(family, raw)
        far = _dial(host, int.from_bytes(rest[:2], "big"))
        channel.sendall(b"\x05\0\0\x01" + bytes(6))
        _relay(channel, far, rest[2:])
    elif data[:1] == b"\x04":
        packed, (_user, _, rest) = data[4:8], data[8:].partition(b"\0")
        host = socket.inet_ntoa(packed)
        if packed.startswith(bytes(3)):
            name, _, rest = rest.partition(b"\0")
            host = name.decode()
        far = _dial(host, int.from_bytes(data[2:4], "big"))
        channel.sendall(b"\0\x5a" + bytes(6))
        _relay(channel, far, rest)
    elif data[:8] == b"CONNECT ":
        head, _, rest = data.partition(b"\r\n\r\n")
        target = head[8 : head.index(b" HTTP/1.")].decode("utf-8", "replace")
        host, _, port = target.rpartition(":")
        far = _dial(host, int(port))
        channel.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        _relay(channel, far, rest)
    else:
        _url(channel, data)


def _url(channel: socket.socket, data: bytes) -> None:
    """Each request goes where its URL says."""
    channel.setblocking(False)
    for one in data.split(b"GET http://")[1:]:
        host = one.partition(b"/")[0].rpartition(b"@")[2].decode("utf-8", "replace")
        name, colon, port = host.partition(":") if not host.startswith("[") else (host, "", "")
        with _dial(name, int(port) if colon else 80) as far:
            far.sendall(b"GET /" + one.partition(b"/")[2])
            channel.setblocking(True)
            channel.sendall(far.recv(65536))


def _dial(host: str, port: int) -> socket.socket:
    bare = host.strip("[]").split("\0")[0].split("#")[0].split("?")[0].rpartition("@")[2]
    try:
        where = socket.getaddrinfo(bare, port, flags=socket.AI_NUMERICHOST)[0][4]
        return socket.create_connection((str(where[0]), port), 3)
    except (OSError, UnicodeError):
        pass  # a name
    failure = OSError(errno.EHOSTUNREACH, host)
    for address in phone.addresses(bare):
        try:
            return socket.create_connection((address, port), 3)
        except OSError as error:
            failure = error
    raise failure


def _relay(one: socket.socket, other: socket.socket, first: bytes) -> None:
    with other:
        if first:
            other.sendall(first)
        while True:
            found = select.select([one, other], [], [], 20)[0]
            if not found:
                return
            for ready in found:
                data = ready.recv(65536)
                if not data:
                    return
                (other if ready is one else one).sendall(data)
