"""What attempts say: to a proxy, in TLS, in SOCKS, to a name server; and the ways to one host."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence

from .attempt import World

PATIENCE = 2.0
"""Seconds to wait for an answer."""


class Refusal(OSError):
    """The gate said no."""


def proxied(world: World) -> socket.socket:
    return socket.create_connection(world.proxy, PATIENCE)


def rest(channel: socket.socket) -> bytes:
    """All that is said within the patience."""
    data = b""
    try:
        while part := channel.recv(65536):
            data += part
    except OSError:
        return data
    return data


def ask(world: World, data: bytes) -> bytes:
    """Say it to the proxy; its answer. Raises Refusal for an error of HTTP."""
    with proxied(world) as channel:
        channel.sendall(data)
        return accepted(rest(channel))


def accepted(answer: bytes) -> bytes:
    if answer[:7] == b"HTTP/1." and answer[9:10] in (b"4", b"5"):
        raise Refusal(errno.EACCES, answer.partition(b"\r\n")[0].decode("latin-1"))
    if not answer:
        raise Refusal(errno.ECONNRESET, "no answer")
    return answer


def tunnel(world: World, target: bytes, extra: bytes = b"") -> socket.socket:
    """CONNECT; what is said then goes to the target. Raises Refusal."""
    channel = proxied(world)
    channel.sendall(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (target, target, extra))
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = channel.recv(4096)
        if not part:
            raise Refusal(errno.ECONNRESET, "closed")
        answer += part
    accepted(answer)
    return channel


def request(host: bytes, path: str, more: bytes = b"", method: bytes = b"GET") -> bytes:
    return b"%s /%s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (method, path.encode(), host, more)


def vector(size: int, data: bytes) -> bytes:
    return len(data).to_bytes(size, "big") + data


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "big") + vector(2, data)


def server_name(*names: bytes) -> bytes:
    return extension(0, vector(2, b"".join(b"\0" + vector(2, name) for name in names)))


def record(handshake: bytes, kind: int = 22) -> bytes:
    return bytes((kind, 3, 1)) + vector(2, handshake)


def hello(mark: str, *extensions: bytes) -> bytes:
    """A ClientHello, as a handshake message, whose session is the mark."""
    body = b"\x03\x03" + bytes(32) + vector(1, mark.encode().ljust(32, b"-")) + vector(2, b"\x13\x01") + b"\x01\0"
    body += vector(2, b"".join(extensions)) if extensions else b""
    return b"\x01" + vector(3, body)


def say(channel: socket.socket, *parts: bytes) -> bytes:
    """And listen to the answer."""
    with channel:
        channel.settimeout(PATIENCE)
        for part in parts:
            channel.sendall(part)
        return accepted(rest(channel))


# --- names ---


def question(name: bytes, kind: int = 1, *, flags: int = 0x0100, more: bytes = b"", extra: int = 0) -> bytes:
    labels = b"".join(vector(1, label) for label in name.split(b".") if label)
    return struct.pack("!6H", 0x1234, flags, 1, 0, 0, extra) + labels + b"\0" + struct.pack("!HH", kind, 1) + more


def lookup(world: World, name: bytes, kind: int = 1, server: str = "") -> str:
    """The first address. Raises Refusal if there is none."""
    answer = datagram(world, question(name, kind), server or world.server)
    if len(answer) < 12 or answer[3] & 15 or answer[6:8] == b"\0\0":
        raise Refusal(errno.ENOENT, "no such name")
    size = 4 if kind == 1 else 16
    return socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, answer[-size:])


def datagram(world: World, data: bytes, server: str, port: int = 53) -> bytes:
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as channel:
        channel.settimeout(PATIENCE)
        channel.connect((server, port))
        channel.send(data)
        return channel.recv(65536)


def captured(world: World, name: str, port: int) -> socket.socket:
    """A connection as of a program that knows of no proxy."""
    if not world.captures:
        raise Refusal(errno.ENETUNREACH, "there is no network but the proxy")
    return socket.create_connection((lookup(world, name.encode()), port), PATIENCE)


# --- SOCKS ---


def socks(world: World, target: bytes, port: int, command: int = 1) -> socket.socket:
    """``target``: from the kind of the address on."""
    channel = proxied(world)
    channel.sendall(b"\x05\x01\x00")
    if channel.recv(2) != b"\x05\x00":
        raise Refusal(errno.EACCES, "no SOCKS")
    channel.sendall(bytes((5, command, 0)) + target + port.to_bytes(2, "big"))
    answer = channel.recv(64)
    if answer[1:2] != b"\0":
        raise Refusal(errno.EACCES, f"SOCKS: {answer!r}")
    return channel


# --- all ways to a host ---


def by_connect_http(world: World, host: bytes) -> bytes:
    return say(tunnel(world, host + b":80"), request(host, world.mark))


def by_connect_tls(world: World, host: bytes) -> bytes:
    name = () if host.startswith(b"[") or host[:1].isdigit() else (server_name(host),)
    return say(tunnel(world, host + b":443"), record(hello(world.mark, *name)))


def by_absolute(world: World, host: bytes) -> bytes:
    return ask(world, b"GET http://%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, world.mark.encode(), host))


def by_socks(world: World, host: bytes) -> bytes:
    raw = host.strip(b"[]")[:255]
    return say(socks(world, b"\x03" + vector(1, raw), 80), request(host, world.mark))


def by_lookup(world: World, host: bytes) -> bytes:
    if not world.captures:
        raise Refusal(errno.ENETUNREACH, "there is no network but the proxy")
    where = lookup(world, host)
    return say(socket.create_connection((where, 80), PATIENCE), request(host, world.mark))


WAYS = (by_connect_http, by_connect_tls, by_absolute, by_socks, by_lookup)


def every_way(world: World, host: bytes, ways: Sequence[Callable[[World, bytes], bytes]] = WAYS) -> None:
    """Raises OSError if all failed."""
    failures = []
    for way in ways:
        try:
            way(world, host)
        except OSError as error:
            failures.append(error)
    if len(failures) == len(ways):
        raise failures[0]


def connect_to(world: World, host: str, port: int) -> bytes:
    """Directly, and send the mark."""
    return say(socket.create_connection((host, port), PATIENCE), request(host.encode(), world.mark))


def system_call(number: int, *arguments: int | bytes) -> int:
    """Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    given = [ctypes.c_long(one) if isinstance(one, int) else ctypes.c_char_p(one) for one in arguments]
    found: int = libc.syscall(ctypes.c_long(number), *given)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found
