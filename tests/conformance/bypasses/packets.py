"""Other protocols than TCP, and TCP in other ways: directly, past whatever proxy there is."""

from __future__ import annotations

import os
import socket
import struct

from .attempt import World, attempt, register
from .words import connect_to, hello, record, request, say, server_name, system_call

_GROUP = "packets"


def _checksum(data: bytes) -> int:
    total = sum(int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big") for i in range(0, len(data), 2))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def _echo(world: World) -> bytes:
    text = world.mark.encode()
    head = struct.pack("!BBHHH", 8, 0, 0, 1, 1)
    return struct.pack("!BBHHH", 8, 0, _checksum(head + text), 1, 1) + text


def _sent(world: World, family: int, kind: int, protocol: int, where: str, port: int, data: bytes) -> None:
    with socket.socket(family, kind, protocol) as channel:
        channel.settimeout(1)
        channel.sendto(data, (where, port))


@attempt(_GROUP, "ping", "icmp(7), ping_group_range", control=False)
def ping(world: World) -> None:
    _sent(world, socket.AF_INET, socket.SOCK_DGRAM, 1, world.address, 0, _echo(world))


@attempt(_GROUP, "ping by IPv6", "icmp(7)", control=False)
def ping6(world: World) -> None:
    _sent(world, socket.AF_INET6, socket.SOCK_DGRAM, 58, world.address6, 0, b"\x80" + _echo(world)[1:])


@attempt(_GROUP, "ping by a raw socket", "raw(7)", root=True)
def ping_raw(world: World) -> None:
    _sent(world, socket.AF_INET, socket.SOCK_RAW, 1, world.address, 0, _echo(world))


@attempt(_GROUP, "a raw packet of its own", "raw(7), IPPROTO_RAW", root=True)
def raw_packet(world: World) -> None:
    text = world.mark.encode()
    head = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(text), 1, 0, 64, 253, 0, bytes(4), socket.inet_aton(world.address)
    )
    _sent(world, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW, world.address, 0, head + text)


@attempt(_GROUP, "a frame of its own", "packet(7)", control=False)
def raw_frame(world: World) -> None:
    with socket.socket(17, socket.SOCK_RAW, 0x300) as channel:
        channel.bind(("lo", 0x800))
        channel.send(bytes(12) + b"\x08\x00" + world.mark.encode())


for _name, _port in (
    ("quic", 443),
    ("ntp", 123),
    ("dns_like", 53),
    ("snmp", 161),
    ("any", 40_000),
    ("wireguard", 51820),
):
    register(
        f"udp_{_name}",
        _GROUP,
        f"a datagram to port {_port}",
        lambda world, port=_port: _sent(  # type: ignore[misc]
            world, socket.AF_INET, socket.SOCK_DGRAM, 0, world.address, port, world.mark.encode()
        ),
        "udp(7)",
    )


@attempt(_GROUP, "a datagram by IPv6", "udp(7)")
def udp6(world: World) -> None:
    _sent(world, socket.AF_INET6, socket.SOCK_DGRAM, 0, world.address6, 443, world.mark.encode())


@attempt(_GROUP, "a datagram to the host's loopback", "udp(7)")
def udp_loopback(world: World) -> None:
    _sent(world, socket.AF_INET, socket.SOCK_DGRAM, 0, world.loopback, world.ports["udp"], world.mark.encode())


