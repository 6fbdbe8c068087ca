"""The sandbox's DNS server: names that may be reached get an address that stands for them, all others are unknown.

Rules of this file: nothing is ever asked of another server. So a name carries nothing out (DNS tunnelling), and what is
looked up in earnest is looked up by the gate, after it has been allowed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from mudroom.core.network.host_rules import HostRule, Request
from mudroom.core.tree.path import show
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.guard import DoorGuard
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.protocol import dns
from mudroom.net.protocol.synthetic import Synthetic

_OWN = ("localhost", "mudroom")
"""What every sandbox is called (sethostname(2) in its plan). Programs look up their own host's name for no reason that
is the network's, and an address of loopback leads to themselves."""
_LOOPBACK = {dns.A: (b"\x7f\0\0\x01",), dns.AAAA: (bytes(15) + b"\x01",)}
_ONCE = 1_024
"""So many names that were not answered are told, each once; after that only that there were more."""
_AT_ONCE = 64
_IDLE = 30.0
"""Seconds for the next question on a TCP connection."""
_PKTINFO = {socket.AF_INET: (socket.IPPROTO_IP, 8), socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO)}
"""ip(7): IP_PKTINFO; ipv6(7)."""
_IPV6_FREEBIND = 78
"""linux/in6.h, since Linux 4.15."""


class Responder:
    """``with_ipv6``: the sandbox reaches the gate by IPv6, too."""

    def __init__(self, guard: DoorGuard, names: Synthetic, with_ipv6: bool) -> None:
        self._guard = guard
        self._names = names
        self._with_ipv6 = with_ipv6
        self._told: set[bytes] = set()

    def reply(self, data: bytes) -> bytes:
        """The answer to a message; empty: there is none."""
        try:
            question = dns.parse_question(data)
        except dns.BadMessage as error:
            return error.answer
        host = question.host
        if host in _OWN:
            return dns.answer(question, dns.NO_ERROR, _LOOPBACK.get(question.kind, ()))
        if host is None or not self.may_be_reached(host):
            self._tell(question.name, host)
            return dns.answer(question, dns.NO_NAME)
        ipv4, ipv6 = self._names.addresses(host)
        found = {dns.A: (ipv4,), dns.AAAA: (ipv6,) if self._with_ipv6 else ()}.get(question.kind, ())
        return dns.answer(question, dns.NO_ERROR, found)

    def may_be_reached(self, host: str) -> bool:
        """Whether some request to it could be allowed, now or by an answer."""
        return any(
            self._guard.look(Request(host, port, method, path)).action != "deny"
            for port, method, path in _possible(self._guard.rules)
        )

    def _tell(self, name: bytes, host: str | None) -> None:
        if name in self._told or len(self._told) > _ONCE:
            return
        self._told.add(name)
        if len(self._told) > _ONCE:
            self._refused("", "more names were looked up that are not allowed, and are not listed")
        elif host is None:
            self._refused(show(name), "it is no host's name")
        else:
            decision = self._guard.look(Request(host, 443))
            self._refused(host, decision.reason)

    def _refused(self, host: str, reason: str) -> None:
        Exchange(self._guard, "dns", host, 53).refuse(reason)

    # --- UDP ---

    def prepare(self, channel: socket.socket) -> None:
        """So that answers can come from addresses that no interface has: for IPv6 a local route is not enough, the
        socket must not care (IPV6_FREEBIND; ipv6_can_nonlocal_bind in net/ipv6/datagram.c asks for it)."""
        channel.setblocking(False)
        if channel.family == socket.AF_INET6:
            channel.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)

    def serve_udp(self, channel: socket.socket) -> None:
        """Called when there is something to read. The answer comes from the address that was asked."""
        for _ in range(_AT_ONCE):
            try:
                data, ancillary, _flags, where = channel.recvmsg(dns.LONGEST + 1, socket.CMSG_SPACE(32))
            except OSError:
                return  # nothing more; or an ICMP error of an earlier answer
            reply = self.reply(data)
            if reply:
                try:
                    channel.sendmsg(
                        [reply], [_source(one) for one in ancillary if one[:2] in _PKTINFO.values()], 0, where
                    )
                except OSError:
                    pass  # who asks by UDP asks again

    # --- TCP ---

    async def serve_tcp(self, client: Peer) -> None:
        """Questions with their length in front (RFC 1035 4.2.2), until the client ends."""
        try:
            while True:
                async with asyncio.timeout(_IDLE):
                    data = await _read(client, int.from_bytes(await _read(client, 2), "big"))
                reply = self.reply(data)
                if not reply:
                    return
                await client.write(len(reply).to_bytes(2, "big") + reply)
        except (PeerGone, TimeoutError):
            return


async def _read(client: Peer, length: int) -> bytes:
    while len(client.buffer) < length:
        if not await client.more():
            raise PeerGone("it has ended")
    return client.take(length)


def _source(packet_info: tuple[int, int, bytes]) -> tuple[int, int, bytes]:
    """The control message that sends from where this one was received (struct in_pktinfo, struct in6_pktinfo)."""
    level, kind, data = packet_info
    if (level, kind) == _PKTINFO[socket.AF_INET]:
        return level, kind, bytes(4) + data[8:12] + bytes(4)
    return level, kind, data[:16] + bytes(4)


def _possible(rules: Sequence[HostRule]) -> set[tuple[int, str, str]]:
    """Requests of every kind that some rule tells from others."""
    kinds = {(80, "", ""), (443, "", "")}
    for rule in rules:
        if rule.action != "deny":
            for port in rule.ports or (80,):
                kinds.add((port, rule.methods[0] if rule.methods else "", rule.paths[0] if rule.paths else ""))
    return kinds
