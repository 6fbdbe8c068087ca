"""A host with a network and an internet of its own, in namespaces: whatever leaves the host arrives here, and is seen.

The host has a loopback and a cable (``wan``); at the other end of the cable every address in the world is answered by
one machine. A sniffer at each sees all packets. Nothing of it is connected to the real network, so that attempts may
try every port and every address. It needs a process of its own without threads, and no more than an ordinary user has.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mudroom.sandbox.linux.netlink import attribute, message, route_everything_here

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_NEWLINK, _NEWADDR, _NEWROUTE = 16, 20, 24
NETLINK_ROUTE, _ACK = 0, 4
_CREATE = 4 | 0x200 | 0x400
PORTS = (1, 22, 25, 53, 80, 443, 853, 3128, 5432, 6379, 8000, 8080, 8443, 18080)
"""Where the host and the internet listen, on all of their addresses."""
_QUIET = {130, 131, 132, 133, 134, 135, 136, 143}
"""What IPv6 says by itself: neighbours, routers, groups (RFC 4861, RFC 3810)."""


class Packet(NamedTuple):
    at: str
    """``loopback`` or ``internet``."""
    protocol: int
    where: str
    port: int
    """0: the protocol has none."""
    data: bytes

    def __str__(self) -> str:
        return f"protocol {self.protocol} to {self.where} port {self.port} ({self.at})"


def talk(protocol: int, messages: Iterable[bytes]) -> None:
    """Send the messages and wait for every acknowledgement that they ask for. Raise the kernel's first error as
    OSError."""
    for number in ask(protocol, messages):
        if number:
            raise OSError(number, os.strerror(number))


def ask(protocol: int, messages: Iterable[bytes]) -> list[int]:
    """Send the messages. Return an error number, or 0, for each message that asks for an acknowledgement, in order."""
    requests = list(messages)
    awaited = sum(1 for request in requests if int.from_bytes(request[6:8], "little") & _ACK)
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    numbers: list[int] = []
    try:
        channel.sendto(b"".join(requests), (0, 0))
        while len(numbers) < awaited:
            numbers += _acknowledged(channel.recv(1 << 16))
    finally:
        channel.close()
    return numbers


def _acknowledged(data: bytes) -> list[int]:
    """Return the error numbers in the acknowledgements in ``data``: NLMSG_ERROR, with 0 for success (netlink(7))."""
    numbers: list[int] = []
    while len(data) >= 20:
        length = int.from_bytes(data[:4], "little")
        if int.from_bytes(data[4:6], "little") == 2:
            numbers.append(-int.from_bytes(data[16:20], "little", signed=True))
        if length < 16:
            raise OSError(5, "a netlink message has no valid length")
        data = data[(length + 3) & ~3 :]
    return numbers


def enter() -> tuple[int, int]:
    """Two network namespaces: of the host, where this process is then, and of the internet; as descriptors."""
    uid, gid = os.geteuid(), os.getegid()
    if uid:
        _unshare(_NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as stream:
                stream.write(text)
    _unshare(_NEWNET)
    internet = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    _unshare(_NEWNET)
    host = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    _cable(internet)
    number = socket.if_nametoindex("wan")
    _up(socket.if_nametoindex("lo"))
    _up(number)
    _address(number, "45.31.0.1", 24)
    _address(number, "2a00:1::1", 64)
    go_to(internet)
    far = socket.if_nametoindex("net")
    _up(socket.if_nametoindex("lo"))
    _up(far)
    _address(far, "45.31.0.2", 24)
    _address(far, "2a00:1::2", 64)
    for family in (socket.AF_INET, socket.AF_INET6):
        talk(NETLINK_ROUTE, [route_everything_here(family)])
    go_to(host)
    for gateway in ("45.31.0.2", "2a00:1::2"):
        _route(gateway)
    return host, internet


def go_to(namespace: int) -> None:
    if _libc().setns(namespace, _NEWNET) < 0:
        raise OSError(ctypes.get_errno(), "setns")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _unshare(kinds: int) -> None:
    if _libc().unshare(kinds) < 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _cable(internet: int) -> None:
    nothing = bytes(16)
    peer = nothing + attribute(3, b"net\0") + attribute(28, internet.to_bytes(4, "little"))
    info = attribute(1, b"veth\0") + attribute(2, attribute(1, peer))
    talk(NETLINK_ROUTE, [message(_NEWLINK, _CREATE, 1, nothing + attribute(3, b"wan\0") + attribute(18, info))])


def _up(index: int) -> None:
    talk(NETLINK_ROUTE, [message(_NEWLINK, 4, 1, struct.pack("<BxHiII", 0, 0, index, 1, 1))])


def _address(index: int, text: str, length: int) -> None:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    packed = socket.inet_pton(family, text)
    head = struct.pack("<BBBBI", family, length, 2, 0, index)  # at once: IFA_F_NODAD
    talk(NETLINK_ROUTE, [message(_NEWADDR, _CREATE, 1, head + attribute(2, packed) + attribute(1, packed))])


def _route(gateway: str) -> None:
    family = socket.AF_INET6 if ":" in gateway else socket.AF_INET
    head = struct.pack("<BBBBBBBBI", family, 0, 0, 0, 254, 3, 0, 1, 0)
    talk(NETLINK_ROUTE, [message(_NEWROUTE, _CREATE, 1, head + attribute(5, socket.inet_pton(family, gateway)))])


class Sniffer:
    """Keeps what arrives at an interface of the namespace it is made in."""

    def __init__(self, at: str, interface: str) -> None:
        self.packets: list[Packet] = []
        self._at = at
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self.socket.bind((interface, 3))
        self.socket.setblocking(False)

    def take(self) -> None:
        while True:
            try:
                data, where = self.socket.recvfrom(65536)
            except BlockingIOError:
                return
            if where[2] == 4:  # PACKET_OUTGOING: on lo the same comes in, too
                continue
            packet = _packet(self._at, where[1], data)
            if packet is not None:
                self.packets.append(packet)


def _packet(at: str, kind: int, data: bytes) -> Packet | None:
    if kind == 0x800 and len(data) >= 20:
        head, protocol, where = (data[0] & 15) * 4, data[9], socket.inet_ntoa(data[16:20])
        if protocol == 2:
            return None  # IGMP, of the kernel
    elif kind == 0x86DD and len(data) >= 40:
        head, protocol, where = 40, data[6], socket.inet_ntop(socket.AF_INET6, data[24:40])
        if protocol == 0 and len(data) > 48:  # options in front, as MLD has them
            head, protocol = 40 + 8 * (data[41] + 1), data[40]
        if protocol == 58 and data[head : head + 1] and data[head] in _QUIET:
            return None
    else:
        return None
    port = int.from_bytes(data[head + 2 : head + 4], "big") if protocol in (6, 17, 132, 136) else 0
    return Packet(at, protocol, where, port, data[head:])


class Servers:
    """TCP on many ports of all addresses of a namespace, and all that was said to them."""

    def __init__(self, talk: Callable[[Servers, socket.socket], None]) -> None:
        self._talk = talk
        self._lock = threading.Lock()
        self.heard: list[bytes] = []
        """Of each connection, what it has said."""
        self.requests: list[str] = []
        """Lines of requests as a strict server sees them."""
        self.names: list[str] = []
        """Asked of the name server."""
        self.open: set[socket.socket] = set()
        self.listeners: list[socket.socket] = []

    def listen(self, port: int) -> None:
        made = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
        self.listeners.append(made)

    def datagrams(self, port: int) -> socket.socket:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(("::", port))
        return made

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            for listener in self.listeners:
                selector.register(listener, selectors.EVENT_READ)
            while True:
                for key, _events in selector.select():
                    assert isinstance(key.fileobj, socket.socket)
                    channel, _where = key.fileobj.accept()
                    with self._lock:
                        self.open.add(channel)
                    threading.Thread(target=self._serve, args=(channel,), daemon=True).start()

    def _serve(self, channel: socket.socket) -> None:
        try:
            self._talk(self, channel)
        except OSError:
            pass  # it is gone
        finally:
            with self._lock:
                self.open.discard(channel)
            channel.close()

    def keep(self, said: bytes) -> None:
        with self._lock:
            self.heard.append(said)