@attempt(_GROUP, "a datagram to all", "IP_BROADCAST; ip(7)", control=False)
def broadcast(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        channel.sendto(world.mark.encode(), ("255.255.255.255", 9))


@attempt(_GROUP, "a datagram to a group", "IP_MULTICAST_IF; ip(7)")
def multicast(world: World) -> None:
    _sent(world, socket.AF_INET, socket.SOCK_DGRAM, 0, "239.1.2.3", 1900, world.mark.encode())


@attempt(_GROUP, "a datagram to a group by IPv6", "ipv6(7)")
def multicast6(world: World) -> None:
    _sent(world, socket.AF_INET6, socket.SOCK_DGRAM, 0, "ff0e::1234", 1900, world.mark.encode())


@attempt(_GROUP, "a datagram in small fragments", "ip(7)", control=True)
def udp_fragments(world: World) -> None:
    _sent(world, socket.AF_INET, socket.SOCK_DGRAM, 0, world.address, 443, world.mark.encode() * 3000)


@attempt(_GROUP, "UDP-Lite", "RFC 3828")
def udp_lite(world: World) -> None:
    _sent(world, socket.AF_INET, socket.SOCK_DGRAM, 136, world.address, 443, world.mark.encode())


def _stream(world: World, family: int, protocol: int, where: str, port: int = 80) -> None:
    with socket.socket(family, socket.SOCK_STREAM, protocol) as channel:
        channel.settimeout(2)
        channel.connect((where, port))
        say(channel, request(where.encode(), world.mark))


@attempt(_GROUP, "SCTP", "sctp(7)", control=False)
def sctp(world: World) -> None:
    _stream(world, socket.AF_INET, 132, world.address)


@attempt(_GROUP, "DCCP", "RFC 4340", control=False)
def dccp(world: World) -> None:
    with socket.socket(socket.AF_INET, 6, 33) as channel:
        channel.connect((world.address, 80))


@attempt(_GROUP, "multipath TCP", "landlock(7): its rules are for TCP alone")
def mptcp(world: World) -> None:
    _stream(world, socket.AF_INET, 262, world.address)


@attempt(_GROUP, "multipath TCP to the host's loopback", "landlock(7)")
def mptcp_loopback(world: World) -> None:
    _stream(world, socket.AF_INET, 262, world.loopback)


@attempt(_GROUP, "data with the first packet", "tcp(7), MSG_FASTOPEN")
def fast_open(world: World) -> None:
    with socket.socket() as channel:
        channel.settimeout(2)
        channel.sendto(request(world.address.encode(), world.mark), socket.MSG_FASTOPEN, (world.address, 80))
        channel.recv(100)


@attempt(_GROUP, "the same to the host's loopback", "tcp(7), MSG_FASTOPEN")
def fast_open_loopback(world: World) -> None:
    with socket.socket() as channel:
        channel.settimeout(2)
        channel.sendto(request(world.loopback.encode(), world.mark), socket.MSG_FASTOPEN, (world.loopback, 80))
        channel.recv(100)


@attempt(_GROUP, "a connection that says it is made, and is made later", "tcp(7), TCP_FASTOPEN_CONNECT")
def fast_open_connect(world: World) -> None:
    with socket.socket() as channel:
        channel.setsockopt(socket.IPPROTO_TCP, 30, 1)
        channel.settimeout(2)
        channel.connect((world.address, 80))
        say(channel, request(world.address.encode(), world.mark))


for _name, _port in (
    ("http", 80),
    ("tls", 443),
    ("ssh", 22),
    ("smtp", 25),
    ("database", 5432),
    ("tcpmux", 1),
    ("proxy", 3128),
    ("any", 8080),
):
    register(
        f"direct_{_name}",
        "direct",
        f"an address of the internet, port {_port}",
        lambda world, port=_port: _stream(world, socket.AF_INET, 0, world.address, port),  # type: ignore[misc]
        "curl --noproxy '*'; nono#713",
    )
for _name, _tries in (
    ("address6", "an address of IPv6"), ("loopback", "the host's loopback"), ("lan", "a private address"),
):  # fmt: skip
    register(
        f"direct_{_name}",
        "direct",
        _tries,
        lambda world, name=_name: connect_to(world, getattr(world, name), 80),  # type: ignore[misc]
        "curl --noproxy '*'",
    )


@attempt("direct", "a server of the host by localhost", "NO_PROXY")
def direct_localhost(world: World) -> None:
    connect_to(world, "127.0.0.1", world.ports["tcp"])


@attempt("direct", "the same by IPv6", "NO_PROXY")
def direct_localhost6(world: World) -> None:
    connect_to(world, "::1", world.ports["tcp"])


@attempt("direct", "the address of nobody", "ip(7)")
def direct_nobody(world: World) -> None:
    connect_to(world, "0.0.0.0", world.ports["tcp"])


@attempt("direct", "the metadata service", control=True)
def direct_metadata(world: World) -> None:
    connect_to(world, "169.254.169.254", 80)


@attempt("direct", "the host's own address on its network")
def direct_own(world: World) -> None:
    connect_to(world, "45.31.0.1", world.ports["tcp"])


@attempt("direct", "loopback, mapped into IPv6", "ipv6(7)")
def direct_mapped(world: World) -> None:
    connect_to(world, f"::ffff:{world.loopback}", 80)


@attempt("direct", "the port of the gate at another address", "landlock(7) knows ports, not addresses")
def direct_gate_port(world: World) -> None:
    connect_to(world, world.address, world.proxy[1])


@attempt("direct", "the same on the host's loopback", "landlock(7) knows ports, not addresses")
def direct_gate_port_loopback(world: World) -> None:
    connect_to(world, world.loopback, world.proxy[1])


@attempt("direct", "the same by IPv6", "landlock(7) knows ports, not addresses")
def direct_gate_port6(world: World) -> None:
    connect_to(world, world.address6, world.proxy[1])


@attempt("direct", "a socket that chooses its device", "SO_BINDTODEVICE; socket(7)", control=False)
def bind_to_device(world: World) -> None:
    with socket.socket() as channel:
        channel.setsockopt(socket.SOL_SOCKET, 25, b"wan\0")
        channel.settimeout(2)
        channel.connect((world.address, 80))
        say(channel, request(world.address.encode(), world.mark))


@attempt("direct", "a socket with a mark, for other routes", "SO_MARK; socket(7)", control=False)
def socket_mark(world: World) -> None:
    with socket.socket() as channel:
        channel.setsockopt(socket.SOL_SOCKET, 36, 1)
        channel.settimeout(2)
        channel.connect((world.address, 80))
        say(channel, request(world.address.encode(), world.mark))


@attempt("direct", "a source route", "IP_OPTIONS; ip(7)", control=False)
def source_route(world: World) -> None:
    with socket.socket() as channel:
        channel.setsockopt(socket.IPPROTO_IP, 4, b"\x83\x07\x04" + socket.inet_aton(world.address) + b"\0")
        channel.settimeout(2)
        channel.connect((world.address, 80))
        say(channel, request(world.address.encode(), world.mark))


@attempt("direct", "an address that is not ours, as the sender", "IP_TRANSPARENT; ip(7)", control=False)
def transparent_source(world: World) -> None:
    with socket.socket() as channel:
        channel.setsockopt(socket.IPPROTO_IP, 15, 1)
        channel.bind(("203.0.113.9", 0))
        channel.settimeout(2)
        channel.connect((world.address, 80))
        say(channel, request(world.address.encode(), world.mark))


@attempt("direct", "the gate's port for what is redirected", control=False)
def redirect_port(world: World) -> None:
    channel = socket.create_connection(("127.0.0.1", 1), 2)
    say(channel, request(world.bad.encode(), world.mark))


@attempt("direct", "the same, and Host is one that is allowed", control=False)
def redirect_port_good(world: World) -> None:
    channel = socket.create_connection(("127.0.0.1", 1), 2)
    say(channel, request(world.good.encode(), world.mark))


@attempt("direct", "the same by IPv6", control=False)
def redirect_port6(world: World) -> None:
    say(socket.create_connection(("::1", 1), 2), request(world.good.encode(), world.mark))


@attempt("direct", "TLS to the port for what is redirected", control=False)
def redirect_port_tls(world: World) -> None:
    channel = socket.create_connection(("127.0.0.1", 1), 2)
    say(channel, record(hello(world.mark, server_name(world.good.encode()))))


@attempt("direct", "a connection by io_uring", "srt README: past a filter of socket(2)", control=False, proof="claim")
def io_uring(world: World) -> str:
    return f"descriptor {system_call(425, 8, bytes(120))}"


@attempt("direct", "a tunnel device", "tun: Documentation/networking/tuntap.rst", control=False, proof="claim")
def tunnel_device(world: World) -> str:
    return f"descriptor {os.open('/dev/net/tun', os.O_RDWR)}"


@attempt("direct", "the host of a virtual machine", "vsock(7)", control=False, proof="claim")
def vsock(world: World) -> str:
    with socket.socket(40, socket.SOCK_STREAM) as channel:
        return f"descriptor {channel.fileno()}"


@attempt("direct", "an abstract socket of the host", "unix(7)")
def abstract_socket(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect("\0" + world.abstract)
        channel.sendall(world.mark.encode())
