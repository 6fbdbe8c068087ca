"""The host's end of the gate: start its process when first needed, open guards in it, receive flows and questions.

Rules of this file: synchronous, no thread, no asyncio. A gate process that dies is replaced, and each of its guards is
opened again with the host's own copies of its listeners; open connections are cut, open questions are void. Messages
from the gate are parsed as untrusted input, because the gate process has read untrusted data.
"""

from __future__ import annotations

import _socket
import _thread
import os
import socket
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from mudroom.core.network.flow import Flow, FlowQuestion
from mudroom.core.network.fork_host import ForkDial
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection
from mudroom.errors import MudroomError
from mudroom.net.protocol import wire
from mudroom.net.protocol.upstream import parse_upstream

if sys.platform == "win32":
    from mudroom.core.registry import twin

    PROGRAM, is_readable, start = twin("gate").PROGRAM, twin("gate").is_readable, twin("gate").start
else:
    from mudroom.net.posix_process import PROGRAM, is_readable, start

Kind = str
"""A listener kind, as ``Listener`` lists them."""

_AGAIN = "run the command again; mudroom doctor tries the gate"
_DEATHS, _WITHIN = 3, 10.0
"""A gate that dies this often within this many seconds is not started again for its guards."""
_DYING = 0.2
"""Maximum seconds between the first socket that a dying process closes and its end."""
_PATIENCE = 10
"""Seconds that sending a message to the gate process may block."""
MOST_MEMORY = 512 << 20
"""Bytes of private memory for the process, including libraries and accounting errors. An allocation beyond them fails,
and the connection with it."""


class GateProcess(Protocol):
    """The gate's process: a ``ProcessHandle``, or on Windows a ``Child``."""

    pid: int

    def ends_within(self, seconds: float) -> bool: ...
    def kill_child(self) -> None: ...
    def close(self) -> None: ...


class Listener(NamedTuple):
    kind: Kind
    """proxy: HTTP (absolute form, CONNECT) and SOCKS5. transparent: the socket's own address is the destination.
    redirected: SO_ORIGINAL_DST is the destination. dns-udp has IP_PKTINFO or IPV6_RECVPKTINFO on. dns-tcp.
    loopback=ADDRESS:PORT: the destination, on this machine's loopback. keyed=HEX: as proxy, for connections that begin
    with these bytes."""
    descriptor: int


Received = Flow | FlowQuestion | ForkDial
"""Messages that a guard receives from the gate process."""


