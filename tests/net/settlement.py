"""A guard on an island, with all kinds of listeners, and lookups there."""

from __future__ import annotations

import socket
import struct

from island import Island
from mudroom.core.network.address import show_address
from mudroom.core.network.host_rules import HostRule
from mudroom.net.gate_handle import Kind
from mudroom.net.protocol import dns
from town import OpenGuard, Town

IP_PKTINFO = 8


def question(name: str, kind: int = dns.A, identity: int = 7) -> bytes:
    labels = b"".join(bytes((len(label),)) + label for label in name.encode().split(b"."))
    return struct.pack("!6H", identity, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def answers(reply: bytes) -> tuple[int, list[str]]:
    """The code of a reply and the addresses in it."""
    _identity, flags, _questions, count = struct.unpack_from("!4H", reply)
    rest, found = reply[reply.index(b"\0", 12) + 5 :], []
    for _ in range(count):
        length = int.from_bytes(rest[10:12], "big")
        found.append(show_address(rest[12 : 12 + length]))
        rest = rest[12 + length :]
    return flags & 15, found


class Site:
    """A guard on the island with all kinds of listeners at the given ports."""

    def __init__(
        self,
        town: Town,
        island: Island,
        ports: tuple[int, ...],
        *rules: HostRule,
        ask: bool = False,
        redirected: int = 0,
    ) -> None:
        udp, udp6 = island.listener("0.0.0.0", 53, socket.SOCK_DGRAM), island.made(socket.AF_INET6, socket.SOCK_DGRAM)
        udp.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        udp6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        udp6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        udp6.bind(("::", 53))
        self._island = island
        listeners: list[tuple[Kind, socket.socket]] = [("dns-udp", udp), ("dns-udp", udp6)]
        listeners.append(("dns-tcp", island.listener("::", 53)))
        listeners += [("transparent", island.listener("::", port)) for port in ports]
        if redirected:
            listeners.append(("redirected", island.listener("::", redirected)))
        self.guard: OpenGuard = town.guard_at(listeners, *rules, ask=ask)

    def ask(self, data: bytes, server: str = "10.11.12.13") -> bytes:
        client = self._island.made(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM)
        client.connect((server, 53))  # an answer from elsewhere would not be taken
        client.send(data)
        return client.recv(4096)

    def look_up(self, name: str, kind: int = dns.A) -> str:
        code, found = answers(self.ask(question(name, kind)))
        assert code == dns.NO_ERROR
        return found[0]
