"""Connections that commands on workers ask the origin for: the origin's half.

A worker is not believed: the origin judges host and port by its own rules, looks the name up, vets the addresses as its
gate does (``core/network/host_rules.py:vet``), connects, and journals the flow. ``wire/tunnel.py`` moves the bytes.

Rules of this file:
1. A host that the rules want asked about is allowed only if the user has answered this errand's question about it.
2. Requests are not seen here. A rule with methods or paths, and one that changes requests or inspects them, opens
   nothing.
3. No credential is put in. A machine that itself needs a proxy makes no connections for workers.
4. Threads make lookups and connections, so they hold up no errand. A link owes a worker at most ``MOST`` windows in
   bytes.
5. A worker is refused as often as it asks, so refusals that are alike are journalled once, and their number when the
   run ends (``core/network/flow_log.py``).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from mudroom.core.network.flow import Flow
from mudroom.core.network.flow_log import FlowLog, flows_since
from mudroom.core.network.fork_host import decide_fork, fork_of, is_fork_host
from mudroom.core.network.host import parse_host
from mudroom.core.network.host_rules import HostDecision, HostRule, Request, decide, vet
from mudroom.errors import MudroomError
from mudroom.ext.fleet.origin.link import OriginLink
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.message import DIALLED, Dial, Dialled, frame_of
from mudroom.ext.fleet.wire.tunnel import Tunnels
from mudroom.net.gate import resolve
from mudroom.sandbox.client.connection import wait_readable
from mudroom.session.confinement.dialler import ForkRefused, PendingConnection
from mudroom.typing import NamedTuple

MOST = 64
"""A link's connections, those that are being made included."""
TIMEOUT = 15.0
"""Seconds until a connection has to stand."""
DialFork = Callable[[str, str, str, int], PendingConnection]
"""Returns a connection to a fork on this machine. Arguments: the caller's fork and errand, the host and port."""
_FAMILIES = {4: socket.AF_INET, 16: socket.AF_INET6}


class DialRefused(MudroomError):
    """The origin's rules forbid a connection."""


class _DialRequest(NamedTuple):
    """A worker's request for a connection."""

    stream: int
    number: int
    host: str
    port: int
    fork: str
    """The fork at the origin, as it is shown and journalled."""
    errand: str


