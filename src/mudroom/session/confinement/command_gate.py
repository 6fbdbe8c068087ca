"""The gate beside one command: watch its listeners, and start the gate at the first connection.

Rules in this file:
1. For a command that does not use the network, only the listeners are made; no gate is started. Beside a command that
   was judged to use it, the gate starts at once, so that it is ready for the first connection.
2. An error leaves the command without a network, never with another network: its namespace has none.

Questions about hosts: ``host_questions.py``. Connections to other forks: ``dial_desk.py``.
"""

from __future__ import annotations

import _socket
import _thread
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from mudroom.core.registry import is_installed, part_or_none
from mudroom.core.system.closing import Closing
from mudroom.errors import MudroomError, UsageError
from mudroom.session.confinement.host_approver import CommandScreen, HostAnswers, NoScreen
from mudroom.session.confinement.namespace_listener import NamespaceListener
from mudroom.typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from mudroom.core.confinement.spec import Bind
    from mudroom.core.network.flow import Flow, FlowQuestion, Hold
    from mudroom.core.network.flow_log import FlowLog
    from mudroom.core.network.fork_host import ForkDial
    from mudroom.core.network.host_rules import HostRule
    from mudroom.core.network.inspection import Inspection
    from mudroom.core.network.loopback import LoopbackPlace
    from mudroom.net.gate_handle import Gate, GuardHandle, Kind
    from mudroom.sandbox.client.client import Running
    from mudroom.session.confinement.dial_desk import DialDesk
    from mudroom.session.confinement.dialler import Dialler, InnerSockets
    from mudroom.session.confinement.host_questions import HostQuestions

_NAMESPACES = ("user", "net")
"""Names of the descriptors that come with the listeners but are namespaces."""
_QUEUE = 4096
"""A listener's backlog (listen(2)): while it is full, the command's connect(2) blocks."""
LAST_FLOWS = 5.0
"""Seconds after a command in which the gate may send the last flows."""
_SSH = 22


class Equipment(NamedTuple):
    """A command's equipment for TLS inspection."""

    inspection: Inspection
    """For ``Gate.open``. It holds secrets."""
    environment: tuple[tuple[bytes, bytes], ...]
    """For the command, replacing its variables with these names: root certificates and credential placeholders."""
    binds: tuple[Bind, ...]
    """For its sandbox, read-only."""


def _new_gate(upstream: str) -> Gate:
    from mudroom.net.gate_handle import Gate

    return Gate(upstream=upstream)


def upstream_of(environ: Mapping[bytes, bytes]) -> str:
    """Return the proxy through which this machine reaches the internet, if the environment names a proxy that the gate
    can use; otherwise an empty string."""
    for name in (b"https_proxy", b"HTTPS_PROXY", b"http_proxy"):
        value = environ.get(name, b"")
        if value.startswith(b"http://"):
            return value.decode("utf-8", "surrogateescape")
    return ""


class SharedGates:
    """This process's gates, one for each upstream proxy. A gate is closed with the last session that uses it."""

    def __init__(self, make: Callable[[str], Gate] = _new_gate) -> None:
        self._make = make
        self._lock = _thread.allocate_lock()
        self._gates: dict[str, Gate] = {}
        self._users: dict[str, int] = {}

    def acquire(self, upstream: str) -> Gate:
        """Return the gate for an upstream proxy. Raise UsageError if the proxy cannot be used."""
        with self._lock:
            if upstream not in self._gates:
                try:
                    self._gates[upstream] = self._make(upstream)
                except ValueError as error:
                    hint = "https_proxy=http://HOST:PORT names one"
                    raise UsageError(f"the proxy of this machine cannot be used: {error}", hint) from error
            self._users[upstream] = self._users.get(upstream, 0) + 1
            return self._gates[upstream]

    def release(self, upstream: str) -> None:
        with self._lock:
            self._users[upstream] -= 1
            if not self._users[upstream]:
                self._gates.pop(upstream).close()


SHARED = SharedGates()


