"""The sandbox's DNS server: names get a synthetic address.

A refused name gets one, too, where every connection is redirected to the gate: the connection is told the reason.
Elsewhere it would end at a closed port, so a refused name does not exist.

Rules of this file: no query is ever forwarded to another server, so a name cannot carry data out (DNS tunnelling). The
gate looks up a name's real address after the connection has been allowed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress

from mudroom.core.network.host_rules import HostRule, Request
from mudroom.core.tree.path import show
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.protocol import dns
from mudroom.net.protocol.synthetic import Synthetic

_OWN_NAMES = ("localhost", "mudroom", socket.gethostname().lower())
"""Names of every sandbox and of the machine. Programs look up their own host's name for reasons unrelated to the
network, and a loopback address leads back to the program's own sandbox."""
_NO_HOSTS = ("invalid", "localhost")
"""Top-level domains whose names are no other machine's (RFC 6761 6.3, 6.4)."""
_LOOPBACK = {dns.A: (b"\x7f\0\0\x01",), dns.AAAA: (bytes(15) + b"\x01",)}
_MOST_REPORTED = 1_024
"""Maximum refused names that are reported, each once; after that a single flow says that there were more."""
_AT_ONCE = 64
_IDLE = 30.0
"""Seconds between questions on a TCP connection."""
_PKTINFO = {socket.AF_INET: (socket.IPPROTO_IP, 8), socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO)}
"""IP_PKTINFO, ip(7); IPV6_PKTINFO, ipv6(7)."""
_IPV6_FREEBIND = 78
"""IPV6_FREEBIND (linux/in6.h), since Linux 4.15."""


class Responder:
    """``with_ipv6``: the sandbox can reach the gate by IPv6, too. ``with_refused``: refused names have addresses."""

    def __init__(self, guard: Guard, names: Synthetic, with_ipv6: bool, *, with_refused: bool = False) -> None:
        self._guard = guard
        self._names = names
        self._with_ipv6 = with_ipv6
        self._with_refused = with_refused
        self._reported: set[bytes] = set()

    def reply(self, data: bytes) -> bytes:
        """Return the reply to a message; empty if there is no reply."""
        try:
            question = dns.parse_question(data)
        except dns.BadMessage as error:
            return error.answer
        host = question.host
        if host in _OWN_NAMES:
            return dns.answer(question, dns.NO_ERROR, _LOOPBACK.get(question.kind, ()))
        if host is None or not self.has_address(host):
            self._report(question.name, host)
            return dns.answer(question, dns.NO_NAME)
        ipv4, ipv6 = self._names.addresses(host)
        addresses = {dns.A: (ipv4,), dns.AAAA: (ipv6,) if self._with_ipv6 else ()}.get(question.kind, ())
        return dns.answer(question, dns.NO_ERROR, addresses)

    def has_address(self, host: str) -> bool:
        """Return whether a request to the host could be allowed, now or by an answer, or its refusal is told."""
        if self._with_refused and host.rpartition(".")[2] not in _NO_HOSTS:
            return True
        return any(
            self._guard.look(Request(host, port, method, path)).action != "deny"
            for port, method, path in _possible(self._guard.rules)
        )

    def _report(self, name: bytes, host: str | None) -> None:
        if name in self._reported or len(self._reported) > _MOST_REPORTED:
            return
        self._reported.add(name)
        if len(self._reported) > _MOST_REPORTED:
            self._refused("", "more names that are not allowed were looked up; they are not listed")
        elif host is None:
            self._refused(show(name), "it is no host's name")
        else:
            decision = self._guard.look(Request(host, 443))
            self._refused(host, decision.reason)

    def _refused(self, host: str, reason: str) -> None:
        Exchange(self._guard, "dns", host, 53).refuse(reason)

    # --- UDP ---

    def prepare(self, channel: socket.socket) -> None:
        """Allow replies from addresses that no interface has."""
        channel.setblocking(False)
        # For IPv6 a local route is not enough: ipv6_can_nonlocal_bind in net/ipv6/datagram.c checks IPV6_FREEBIND.
        if channel.family == socket.AF_INET6:
            channel.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)

    def serve_udp(self, channel: socket.socket) -> None:
        """Reply to waiting datagrams, each from the address that it was sent to. Call when the socket is readable."""
        for _ in range(_AT_ONCE):
            try:
                data, ancillary, _flags, sender = channel.recvmsg(dns.LONGEST + 1, socket.CMSG_SPACE(32))
            except OSError:
                return  # no more datagrams; or an ICMP error for an earlier reply
            reply = self.reply(data)
            if reply:
                with suppress(OSError):  # UDP clients repeat their questions
                    channel.sendmsg(
                        [reply],
                        [_source(message) for message in ancillary if message[:2] in _PKTINFO.values()],
                        0,
                        sender,
                    )

    # --- TCP ---

    async def serve_tcp(self, client: Peer) -> None:
        """Reply to questions with a length prefix (RFC 1035 4.2.2) until the client ends."""
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
    """Return the control message that sends from the address where this message was received (struct in_pktinfo, struct
    in6_pktinfo)."""
    level, kind, data = packet_info
    if (level, kind) == _PKTINFO[socket.AF_INET]:
        return level, kind, bytes(4) + data[8:12] + bytes(4)
    return level, kind, data[:16] + bytes(4)


def _possible(rules: Sequence[HostRule]) -> set[tuple[int, str, str]]:
    """Return one request for each case that a rule distinguishes, as (port, method, path)."""
    kinds = {(80, "", ""), (443, "", "")}
    for rule in rules:
        if rule.action != "deny":
            for port in rule.ports or (80,):
                kinds.add((port, rule.methods[0] if rule.methods else "", rule.paths[0] if rule.paths else ""))
    return kinds
