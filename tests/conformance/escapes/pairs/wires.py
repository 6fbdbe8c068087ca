"""Wires: the loopback of two sandboxes, directly and by way of the gate, and address families that cross namespaces."""

from __future__ import annotations

import socket
import struct
from collections.abc import Generator
from typing import Any

from .pair import Part, World, register

_GROUP = "network"
_VMADDR_CID_LOCAL = 1


def port(world: World, number: int) -> int:
    """Return a port below those that the kernel gives to others (ip(7): ip_local_port_range begins at 32768)."""
    return 20000 + (int(world.key[-4:], 16) * 16 + number) % 12000


def _accept(listener: socket.socket, world: World) -> Generator[None, None, Any]:
    connected = []
    while True:
        try:
            connected.append(listener.accept()[0])
            connected[-1].sendall(world.secret.encode())
        except BlockingIOError:
            pass
        yield


def give_tcp(number: int, address: str) -> Part:
    def give(world: World) -> Generator[None, None, Any]:
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        listener.setblocking(False)
        listener.bind((address, port(world, number)))
        listener.listen()
        yield from _accept(listener, world)

    return give


def take_tcp(number: int, address: str) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        taker = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        taker.settimeout(0.2)
        taker.connect((address, port(world, number)))
        taker.setblocking(False)
        while True:
            try:
                return taker.recv(200).decode(errors="replace")
            except BlockingIOError:
                yield

    return take


def take_by_gate(number: int, form: str) -> Part:
    """``form``: as a proxy for HTTP names the target."""

    def take(world: World) -> Generator[None, None, Any]:
        if not world.proxy:
            raise OSError(111, "there is no proxy")
        taker = socket.socket()
        taker.settimeout(0.5)
        taker.connect(("127.0.0.1", world.proxy))
        taker.sendall(form.format(port=port(world, number)).encode())
        taker.setblocking(False)
        while True:
            try:
                return taker.recv(4096).decode(errors="replace")
            except BlockingIOError:
                yield

    return take


def give_udp(world: World) -> Generator[None, None, Any]:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        try:
            sender.sendto(world.secret.encode(), ("127.0.0.1", port(world, 3)))
        except ConnectionRefusedError:
            pass
        yield


def take_udp(world: World) -> Generator[None, None, Any]:
    taker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    taker.bind(("127.0.0.1", port(world, 3)))
    while True:
        try:
            return taker.recv(200).decode()
        except BlockingIOError:
            yield


def give_multicast(world: World) -> Generator[None, None, Any]:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    while True:
        sender.sendto(world.secret.encode(), ("239.255.77.7", port(world, 4)))
        yield


def take_multicast(world: World) -> Generator[None, None, Any]:
    taker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    taker.bind(("", port(world, 4)))
    member = socket.inet_aton("239.255.77.7") + socket.inet_aton("127.0.0.1")
    taker.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    while True:
        try:
            return taker.recv(200).decode()
        except BlockingIOError:
            yield


def give_vsock(world: World) -> Generator[None, None, Any]:
    listener = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.bind((_VMADDR_CID_LOCAL, port(world, 5)))
    listener.listen()
    yield from _accept(listener, world)


def take_vsock(world: World) -> Generator[None, None, Any]:
    taker = socket.socket(socket.AF_VSOCK)
    taker.settimeout(0.2)
    taker.connect((_VMADDR_CID_LOCAL, port(world, 5)))
    yield
    return taker.recv(200).decode()


def give_netlink(world: World) -> Generator[None, None, Any]:
    """NETLINK_USERSOCK carries messages between processes, by port number."""
    sender = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2)
    body = world.secret.encode()
    message = struct.pack("IHHII", 16 + len(body), 16, 0, 1, 0) + body
    while True:
        try:
            sender.sendto(message, (port(world, 6), 0))
        except ConnectionRefusedError:
            pass
        yield


def take_netlink(world: World) -> Generator[None, None, Any]:
    taker = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 2)
    taker.bind((port(world, 6), 0))
    while True:
        try:
            return taker.recv(200)[16:].decode()
        except BlockingIOError:
            yield


def give_link(world: World) -> Generator[None, None, Any]:
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
    sender.bind(("lo", 0x88B5))
    while True:
        sender.sendto(world.secret.encode(), ("lo", 0x88B5, 0, 0, b"\0" * 6))
        yield


def take_link(world: World) -> Generator[None, None, Any]:
    taker = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.htons(0x88B5))
    while True:
        try:
            return taker.recv(200).decode()
        except BlockingIOError:
            yield


_NETWORK = "network_namespaces(7)"
register("tcp", _GROUP, "a server on 127.0.0.1", give_tcp(0, "127.0.0.1"), take_tcp(0, "127.0.0.1"), source=_NETWORK)
register("tcp_elsewhere", _GROUP, "a server on another address of the loopback", give_tcp(1, "127.77.7.7"),
         take_tcp(1, "127.77.7.7"), source=_NETWORK)  # fmt: skip
register("tcp6", _GROUP, "a server on ::1", give_tcp(2, "::1"), take_tcp(2, "::1"), source=_NETWORK)
register("udp", _GROUP, "datagrams on 127.0.0.1", give_udp, take_udp, source=_NETWORK)
register("multicast", _GROUP, "a multicast group on the loopback", give_multicast, take_multicast, source="ip(7)")
register("vsock", _GROUP, "a server of the machine's own vsock", give_vsock, take_vsock, source="vsock(7)",
         control="the loopback of vsock is a module that few load")  # fmt: skip
register("netlink", _GROUP, "messages of NETLINK_USERSOCK", give_netlink, take_netlink, source="netlink(7)")
register("packet", _GROUP, "frames on the loopback", give_link, take_link, source="packet(7)", control="only root may")
for _number, (_name, _form) in enumerate((
    ("connect", "CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"),
    ("get", "GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"),
    ("name", "GET http://localhost:{port}/ HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"),
), 7):  # fmt: skip
    register(f"gate_{_name}", _GROUP, f"the other's server by way of the gate: {_name}", give_tcp(_number, "127.0.0.1"),
             take_by_gate(_number, _form), source="the gate's own loopback",
             control="without mudroom there is no gate")  # fmt: skip
