"""One exchange from its first byte to its flow: judged, looked up, vetted, dialled, counted, reported.

Rules of this file: every exchange goes through ``admit`` and then through ``reach``, or through ``reuse`` with a
connection whose address is vetted again, and ends in exactly one flow. A name is looked up only after it was allowed.
The dialled address comes from the same lookup that was vetted.
"""

from __future__ import annotations

import asyncio
import binascii
import errno
import time

from mudroom.core.network.address import parse_ipv4, parse_ipv6
from mudroom.core.network.flow import Fields, Flow, Way
from mudroom.core.network.fork_host import fork_of, is_fork_host
from mudroom.core.network.host import Authority, parse_host
from mudroom.core.network.host_pattern import LOCALHOST, LOCALHOST_ADDRESSES, network_of
from mudroom.core.network.host_rules import USUAL, HostDecision, HostRule, Request, covering, holding, vet
from mudroom.net.gate.dial import adopt, dial, error_text
from mudroom.net.gate.fork_dials import ForkUnreachable
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.resolve import LocalAddresses, Resolver
from mudroom.net.gate.transport import UNCHARGED
from mudroom.net.protocol.head import END, LIMIT
from mudroom.net.protocol.refusal import denied
from mudroom.net.protocol.upstream import Upstream

ANSWER_TIME = 30.0
"""Seconds for the proxy's response, which includes its lookup and dial."""


class RefusedUpstream(OSError):
    """The proxy responded with a status other than 200."""


async def dial_through(upstream: Upstream, resolver: Resolver, destination: Authority) -> Peer:
    """Open a tunnel to ``destination``. Raise OSError."""
    peer, _address = await dial(await resolver(upstream.authority.host.text), upstream.authority.port)
    try:
        async with asyncio.timeout(ANSWER_TIME):
            await peer.write(_request(upstream, destination))
            status = await _status(peer)
    except TimeoutError:
        peer.cut()
        raise RefusedUpstream(f"{upstream} did not answer in {ANSWER_TIME:.0f} s") from None
    except BaseException:
        peer.cut()
        raise
    if status != b"200":
        peer.cut()
        raise RefusedUpstream(f"{upstream} answered {status.decode('ascii', 'replace')}")
    return peer


def _request(upstream: Upstream, destination: Authority) -> bytes:
    head = f"CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n".encode()
    if upstream.credentials:
        head += b"Proxy-Authorization: Basic %s\r\n" % binascii.b2a_base64(upstream.credentials, newline=False)
    return head + b"\r\n"


async def _status(peer: Peer) -> bytes:
    """Read the response head and return its status. Bytes after it come from the tunnel's other end."""
    while (end := peer.buffer.find(END)) < 0:
        if len(peer.buffer) > LIMIT or not await peer.more():
            raise RefusedUpstream("the proxy gave no answer that could be read")
    parts = peer.take(end + len(END)).split(b"\r\n", 1)[0].split(b" ", 2)
    return parts[1] if len(parts) > 1 and parts[0].startswith(b"HTTP/1.") and parts[1].isdigit() else b"nonsense"


_LONGEST_PATH = 1024
"""Maximum path bytes in a reported flow; the whole path is judged."""


class RefusedExchange(Exception):
    """The exchange is not allowed."""