class SessionGate:
    """A session's gate: its rules, its approver, and the gate process once it is needed, guarded by ``_lock``."""

    def __init__(self, hosts: HostAnswers, upstream: str = "") -> None:
        self.rules, self.remember, self.approver = hosts.rules, hosts.remember, hosts.approver
        self.loopback_rules = hosts.loopback_rules or hosts.rules
        self._upstream = upstream
        self._lock = _thread.allocate_lock()
        self._process: Gate | None = None
        self._pool: InnerSockets | None = None

    @property
    def inner_sockets(self) -> InnerSockets:
        """Makes sockets in running commands' namespaces."""
        from mudroom.session.confinement.dialler import fork_links

        with self._lock:
            if self._pool is None:
                self._pool = fork_links().inner_sockets()
            return self._pool

    @property
    def process(self) -> Gate:
        with self._lock:
            if self._process is None:
                self._process = SHARED.acquire(self._upstream)
            return self._process

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        if self._process is not None:
            self._process = None
            SHARED.release(self._upstream)


class PushDesk(Protocol):
    """Stores a command's held effects (``ext/effects/desk.py``)."""

    def begin(self, guard: GuardHandle, dial: ForkDial, /) -> None:
        """Answer the gate's wish for a connection over which it hands over a push."""

    def descriptors(self) -> list[int]: ...
    def attend(self, ready: Collection[int], /) -> None: ...
    def close(self) -> None: ...