class ConnectionProxy:
    """One run's connections. ``_lock`` guards the links' connections and the refusals."""

    def __init__(
        self,
        rules: Callable[[], Sequence[HostRule]],
        is_answered: Callable[[OriginLink, int, str, int], bool],
        journal: Callable[[str, Flow], None],
        *,
        upstream: str = "",
        look_up: Callable[[str], list[bytes]] | None = None,
        dial_fork: DialFork | None = None,
    ) -> None:
        """``rules``: the origin's, as they are now. ``is_answered``: whether the user has allowed a host and port to
        the errand on a stream. ``journal``: keeps a flow for a fork. ``upstream``: this machine's own proxy, if it has
        one."""
        self._rules, self._is_answered, self._journal = rules, is_answered, journal
        self._upstream, self._look_up, self._dial_fork = upstream, look_up or resolve.look_up, dial_fork
        self._lock = threading.Lock()
        self._tunnels: dict[OriginLink, Tunnels] = {}
        self._counts: dict[OriginLink, int] = {}
        self._refusals: dict[str, tuple[FlowLog, list[Flow]]] = {}
        """By fork: all refusals, and those that the journal has, as they were then."""

    def dial(self, link: OriginLink, stream: int, dial: Dial, fork: str, errand: str) -> None:
        """Make a connection for an errand, and answer when there is one or none. ``fork``: its fork's name here. Never
        wait."""
        request = _DialRequest(stream, dial.number, dial.host, dial.port, fork, errand)
        try:
            decision = self._decide(link, request)
        except DialRefused as error:
            self._log_flow(request, "deny", error.message)
            self._fail(link, request, error)
            return
        threading.Thread(target=self._connect, args=(link, request, decision), name="connection", daemon=True).start()

    def take(self, link: OriginLink, frame: Frame) -> None:
        """Take a connection's frame. Raise LinkError if it breaks the protocol."""
        with self._lock:
            tunnels = self._tunnels.get(link)
        if tunnels is not None:
            tunnels.take(frame)

    def forget(self, link: OriginLink) -> None:
        """Close a link's connections, as it is over."""
        with self._lock:
            tunnels = self._tunnels.pop(link, None)
            self._counts.pop(link, None)
        if tunnels is not None:
            tunnels.close()

    def close(self) -> None:
        with self._lock:
            links = list(self._tunnels)
            refusals, self._refusals = self._refusals, {}
        for link in links:
            self.forget(link)
        for fork, (log, journalled) in refusals.items():
            for flow in flows_since(journalled, log.flows()):
                self._journal(fork, flow)

    # --- one connection ---

    def _decide(self, link: OriginLink, request: _DialRequest) -> HostDecision:
        """Return the decision that allows a connection, and count it. Raise DialRefused, or LinkError for a host that
        is none."""
        try:
            host = parse_host(request.host.encode("ascii")).text
        except (ValueError, UnicodeEncodeError):
            host = ""
        if not host or host != request.host or not 0 < request.port < 65536:
            raise LinkError("asks for a connection to a host that is none")
        if is_fork_host(host):  # both forks have to consent, which is found out where it is connected
            decision = decide_fork(Request(host, request.port), self._rules())
            if self._dial_fork is None:
                decision = HostDecision("deny", None, "network.forks")
        elif self._upstream:
            raise DialRefused("the origin reaches the internet through a proxy")
        else:
            decision = decide(Request(host, request.port), list(map(_without_requests, self._rules())))
        if decision.action == "ask" and self._is_answered(link, request.stream, host, request.port):
            decision = HostDecision("allow", decision.rule, "answered for this errand")
        if decision.action != "allow":
            raise DialRefused(decision.reason)
        with self._lock:
            if self._counts.get(link, 0) >= MOST:
                raise DialRefused(f"{MOST} connections are open for this worker")
            self._counts[link] = self._counts.get(link, 0) + 1
            if link not in self._tunnels:  # setdefault() would make tunnels, with their pipe, for each connection
                self._tunnels[link] = Tunnels(link.send, lambda: self._ended(link))
        return decision

    def _ended(self, link: OriginLink) -> None:
        with self._lock:
            if link in self._counts:
                self._counts[link] -= 1

    def _connect(self, link: OriginLink, request: _DialRequest, decision: HostDecision) -> None:
        try:
            connection, address = self._open(request, decision)
        except (DialRefused, ForkRefused) as error:
            self._ended(link)
            self._log_flow(request, "deny", error.message)
            self._fail(link, request, error)
            return
        except (MudroomError, OSError) as error:
            self._ended(link)
            # after a lookup, errno is that of getaddrinfo(3)
            reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
            self._log_flow(request, "allow", decision.reason, error=reason)
            self._fail(link, request, MudroomError(reason))
            return
        self._log_flow(request, "allow", decision.reason, address)
        with self._lock:
            tunnels = self._tunnels.get(link)
        if tunnels is None:  # the link is over
            connection.close()
            return
        if not tunnels.add(request.number, connection, frame_of(DIALLED, Dialled(request.number, ""), request.stream)):
            tunnels.refuse(request.number)
            self._ended(link)

    def _open(self, request: _DialRequest, decision: HostDecision) -> tuple[socket.socket, str]:
        if is_fork_host(request.host):
            return self._open_to_fork(request), f"fork {fork_of(request.host)}"
        addresses = self._look_up(request.host)
        reason = vet(decision, addresses, resolve.LocalAddresses(addresses), rules=self._rules(), port=request.port)
        if reason is not None:
            raise DialRefused(reason)
        failure = OSError("it has no address")
        for packed in addresses:
            connection = socket.socket(_FAMILIES[len(packed)], socket.SOCK_STREAM)
            connection.settimeout(TIMEOUT)
            address = socket.inet_ntop(_FAMILIES[len(packed)], packed)
            try:
                connection.connect((address, request.port))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                connection.close()
                failure = error
            else:
                return connection, address
        raise failure

    def _open_to_fork(self, request: _DialRequest) -> socket.socket:
        assert self._dial_fork is not None
        with closing(self._dial_fork(request.fork, request.errand, request.host, request.port)) as pending:
            if pending.fileno() >= 0 and not wait_readable([pending.fileno()], time.monotonic() + TIMEOUT):
                raise MudroomError("there was no answer in time")
            dialled = pending.result()
        connection = socket.socket(fileno=dialled.descriptor)
        if dialled.http:  # only a gate beside the command could hold it to that
            connection.close()
            raise DialRefused("the other fork shows this port for plain HTTP/1 only")
        return connection

    def _fail(self, link: OriginLink, request: _DialRequest, error: MudroomError) -> None:
        is_refused = isinstance(error, (DialRefused, ForkRefused))
        link.send(frame_of(DIALLED, Dialled(request.number, error.message[:500], is_refused), request.stream))

    def _log_flow(self, request: _DialRequest, verdict: str, reason: str, address: str = "", error: str = "") -> None:
        flow = Flow(
            time.time_ns(),
            "raw",
            request.host,
            request.port,
            "allow" if verdict == "allow" else "deny",
            "",
            f"{reason}; asked for by a worker",
            address,
            error=error,
        )
        if verdict == "allow" or self._is_new(request.fork, flow):
            self._journal(request.fork, flow)

    def _is_new(self, fork: str, flow: Flow) -> bool:
        """Keep a refusal. Return whether it is the first one like it."""
        with self._lock:
            log, journalled = self._refusals.setdefault(fork, (FlowLog(), []))
            log.add(flow)
            new = log.flows()[len(journalled) :]
            journalled += new
        return bool(new)


def _without_requests(rule: HostRule) -> HostRule:
    """Return a rule as it holds where no request is seen: one that inspects or changes requests allows none, and one
    that holds pushes denies all. Without a method ``decide`` lets no rule with methods or paths allow anything."""
    if not (rule.inspect or rule.set_headers or rule.remove_headers or rule.foreign) or rule.action == "deny":
        return rule
    return rule._replace(action="deny") if rule.action == "ask" or rule.hold else rule._replace(methods=("NONE",))