class Gate:
    """A host process's gate: no process runs until a guard is opened.

    ``upstream``: the only proxy through which the host reaches the internet, as ``http://[USER:PASSWORD@]HOST:PORT``;
    it looks up names and vets their addresses. Raises ValueError if it is not such a URL. Several threads may use a
    gate, each with its own guards.
    """

    def __init__(self, program: str = PROGRAM, upstream: str = "") -> None:
        if upstream:
            parse_upstream(upstream)
        self.upstream = upstream
        self._program = program
        self.is_closed = False
        self._lock = _thread.allocate_lock()
        self._control: socket.socket | None = None
        self._pid = 0
        self._handle: GateProcess | None = None
        """Used to kill the process: by then, its pid may belong to another process."""

    def open(
        self,
        rules: Sequence[HostRule],
        listeners: Sequence[Listener],
        *,
        ask: bool,
        ask_timeout: float = 60.0,
        inspection: Inspection | None = None,
        fork: str = "",
        all_hosts: bool = False,
    ) -> GuardHandle:
        """Let connections to these listeners through as the rules say. The guard owns the descriptors from then on.

        ``ask``: a caller answers each ``FlowQuestion``; a question without an answer within ``ask_timeout`` seconds is
        denied. Raise MudroomError if the gate process cannot be started; the caller keeps the descriptors then.
        ``inspection``: required by rules with ``inspect``; without it, requests under those rules are refused.
        ``fork``: the label of the command's fork, which other forks are told. ``all_hosts``: the caller makes every
        connection (``ForkDial``), to other hosts, too.
        """
        return GuardHandle(self, rules, listeners, ask, ask_timeout, inspection, fork, all_hosts)

    def prepare(self) -> None:
        """Start the process, for guards that are likely to be opened soon. A failure is reported by ``open``."""
        with self._lock:
            if not self.is_closed:
                try:
                    self._ensure_started()
                except MudroomError:
                    return  # the caller that opens a guard tries again, and gets the error

    def close(self) -> None:
        """End the process, and every connection with it. The guards are shut at their next ``receive``."""
        with self._lock:
            self.is_closed = True
            self._forget()

    @property
    def pid(self) -> int:
        """The process id; 0 if it does not run."""
        return self._pid

    def _send(self, message: wire.OpenMessage, descriptors: Sequence[int]) -> None:
        with self._lock:
            try:
                wire.send(self._ensure_started(), message, descriptors)
            except OSError:  # the process has died meanwhile
                self._forget()
                wire.send(self._ensure_started(), message, descriptors)

    def _ensure_started(self) -> socket.socket:
        if self.is_closed:
            raise MudroomError("the gate is closed: its session has ended", "run the command again")
        if self._control is not None and not _is_over(self._control):
            return self._control
        self._forget()
        try:
            ours, self._handle = start(self._program, MOST_MEMORY)
        except OSError as error:
            raise MudroomError(f"the gate cannot be started: {error.strerror}", _AGAIN) from error
        ours.settimeout(_PATIENCE)
        self._pid, self._control = self._handle.pid, ours
        return ours

    def _has_ended(self) -> None:
        """Handle the end of a guard's socket. If the process is ending (it may not have closed everything yet), forget
        it; otherwise only the guard has been closed."""
        with self._lock:
            if self._handle is not None and self._handle.ends_within(_DYING):
                self._forget()

    def _forget(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._handle is not None:
            self._handle.kill_child()
            self._handle.close()
            self._pid, self._handle = 0, None


class GuardHandle:
    """One command's guard: its listeners, rules and questions. Not thread-safe."""

    def __init__(
        self,
        gate: Gate,
        rules: Sequence[HostRule],
        listeners: Sequence[Listener],
        ask: bool,
        ask_timeout: float,
        inspection: Inspection | None,
        fork: str = "",
        all_hosts: bool = False,
    ) -> None:
        self._gate, self._fork, self._all_hosts = gate, fork, all_hosts
        self._rules = list(rules)
        self._listeners = list(listeners)
        self._ask = ask
        self._inspection = inspection
        self._ask_timeout = ask_timeout
        self._asked = 0
        self._deaths: list[float] = []
        self._open_flows: dict[int, Flow] = {}
        self._inbox = wire.Inbox()
        self._is_over = False
        self._socket = self._connect()

    def fileno(self) -> int:
        """Return the descriptor that is readable when ``receive`` has work to do; -1 when the guard is shut. Except on
        Windows, the number stays the same when the gate is replaced; epoll(7) does not notice that, poll(2) does."""
        return self._socket.fileno()

    def receive(self) -> list[Received]:
        """Return new flows, questions and requests for connections to other forks. Never block, except to start a new
        gate if the old one died. Raise MudroomError, and shut the guard, when the gate dies repeatedly."""
        received: list[Received] = []
        if self._is_over:
            return received
        try:
            while (message := self._next()) is not None:
                self._handle_message(message, received)
        except (EOFError, wire.BrokenMessage):
            received += self._lost()
            self._reopen()
        return received

    def answer(self, identity: int, allowed: bool, rule: HostRule | None) -> None:
        """Answer a question. ``rule`` is added to the guard's rules. An answer without a rule applies to that host and
        port at this guard."""
        if rule is not None:
            self._rules.append(rule)
        self._post(wire.AnswerMessage(identity, allowed, rule))

    def refuse(self, identity: int, why: str) -> None:
        """End a question without an answer. The waiting connections are refused; later ones are asked about again."""
        self._post(wire.AnswerMessage(identity, False, None, why))

    def dialled(
        self,
        identity: int,
        connection: int,
        error: str = "",
        *,
        is_refused: bool = False,
        rule: str = "",
        http: bool = False,
    ) -> None:
        """Answer a ``ForkDial`` with a connected socket, which stays the caller's, or with -1 and an error. The other
        arguments are as in ``wire.DialledMessage``."""
        message = wire.DialledMessage(identity, error, is_refused, rule, http)
        self._post(message, [connection] if connection >= 0 else [])

    def update(self, rules: Sequence[HostRule]) -> None:
        """Replace the rules. Open connections stay open."""
        self._rules = list(rules)
        self._post(wire.UpdateMessage(self._rules))

    def listen(self, listeners: Sequence[Listener]) -> None:
        """Add listeners. The guard owns the descriptors from then on."""
        self._listeners += listeners
        descriptors = [listener.descriptor for listener in listeners]
        self._post(wire.ListenMessage([listener.kind for listener in listeners]), descriptors)

    def close_listeners(self, kinds: Collection[str]) -> None:
        """Close the listeners with these kinds. They stay open until the gate has closed its copies, too."""
        self._post(wire.CloseMessage(list(kinds)))
        for listener in self._listeners:
            if listener.kind in kinds:
                _socket.close(listener.descriptor)
        self._listeners = [listener for listener in self._listeners if listener.kind not in kinds]

    def shut(self, timeout: float) -> list[Flow]:
        """Close the listeners and cut every connection. Return the last flows, after ``timeout`` seconds at most."""
        self._close_listeners()
        flows: list[Received] = []
        if not self._is_over:
            self._post(wire.ShutMessage())
            self._is_over = True
            limit = time.monotonic() + timeout
            with suppress(EOFError, wire.BrokenMessage):  # the last message has been read
                while (left := limit - time.monotonic()) > 0 and is_readable(self._socket, left):
                    while (message := self._next()) is not None:
                        self._handle_message(message, flows)
            self._socket.close()
        return [*(flow for flow in flows if isinstance(flow, Flow)), *self._lost()]

    # --- internals ---

    def _connect(self) -> socket.socket:
        ours, theirs = wire.packet_pair()
        ours.setblocking(False)
        kinds = [listener.kind for listener in self._listeners]
        message = wire.OpenMessage(
            kinds,
            self._rules,
            self._ask,
            self._ask_timeout,
            self._asked + 1,
            self._gate.upstream,
            self._inspection,
            self._fork,
            self._all_hosts,
        )
        try:
            self._gate._send(message, [theirs.fileno(), *(listener.descriptor for listener in self._listeners)])
        except OSError as error:
            ours.close()
            why = error.strerror or f"it has read nothing for {_PATIENCE} s"  # a time-out has no error number
            raise MudroomError(f"the gate does not answer: {why}", _AGAIN) from error
        except MudroomError:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def _reopen(self) -> None:
        """Open the same guard in a new gate, at the same descriptor number."""
        if self._gate.is_closed:
            self._end()
            return
        at = time.monotonic()
        self._deaths = [*(death for death in self._deaths if at - death < _WITHIN), at]
        try:
            if len(self._deaths) >= _DEATHS:
                raise MudroomError("the gate ended again and again; the network of this command is cut", _AGAIN)
            self._gate._has_ended()
            new = self._connect()
        except MudroomError:
            self._end()
            raise
        if sys.platform == "win32":  # there no socket can take another's number
            self._socket.close()
            self._socket = new
        else:
            os.dup2(new.fileno(), self._socket.fileno(), inheritable=False)
            new.close()
        self._inbox = wire.Inbox()

    def _end(self) -> None:
        self._is_over = True
        self._close_listeners()
        self._socket.close()

    def _next(self) -> wire.ToHost | None:
        packet = self._inbox.receive(self._socket)
        if packet is None:
            return None
        for descriptor in packet[1]:
            _socket.close(descriptor)
        try:
            message: wire.ToHost = wire.to_host.decode(packet[0])
        except msgspec.DecodeError as error:
            raise wire.BrokenMessage(str(error)) from error
        return message

    def _handle_message(self, message: wire.ToHost, received: list[Received]) -> None:
        match message:
            case wire.AskedMessage(question):
                self._asked = max(self._asked, question.identity)
                received.append(question)
            case wire.DialMessage(request):
                self._asked = max(self._asked, request.identity)
                received.append(request)
            case wire.BeganMessage(number, flow):
                self._open_flows[number] = flow
            case wire.EndedMessage(number, flow):
                self._open_flows.pop(number, None)
                received.append(flow)
            case wire.DroppedMessage(number):
                self._open_flows.pop(number, None)
            case wire.ClosedMessage():
                raise EOFError

    def _post(self, message: wire.ToGate, descriptors: Sequence[int] = ()) -> None:
        if self._is_over:
            return
        self._socket.settimeout(_PATIENCE)
        try:
            wire.send(self._socket, message, descriptors)
        except OSError:
            pass  # the gate has died; ``receive`` notices it, and the new gate gets the current rules
        finally:
            self._socket.setblocking(False)

    def _lost(self) -> list[Flow]:
        """Return the flows that were open when the gate ended."""
        flows = [flow._replace(error="the gate ended") for flow in self._open_flows.values()]
        self._open_flows.clear()
        return flows

    def _close_listeners(self) -> None:
        """Close the listeners for every process that holds them."""
        for kind, descriptor in self._listeners:
            if kind != "dns-udp":
                with (  # the socket was not listening
                    socket.socket(fileno=_socket.dup(descriptor)) as listener,
                    suppress(OSError),
                ):
                    # close(2) would leave other processes' copies open; shutdown(2) ends listening itself
                    listener.shutdown(socket.SHUT_RDWR)
            _socket.close(descriptor)
        self._listeners = []


def _is_over(channel: socket.socket) -> bool:
    """Return whether the other end is closed. It never sends on the control socket, so readable means closed."""
    return is_readable(channel, 0)