class CommandGate(Closing):
    """The gate beside one command (``sandbox/client/capture.py``). Used by the thread that attends to the command."""

    def __init__(
        self,
        gate: SessionGate,
        namespace_listener: bytes,
        screen: CommandScreen | None = None,
        inspection: Inspection | None = None,
        fork: Callable[[], str] = str,
        places: Sequence[LoopbackPlace] = (),
        dialler: Callable[[], Dialler] | None = None,
        is_networked: bool = False,
        label: str = "",
        all_hosts: bool = False,
        holds: Callable[[], PushDesk] | None = None,
        change: Callable[[Sequence[HostRule]], Sequence[HostRule]] | None = None,
    ) -> None:
        """A context to enter before the command starts.

        ``namespace_listener``: the socket's path for connections to servers inside.
        ``inspection``: the data for rules that inspect.
        ``fork``: returns the fork's name as shown to the approver.
        ``places``: the host's loopback ports that have listeners.
        ``dialler``: makes the dialler at the first connection to another fork; None: no such connection is possible.
        ``is_networked``: whether the command was judged to use the network.
        ``label``: the fork's name.
        ``all_hosts``: as ``Dialler.all_hosts``.
        ``holds``: makes the desk that stores held pushes; None: no push can be held.
        ``change``: as ``HostAnswers.for_agent``. Without ``inspection`` the command could not obey its holds."""
        self._make_holds, self._change = holds, change if inspection is not None else None
        self._holds: PushDesk | None = None
        """None until there is a request to a host whose effects are held."""
        self._is_networked, self._label, self._all_hosts = is_networked, label, all_hosts
        self.loopback: tuple[tuple[str, int, int], ...] = tuple((*place, 0) for place in places)
        """As in ``SandboxSpec.loopback``."""
        self._places = list(places)
        """The host's loopback ports that have listeners, or whose listeners could not be made."""
        self._gate, self._screen, self._inspection, self._fork = gate, screen or NoScreen(), inspection, fork
        self._make_dialler = dialler
        self._desk: DialDesk | None = None
        """None until a connection to another fork is requested."""
        self._running: Running | None = None
        self._listeners: list[tuple[Kind, int]] = []
        self._namespaces: list[int] = []
        """The command's user and network namespaces, in this order."""
        self._namespace_listener = NamespaceListener(namespace_listener)
        self._guard: GuardHandle | None = None
        self._log: FlowLog | None = None
        """None until there is a flow. Other threads read it, too (``FlowLog``)."""
        self._way: tuple[tuple[str, int], bytes] | None = None
        """Address and key of the proxy's listener, if the command reaches it only through a bridge."""
        self._refused: Callable[[], Sequence[str]] | None = None
        """Returns notes about connections that the bridge has refused."""
        self.notes: list[str] = []
        self._rules: Sequence[HostRule] = ()
        self._questions: HostQuestions | None = None
        """None until the gate asks about a host."""

    @property
    def is_inside(self) -> bool:
        """Whether the listeners are made in the command's network namespace."""
        return not self._listeners

    def listen(self, *, bridged: bool = False) -> int:
        """Open listeners on the host's loopback, for a command without a network namespace: for the proxy and for each
        place in ``loopback``. Return the proxy's port. This machine's other users can connect there, too: they get the
        command's access, which is less than their own.

        ``bridged``: the command reaches the gate only through ``Running.open_gate``. No other process can use the
        listener then, and the returned port is the port that the relay inside takes on 127.0.0.1."""
        if bridged:
            return self._listen_apart()
        self.loopback = tuple((*place, self._listen(f"loopback={place}")) for place in self._places)
        return self._listen("proxy")

    def _listen(self, kind: Kind) -> int:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(_QUEUE)
        port: int = listener.getsockname()[1]
        self._listeners.append((kind, listener.detach()))
        return port

    def _listen_apart(self) -> int:
        from mudroom.session.confinement.loopback import listen_apart

        kind, descriptor, self._way = listen_apart(_QUEUE)
        self._listeners.append((kind, descriptor))
        return self._way[0][1]

    def began(self, running: Running) -> None:
        self._running = running
        if self._way is not None:
            self._refused = running.open_gate(*self._way)
        if self._is_networked:
            try:
                self._gate.process.prepare()
            except MudroomError:
                return  # the first connection meets the same error and reports it

    def descriptors(self) -> Collection[int]:
        if self._guard is not None:
            bells = self._questions.descriptors() if self._questions is not None else []
            bells += self._desk.descriptors() if self._desk is not None else []
            bells += self._holds.descriptors() if self._holds is not None else []
            return [self._guard.fileno(), *self._namespace_listener.descriptors(), *bells]
        if self._listeners:
            return [*self._namespace_listener.descriptors(), *(descriptor for _kind, descriptor in self._listeners)]
        waiting = self._running.gate if self._running is not None else None
        return [] if waiting is None else [waiting.fileno()]

    def attend(self, ready: Collection[int]) -> float:
        began = time.monotonic()
        try:
            if any(descriptor in ready for descriptor in self._namespace_listener.descriptors()):
                self._namespace_listener.admit(self._namespaces)
            elif self._guard is not None and self._guard.fileno() in ready:
                self._hear(self._guard)
            elif self._guard is not None:
                if self._desk is not None:
                    self._desk.attend(self._guard, ready)
                if self._holds is not None:
                    self._holds.attend(ready)
                if self._questions is not None:
                    self._questions.look(self._guard)
            elif self._listeners:
                self._open()
            elif self._running is not None:
                self._take(self._running)
        except MudroomError as error:
            self._without_network(str(error))
        return time.monotonic() - began

    def _take(self, running: Running) -> None:
        for kind, descriptor in running.listeners():
            if kind in _NAMESPACES:
                self._namespaces.append(descriptor)
            else:
                self._listeners.append((kind, descriptor))
        if self._listeners:
            try:
                self._namespace_listener.open()
            except OSError as error:  # inbound connections are optional; outbound ones do not depend on them
                self.notes.append(f"mudroom net open cannot reach this command: {error.strerror}")

    def _open(self) -> None:
        from mudroom.net.gate_handle import Listener

        listeners = [Listener(kind, descriptor) for kind, descriptor in self._listeners]
        ask = self._gate.approver is not None
        self._rules = self._gate.rules()
        self._guard = self._gate.process.open(
            self._rules if self._change is None else self._change(self._rules),
            listeners,
            ask=ask,
            inspection=self._inspection,
            fork=self._label,
            all_hosts=self._all_hosts,
        )
        self._listeners = []  # owned by the guard from now on
        self._follow(self._rules)

    def look(self) -> None:
        """Periodic check: apply changed rules to new connections and to the listeners for the host's loopback. If the
        rules cannot be read, allow no more connections."""
        guard = self._guard
        if guard is None and not ((self._namespaces or self._places) and self._listeners):
            return
        try:
            if guard is not None and self._questions is not None:
                self._questions.look(guard)
            rules = self._gate.loopback_rules() if guard is None else self._gate.rules()
        except MudroomError as error:
            if guard is not None:
                self._without_network(str(error))
            return
        if rules is not self._rules:
            self._rules = rules
            self._follow(rules if guard is None else self._update(guard))

    def _follow(self, rules: Sequence[HostRule]) -> None:
        """Close the listeners for loopback ports that no rule opens any more. Make listeners for new ports, if the
        command has a network namespace."""
        if not self._places and not rules:
            return
        from mudroom.core.network.loopback import MOST, loopback_places

        wanted = loopback_places(rules)[:MOST]
        gone = {f"loopback={place}" for place in self._places if place not in wanted}
        new = [place for place in wanted if place not in self._places] if self._namespaces else []
        self._places = [place for place in self._places if place in wanted] + new
        if gone:
            self._close_listeners(gone)
        if new:
            from mudroom.net.gate_handle import Listener
            from mudroom.session.confinement.loopback import make_listeners

            listeners, notes = make_listeners(new, self._namespaces)
            self.notes += notes
            if self._guard is not None:
                self._guard.listen([Listener(*listener) for listener in listeners])
            else:
                self._listeners += listeners

    def _close_listeners(self, kinds: Collection[str]) -> None:
        if self._guard is not None:
            self._guard.close_listeners(kinds)
        for kind, descriptor in self._listeners:
            if kind in kinds:
                _socket.close(descriptor)
        self._listeners = [listener for listener in self._listeners if listener[0] not in kinds]

    def flows(self) -> list[Flow]:
        return [] if self._log is None else self._log.flows()

    def _keep(self, flow: Flow) -> None:
        if self._log is None:
            from mudroom.core.network.flow_log import FlowLog

            self._log = FlowLog()
        self._log.add(flow)

    def _hear(self, guard: GuardHandle) -> None:
        from mudroom.core.network.flow import Flow
        from mudroom.core.network.fork_host import ForkDial

        for message in guard.receive():
            if isinstance(message, Flow):
                self._keep(message)
            elif isinstance(message, ForkDial):
                self._dial(guard, message)
            else:
                self._ask(guard, message)

    def _dial(self, guard: GuardHandle, request: ForkDial) -> None:
        from mudroom.core.network.fork_host import is_fork_host

        if self._make_holds is not None and not self._all_hosts and not is_fork_host(request.host):
            if self._holds is None:
                self._holds = self._make_holds()
            self._holds.begin(guard, request)
            return
        if self._desk is None:
            from mudroom.session.confinement.dial_desk import DialDesk

            self._desk = DialDesk(self._make_dialler)
        self._desk.dial(guard, request)

    def _ask(self, guard: GuardHandle, question: FlowQuestion) -> None:
        from mudroom.session.confinement.host_questions import HostQuestions

        if self._questions is None:
            gate = self._gate
            self._questions = HostQuestions(
                lambda: gate.approver, gate.remember, self._screen, self._update, self.notes.append
            )
        # OpenSSH reads the gate's host key when its command starts, and only for hosts that are held then.
        knows_gate = question.port != _SSH and self._inspection is not None
        hold: Hold = "now" if question.way == "http" or knows_gate else "later"
        hold = hold if self._make_holds is not None and can_inspect() else ""
        self._questions.ask(guard, question._replace(fork=self._fork(), hold=hold), self._running)

    def _update(self, guard: GuardHandle) -> list[HostRule]:
        """Send the guard the present rules and return them."""
        from mudroom.core.network.host_rules import show_rule

        asked = self._questions
        later = {show_rule(rule) for rule in asked.later} if asked is not None else set()
        current = [rule for rule in self._rules if not rule.hold or show_rule(rule) not in later]
        current += asked.rules if asked is not None else ()
        current = current if self._change is None else list(self._change(current))
        guard.update(current)
        return current

    def _without_network(self, why: str) -> None:
        """Close the listeners, so that new connections are refused."""
        self.notes.append(f"no network: {why}")
        if self._guard is not None:
            self._guard.update([])  # what has arrived is still judged: by no rule that may not hold any more
        self.close()

    def close(self) -> None:
        guard, self._guard = self._guard, None
        if self._questions is not None:
            self._questions.close()
        for desk in (self._desk, self._holds):
            if desk is not None:
                desk.close()
        if guard is not None:
            try:
                for flow in guard.shut(LAST_FLOWS):
                    self._keep(flow)
            except MudroomError as error:
                self.notes.append(f"the gate: {error}")
        while self._listeners:
            _socket.close(self._listeners.pop()[1])
        while self._namespaces:
            os.close(self._namespaces.pop())
        self._namespace_listener.close()
        self._running = None
        if self._refused is not None:
            self.notes += self._refused()
            self._refused = None


def can_inspect() -> bool:
    """Return whether this installation can hold a host's effects, such as pushes."""
    part = part_or_none("inspection", "session") if is_installed("effects") and sys.platform != "win32" else None
    return part is not None and not part.missing_libraries()