class Unreachable(Exception):
    """The exchange is allowed, but the lookup, the vetting or the dial failed. ``status``: the HTTP status for the
    client."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


class Exchange:
    """``host`` is canonical, or escaped for display if it is not a valid host."""

    def __init__(self, guard: Guard, way: Way, host: str, port: int, method: str = "", path: str = "") -> None:
        self.guard = guard
        self.way = way
        self.host = host
        self.named = host
        """The name that the client gives in TLS: ``localhost`` for an address of loopback."""
        self.port = port
        self.status = 0
        self.error = ""
        self.sent = 0
        self.received = 0
        self.version = ""
        self.is_authorized = False
        """Whether the request carries one of the user's credentials."""
        self.request: Fields = ()
        self.response: Fields = ()
        self._method = method
        self._path = path
        self.http_only = False
        """Whether only plain HTTP/1 may be sent: the server relies on headers from the gate."""
        self._started = time.time_ns()
        self._clock = time.monotonic()
        self._decision = HostDecision("deny", None, "it was not judged")
        self._account = UNCHARGED
        """The client's account; it is charged for the server's connection, too."""
        self._address = ""
        self._number = 0
        self._is_reported = False

    @property
    def reason(self) -> str:
        return self._decision.reason

    def changing_rules(self) -> list[HostRule]:
        """Return the rules that change this request if it is inspected."""
        if not self.guard.may_change:
            return []
        return covering(Request(self.host, self.port, self._method, self._path), self.guard.may_change)

    @property
    def method(self) -> str:
        """The method as it is judged."""
        return self._method

    @property
    def holding(self) -> HostRule | None:
        """The rule that holds what is sent to the host, or None."""
        return holding(self.guard.rules, self.host, self.port) if self.guard.may_hold else None

    @property
    def is_inspected(self) -> bool:
        return self.guard.is_inspected(self.host, self.port)

    async def admit(self, client: Peer) -> HostDecision:
        """Judge the request. Raise RefusedExchange, or PeerGone if the client does not wait for an answer."""
        request = Request(self.host, self.port, self._method, self._path)
        self._account = client.account
        self._account.serves()
        try:
            self._decision = await self.guard.judge(request, self.way, client)
        except BaseException:
            self.refuse("the client, or the command, ended before it was answered")
            raise
        if self._decision.action != "allow":
            self.report()
            raise RefusedExchange(self._decision.reason)
        return self._decision

    def is_named(self) -> bool:
        """Return whether a rule or an answer names exactly this port, by the current rules: an allow without ports
        covers HTTP and TLS on their usual ports only."""
        rule = self.guard.look(Request(self.host, self.port)).rule
        return self.port not in USUAL or (rule is not None and rule.action != "deny" and self.port in rule.ports)

    def refuse(self, reason: str) -> RefusedExchange:
        """Record and report a refusal that does not come from the rules. Return the exception for the caller to
        raise."""
        self._decision = HostDecision("deny", self._decision.rule, reason)
        self.report()
        return RefusedExchange(reason)

    async def reach(self) -> Peer:
        """Connect to the host. Raise Unreachable."""
        try:
            peer = await self._reach_directly()
            peer.charge_to(self._account)
            return peer
        except asyncio.CancelledError:
            self.error = "it was cut before it was connected"
            self.report()
            raise

    async def _reach_directly(self) -> Peer:
        if is_fork_host(self.host) or self.guard.all_hosts:
            return await self._reach_by_host()
        upstream, rule = self.guard.upstream, self._decision.rule
        if upstream is not None and not (rule is not None and rule.private):
            return await self._reach_through(upstream)
        try:
            addresses = await self._resolve(rule)
        except OSError as error:
            raise self._fail(f"{self.host} cannot be looked up: {error.strerror or error}", 502) from error
        own = LocalAddresses(addresses)
        reason = vet(self._decision, addresses, own, rules=self.guard.rules, port=self.port)
        if reason is not None:
            self.refuse(reason)
            raise Unreachable(denied(self.host, self.port, reason), 403)
        try:
            peer, self._address = await dial(addresses, self.port)
        except OSError as error:
            why = error_text(error.errno or errno.EIO).lower()
            raise self._fail(f"{self.host} cannot be reached: {why}", 504) from error
        return peer

    async def _reach_by_host(self) -> Peer:
        """Ask the host for the connection: it decides by both forks' consent, or lets another machine decide."""
        host, port = self.host, self.port
        self._address = f"fork {fork_of(host)}" if is_fork_host(host) else "through the origin"
        path = self._path if self.way == "http" else ""
        try:
            connection, rule, self.http_only = await self.guard.dials.dial(host, port, path)
        except ForkUnreachable as error:
            if not error.is_refused:
                raise self._fail(f"{host} cannot be reached: {error}", 502) from error
            self.refuse(str(error))
            raise Unreachable(denied(host, port, str(error)), 403) from error
        if is_fork_host(host):
            self._decision = HostDecision("allow", HostRule("allow", host, (port,), source=rule), f"{rule} allow it")
        peer = adopt(connection)
        peer.closed.add_done_callback(lambda _lost: self.guard.dials.left(host))
        return peer

    async def _resolve(self, rule: HostRule | None) -> list[bytes]:
        """Return the host's addresses. Raise OSError."""
        addresses = await self.guard.resolver(self.host)
        if rule is None or rule.pattern != LOCALHOST or self.host not in LOCALHOST_ADDRESSES:
            return addresses
        # A rule for ``localhost`` opens both its addresses: the server may listen on either, and a client that
        # reaches a listener at the gate does not try the other.
        others = [address for address in LOCALHOST_ADDRESSES if address != self.host]
        opened = [one for one in others if self.guard.look(Request(one, self.port)).action == "allow"]
        return [*addresses, *(network_of(address).prefix for address in opened)]

    async def _reach_through(self, upstream: Upstream) -> Peer:
        self._address = str(upstream)
        try:
            where = Authority(parse_host(self.host.encode()), self.port)
            return await dial_through(upstream, self.guard.resolver, where)
        except (OSError, PeerGone) as error:
            reason = str(error) if isinstance(error, RefusedUpstream) else f"{upstream} cannot be reached: {error}"
            raise self._fail(reason, 502) from error

    def refusal_of_reuse(self, address: str) -> str | None:
        """Return why a connection that was made for an earlier request may not be used for this one, or None if it may.
        The current rules decide; they may differ from those by which its address was vetted. Forks and proxies vet
        themselves."""
        raw = address.encode("ascii", "replace")
        packed = parse_ipv4(raw) or parse_ipv6(raw)
        return None if packed is None else self.guard.refusal_of_kept(self._decision, packed, self.port)

    def reuse(self, address: str) -> None:
        self._address = address

    @property
    def address(self) -> str:
        return self._address

    def _fail(self, reason: str, status: int) -> Unreachable:
        self.error = reason
        self.report()
        return Unreachable(reason, status)

    def begin(self) -> None:
        """Report an open tunnel to the host."""
        self._number = self.guard.began(self._flow())

    def drop(self) -> None:
        """Discard this exchange's flow: other flows are reported instead."""
        if not self._is_reported:
            self._is_reported = True
            self.guard.dropped(self._number)

    def report(self) -> None:
        """Report that the exchange has ended. Only the first call has an effect."""
        if not self._is_reported:
            self._is_reported = True
            self.guard.ended(self._flow(), self._number)

    def _flow(self) -> Flow:
        decision = self._decision
        return Flow(
            started=self._started,
            way=self.way,
            host=self.host,
            port=self.port,
            verdict="allow" if decision.action == "allow" else "deny",
            rule="" if decision.rule is None else decision.rule.source,
            reason=decision.reason,
            address=self._address,
            method=self._method,
            path=self._path[:_LONGEST_PATH],
            status=self.status,
            sent=self.sent,
            received=self.received,
            seconds=time.monotonic() - self._clock,
            error=self.error,
            version=self.version,
            request=self.request,
            response=self.response,
        )
