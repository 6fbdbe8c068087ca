"""A guard inside the gate process: its rules, its questions, its limits, and its messages to the host.

Rules of this file:

- Only ``judge`` allows a request. A question without an answer in time is denied.
- If the host does not read its messages, no new connection is served, and no further request on an open connection: an
  event that could not be journalled does not happen.
- A flow leaves the gate without credential values, whichever module has written it.
- A guard has a share of the process's memory and connections (``core/network/budget.py``). Where the share is used up,
  the guard's own connections that wait for a request make room for new connections.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections import deque
from collections.abc import Coroutine

from mudroom.core.network.budget import FLOOR, MemoryBudget
from mudroom.core.network.flow import Flow, FlowQuestion, Way
from mudroom.core.network.fork_host import decide_fork, is_fork_host
from mudroom.core.network.host_rules import HostDecision, HostRule, Request, concerns, decide, vet
from mudroom.core.network.inspection import Inspection, changing, connection_rules, is_inspected, uninspected
from mudroom.core.registry import part_or_none
from mudroom.net.gate.fork_dials import ForkDials
from mudroom.net.gate.peer import Peer, PeerGone, complete
from mudroom.net.gate.resolve import LocalAddresses, Resolver
from mudroom.net.gate.sanitizer import CredentialSanitizer
from mudroom.net.protocol import wire
from mudroom.net.protocol.upstream import parse_upstream
from mudroom.typing import Any, NamedTuple

MAX_CONNECTIONS = 4_096
MAX_QUESTIONS = 64
"""Hosts that may wait to be allowed at the same time; more are denied."""
MAX_WAITING = 1_024
"""Connections that may wait for an answer at the same time."""
_DECIDED = 1_024
MAX_UNSENT = 16_384
MAX_UNSENT_BYTES = 8 << 20
"""Maximum messages, and their bytes, queued for a host that does not read them."""
MOST_HELD = 192 << 20
"""Bytes that the process holds for all connections; one command can hold half of them."""
ROOM_TIME = 15.0
"""Seconds that a connection waits for the memory that its inspection needs."""
ARRIVED_TIME, QUIET_TURNS = 1.0, 10
"""Maximum seconds for what had arrived when a command ended, and the loop's turns without a byte after which it is
judged: a task that is woken by bytes needs three."""
NO_INSPECTOR = "its rule requires inspection, which is not part of this installation: it lacks mudroom/ext/inspection"


class _Pending(NamedTuple):
    identity: int
    answer: asyncio.Future[str]
    """Empty if answered, else the reason why there is no answer."""


class Guard:
    def __init__(
        self, channel: socket.socket, message: wire.OpenMessage, resolver: Resolver, budget: MemoryBudget
    ) -> None:
        """``budget``: shared by all guards in the process."""
        self.resolver = resolver
        self.share = budget.share(MAX_CONNECTIONS)
        self.rules: list[HostRule] = message.rules
        self.upstream = parse_upstream(message.upstream) if message.upstream else None
        self.inspection: Inspection | None = message.inspection
        self.inspector: Any = None
        """An ``Inspector``. None until credentials or a rule need it, and where ``ext/inspection`` is absent."""
        self.clients: set[Peer] = set()
        self._channel = channel
        self._ask = message.ask
        self._ask_timeout = message.ask_timeout
        self._identities = itertools.count(message.first)
        self._numbers = itertools.count(1)
        self._pending: dict[tuple[str, int], _Pending] = {}
        self._answers: dict[tuple[str, int], bool] = {}
        self.all_hosts = message.all_hosts
        """Whether the host makes every connection: no name is looked up here."""
        self.fork = message.fork
        """Label of the command's fork; empty: it has none."""
        self.dials = ForkDials(self._send, lambda: next(self._identities))
        self._decided: dict[Request, HostDecision] = {}
        """Cache of decisions by the current rules: the same few hosts recur."""
        self._inspected: dict[tuple[str, int], bool] = {}
        """As ``_decided``."""
        self._kept: dict[tuple[HostDecision, bytes, int], str | None] = {}
        """As ``_decided``, for the addresses behind earlier connections."""
        self._waiting = 0
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._caught_up: asyncio.Future[None] | None = None
        """Done when the host has read its messages; None if no task waits for that."""
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_shut = False
        self._is_crowded = False
        self._look_at_rules()

    @property
    def sanitizer(self) -> CredentialSanitizer | None:
        sanitizer: CredentialSanitizer | None = None if self.inspector is None else self.inspector.sanitizer
        return sanitizer

    # --- decisions ---

    def is_inspected(self, host: str, port: int) -> bool:
        inspected = self._inspected.get((host, port))
        if inspected is None:
            if len(self._inspected) >= _DECIDED:
                self._inspected.clear()
            inspected = self._inspected[host, port] = is_inspected(host, port, self.rules, self.inspection)
        return inspected

    def refusal_of_kept(self, decision: HostDecision, packed: bytes, port: int) -> str | None:
        """Return why a connection to an address, which was vetted when it was made, may not be used for a request with
        this decision; None if it may."""
        key = decision, packed, port
        if key not in self._kept:
            if len(self._kept) >= _DECIDED:
                self._kept.clear()
            self._kept[key] = vet(decision, [packed], LocalAddresses([packed]), rules=self.rules, port=port)
        return self._kept[key]

    def look(self, request: Request) -> HostDecision:
        """Return the decision by the rules and the answers so far. It is "ask" only if the host can be asked."""
        decision = self._decided.get(request)
        if decision is None:
            if len(self._decided) >= _DECIDED:
                self._decided.clear()
            rules: list[HostRule] = self.rules
            if not request.method and self.is_inspected(request.host, request.port):
                rules = connection_rules(request.host, request.port, rules)
            judge = decide_fork if is_fork_host(request.host) else decide
            decision = judge(request, rules)
            reason = "" if decision.action == "deny" else self._why_not_inspected(request)
            if reason:
                decision = HostDecision("deny", decision.rule, reason)
            self._decided[request] = decision
        if decision.action != "ask":
            return decision
        if decision.rule is None and (request.host == "localhost" or request.host.endswith(".localhost")):
            return HostDecision(
                "deny", None, "outside the sandbox, localhost is another machine; only a rule allows it"
            )
        answer = self._answers.get((request.host, request.port))
        if answer is not None:
            return HostDecision("allow" if answer else "deny", decision.rule, "answered earlier for this host and port")
        if not self._ask:
            return HostDecision("deny", decision.rule, f"{decision.reason}; nobody is there to be asked")
        return decision

    def _why_not_inspected(self, request: Request) -> str:
        """Return why a request that has to be inspected cannot be, or an empty string."""
        host, port = request.host, request.port
        if self.inspector is None and (
            self.inspection is not None
            or self.is_inspected(host, port)
            or any(concerns(rule, host, port) for rule in self.may_change)
        ):
            return NO_INSPECTOR
        return "" if request.method else uninspected(request, self.rules, self.inspection)

    async def judge(self, request: Request, way: Way, peer: Peer) -> HostDecision:
        """Judge a request; ask the host where the rules say so, and wait for the answer. Raise PeerGone if the client
        does not wait."""
        while self._is_behind():
            await self._wait_with(self._catch_up(), peer)
        decision = self.look(request)
        while decision.action == "ask":
            refusal = await self._ask_host(request, way, peer)
            if refusal:
                return HostDecision("deny", decision.rule, f"{decision.reason}; {refusal}")
            decision = self.look(request)  # the answer may have been a rule, and rules may have changed meanwhile
        return decision

    async def _ask_host(self, request: Request, way: Way, peer: Peer) -> str:
        """Wait until the question is answered. Return why it was not, or an empty string."""
        key = (request.host, request.port)
        pending = self._pending.get(key)
        if self._waiting >= MAX_WAITING or (pending is None and len(self._pending) >= MAX_QUESTIONS):
            return "too many connections wait for an answer"
        if pending is None:
            pending = _Pending(next(self._identities), self._loop.create_future())
            self._pending[key] = pending
            self._send(wire.AskedMessage(FlowQuestion(pending.identity, request.host, request.port, way)))
            self._loop.call_later(self._ask_timeout, self._expire, key, pending)
        self._waiting += 1
        try:
            await self._wait_with(pending.answer, peer)
        finally:
            self._waiting -= 1
        return pending.answer.result()

    async def _wait_with(self, future: asyncio.Future[Any], peer: Peer) -> None:
        """Wait for the future. Raise PeerGone if the client ends before."""
        waits: set[asyncio.Future[Any]] = {future, peer.over}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise PeerGone("the client did not wait for the answer")

    def _expire(self, key: tuple[str, int], pending: _Pending) -> None:
        if not pending.answer.done():
            del self._pending[key]
            pending.answer.set_result("there was no answer in time")

    def answer(self, message: wire.AnswerMessage) -> None:
        if message.rule is not None:
            self.rules.append(message.rule)
            self._look_at_rules()
        for key, pending in list(self._pending.items()):
            if pending.identity == message.identity:
                del self._pending[key]
                if not message.why:
                    self._answers[key] = message.allowed
                pending.answer.set_result(message.why)
        self._settle()

    def update(self, rules: list[HostRule]) -> None:
        self.rules = rules
        self._look_at_rules()
        self._settle()

    def _look_at_rules(self) -> None:
        """Forget decisions by earlier rules, and load an inspector if the rules need one."""
        self._decided.clear()
        self._inspected.clear()
        self._kept.clear()
        self.may_change = changing(self.rules)
        self.may_hold = any(rule.hold for rule in self.rules)
        if self.inspector is None and (
            self.inspection is not None or self.may_change or any(rule.inspect for rule in self.rules)
        ):
            module = part_or_none("inspection", "gate")
            self.inspector = None if module is None else module.GuardInspector(self)

    def _settle(self) -> None:
        """Resume the connections whose questions the rules now answer."""
        for (host, port), pending in list(self._pending.items()):
            if self.look(Request(host, port)).action != "ask":
                del self._pending[host, port]
                pending.answer.set_result("")

    # --- messages to the host ---

    def began(self, flow: Flow) -> int:
        number = next(self._numbers)
        self._send(wire.BeganMessage(number, self._clean(flow)))
        return number

    def ended(self, flow: Flow, number: int = 0) -> None:
        self._send(wire.EndedMessage(number, self._clean(flow)))

    def _clean(self, flow: Flow) -> Flow:
        return flow if self.sanitizer is None else self.sanitizer.flow(flow)

    def dropped(self, number: int) -> None:
        self._send(wire.DroppedMessage(number))

    def _is_behind(self) -> bool:
        """Return whether the host does not read its messages."""
        return len(self._unsent) >= MAX_UNSENT or self._unsent_bytes >= MAX_UNSENT_BYTES

    def _catch_up(self) -> asyncio.Future[None]:
        if self._caught_up is None:
            self._caught_up = self._loop.create_future()
        return self._caught_up

    def register(self, client: Peer) -> bool:
        """Register a new connection, and open its account. If there are too many, an older connection that waits for a
        request is closed instead. Return False if there is no such connection: the new one must not be served then."""
        if self.is_shut or self._is_behind():
            return False
        share = self.share
        if share.takes_connection():
            self._is_crowded = False
        else:
            closed = share.budget.reclaim(share, FLOOR)
            if not closed:
                oldest = share.oldest_waiting()
                self._tell_crowded("further ones" if oldest is None else "those that have waited longest for a request")
                if oldest is None:
                    return False
                closed = [oldest]
            for account in closed:
                account.cut()
        client.charge_to(share.open(lambda: self._evict(client)))
        self.clients.add(client)
        return True

    def _tell_crowded(self, closed: str) -> None:
        if not self._is_crowded:
            self._is_crowded = True
            reason = f"there are {len(self.clients)} connections; {closed} are closed"
            self.ended(Flow(time.time_ns(), "raw", "", 0, "deny", "", reason))

    def _evict(self, client: Peer) -> None:
        self.unregister(client)
        client.cut()

    def unregister(self, client: Peer) -> None:
        if client in self.clients:
            self.clients.discard(client)
            self.share.end_connection(client.account)

    async def reserve(self, client: Peer, length: int) -> bool:
        """Charge bytes to the connection's account when there is room; until then, idle connections make room. Return
        False if there was no room in time. Raise PeerGone if the client does not wait."""
        share, account, granted = self.share, client.account, self._loop.create_future()
        share.wait(account, length, lambda: complete(granted))
        if granted.done():
            return True
        try:
            async with asyncio.timeout(ROOM_TIME):
                idle = share.oldest_waiting(length)
                for other in share.budget.reclaim(share, length) or ([] if idle is None else [idle]):
                    other.cut()
                await self._wait_with(granted, client)
        except TimeoutError:
            return False
        finally:
            if not granted.done():
                share.give_up(account)
        return True

    def _send(self, message: wire.ToHost) -> None:
        waiting = bool(self._unsent)
        packets = wire.packets(message)
        for packet in packets:
            self._unsent.append(packet)
            self._unsent_bytes += len(packet)
        if not waiting and not self._flush():
            self._loop.add_writer(self._channel.fileno(), self._flush_later)

    def _flush_later(self) -> None:
        if self._flush():
            self._loop.remove_writer(self._channel.fileno())

    def _flush(self) -> bool:
        """Send as much to the host as it takes. Return whether that was everything."""
        try:
            while self._unsent:
                sent = self._channel.send(self._unsent[0])
                self._unsent_bytes -= sent
                rest = self._unsent.popleft()[sent:]
                if rest:  # a stream socket may send only a part
                    self._unsent.appendleft(rest)
        except BlockingIOError:
            return False
        except OSError:
            self._unsent.clear()  # the host is gone; the channel's reader sees its end
            self._unsent_bytes = 0
        finally:
            if self._caught_up is not None and not self._is_behind():
                self._caught_up.set_result(None)
                self._caught_up = None
        return True

    # --- its tasks ---

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(self._loop.create_task(self._run(work)))

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run to the end, and forget the task here: a task callback would cost a loop turn."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - a bug: close the connection, report it
            reason = f"the gate failed: {type(error).__name__}: {error}"
            self.ended(Flow(time.time_ns(), "raw", "", 0, "deny", "", reason))
        finally:
            task = asyncio.current_task()
            if task is not None:
                self._tasks.discard(task)

    async def _read_arrived(self) -> None:
        """Read what the clients had sent when the command ended, and let their tasks judge it: a refusal, or a client's
        TLS alert, would otherwise be told by a gate that is quick, and not by a busy one."""
        limit, quiet, before = self._loop.time() + ARRIVED_TIME, 0, -1
        while self.clients and quiet < QUIET_TURNS and self._loop.time() < limit:
            count = sum(getattr(client.transport, "count", 0) for client in self.clients)
            quiet, before = (quiet + 1 if count == before else 0), count
            await asyncio.sleep(0)  # a turn of the loop, which reads each socket once

    async def shut(self) -> None:
        """Judge what has arrived, cancel all tasks, send the last flows to the host, and then the closing message."""
        self.is_shut = True
        await self._read_arrived()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for client in list(self.clients):
            client.cut()
        self._send(wire.ClosedMessage())
        while self._unsent:
            await asyncio.sleep(0.001)
