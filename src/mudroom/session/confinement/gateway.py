"""The gate's part in one command: its listeners are watched, and the gate is started when something first connects.

Rules of this file:
1. A command that uses no network costs nothing but its listeners: no gate is started for it.
2. Whatever goes wrong here leaves the command without a network, never with another one: its namespace has none.
3. Who is asked is asked once for the same host and port in one command, whatever the answer.
4. Whoever answers on the user's terminal is waited for, with the command's output held back. Whoever answers elsewhere
   (``Elsewhere``) is not: the command goes on, as its time does, and stands aside for the user's commands as ever.
5. Where nobody would hear a question, the connection is refused at once, and a later one asked about if somebody has
   come meanwhile.
"""

from __future__ import annotations

import _socket
import _thread
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.client import Running

if TYPE_CHECKING:
    from mudroom.core.network.flow import Flow, FlowAnswer, FlowQuestion
    from mudroom.core.network.host_rules import HostRule
    from mudroom.core.network.inspection import Inspection
    from mudroom.core.network.placeholder import CredentialRule
    from mudroom.net.door import Door, Gate, Kind

    Approver = Callable[[FlowQuestion, int], FlowAnswer]
    """The descriptor is readable as soon as nobody waits for the answer any more, because the command has ended."""

_SOCK_SEQPACKET = _socket.SOCK_SEQPACKET
_LISTENERS: dict[str, Kind] = {
    "proxy": "proxy",
    "transparent": "transparent",
    "redirected": "redirected",
    "dns-udp": "dns-udp",
    "dns-tcp": "dns-tcp",
}
"""What the launcher's step calls them, and what the gate does. The others are the namespaces."""
_QUEUE = 4096
"""Connections that may wait to be accepted (listen(2)): while the queue is full a connect of the command's waits."""
LAST_FLOWS = 5.0
"""Seconds that the gate has, after a command, to say what there is still to be said."""


class Waiting(Protocol):
    """A question that is answered elsewhere. None of this raises, or makes anybody wait."""

    def fileno(self) -> int:
        """Readable when there may be an answer; -1: ``look`` now and then."""

    def look(self) -> FlowAnswer | None:
        """None: not yet. Its own time runs out."""

    def close(self) -> None:
        """Nobody waits for the answer any more."""


class Elsewhere(Protocol):
    """An approver for whom nobody has to wait: what is asked that has ``begin`` is asked by that."""

    def __call__(self, question: FlowQuestion, over: int) -> FlowAnswer: ...
    def begin(self, question: FlowQuestion) -> Waiting: ...


Hush = Callable[[], AbstractContextManager[None]]
"""Keeps the command's output off the terminal while somebody is asked there."""


def _new_gate(upstream: str) -> Gate:
    from mudroom.net.door import Gate

    return Gate(upstream=upstream)


def upstream_of(environ: Mapping[bytes, bytes]) -> str:
    """The proxy by which alone this machine reaches the internet, if its user has named one that the gate can use;
    empty: none."""
    for name in (b"https_proxy", b"HTTPS_PROXY", b"http_proxy"):
        value = environ.get(name, b"")
        if value.startswith(b"http://"):
            return value.decode("utf-8", "surrogateescape")
    return ""


class Shared:
    """The one gate of this process, for each proxy that it goes by; ended with the last session that used it."""

    def __init__(self, make: Callable[[str], Gate] = _new_gate) -> None:
        self._make = make
        self._lock = _thread.allocate_lock()
        self._gates: dict[str, Gate] = {}
        self._users: dict[str, int] = {}

    def acquire(self, upstream: str) -> Gate:
        """Raises UsageError if there is no such proxy to be used."""
        with self._lock:
            if upstream not in self._gates:
                try:
                    self._gates[upstream] = self._make(upstream)
                except ValueError as error:
                    raise UsageError(f"the proxy of this machine: {error}", "see https_proxy") from error
            self._users[upstream] = self._users.get(upstream, 0) + 1
            return self._gates[upstream]

    def release(self, upstream: str) -> None:
        with self._lock:
            self._users[upstream] -= 1
            if not self._users[upstream]:
                self._gates.pop(upstream).close()


SHARED = Shared()


class Gateway:
    """The gate of a session: rules, somebody to ask, and the gate itself once it is needed. ``_lock`` guards that."""

    def __init__(
        self,
        rules: Callable[[], Sequence[HostRule]],
        remember: Callable[[HostRule], None],
        approver: Approver | None,
        upstream: str = "",
    ) -> None:
        """``rules`` gives the very same object as long as they have not changed."""
        self.rules, self.remember, self.approver = rules, remember, approver
        self._upstream = upstream
        self._lock = _thread.allocate_lock()
        self._gate: Gate | None = None

    @property
    def gate(self) -> Gate:
        with self._lock:
            if self._gate is None:
                self._gate = SHARED.acquire(self._upstream)
            return self._gate

    def close(self) -> None:
        if self._gate is not None:
            self._gate = None
            SHARED.release(self._upstream)

    def keeper(
        self,
        entrance: bytes,
        hush: Hush = nullcontext,
        inspection: Inspection | None = None,
        fork: Callable[[], str] = str,
    ) -> Doorkeeper:
        """For one command, as a context: to be entered before it starts. ``entrance``: where a socket is put for those
        who want to reach what listens inside. ``inspection``: what rules that inspect need. ``fork``: whose command it
        is, as those who are asked are told."""
        return Doorkeeper(self, hush, Entrance(entrance), inspection, fork)


class Entrance:
    """A socket in the vault where a process of the same user gets the namespaces of a running command, to connect to
    what listens in there. The vault's directory is nobody else's to enter, and hidden from every command.

    Owner: the thread that attends to the command.
    """

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._socket: _socket.socket | None = None
        self._visitors: list[_socket.socket] = []
        """Each is told by the end of it that the command has ended."""

    def descriptors(self) -> list[int]:
        return [] if self._socket is None else [self._socket.fileno()]

    def open(self) -> None:
        """Raises OSError, and is closed then."""
        made = _socket.socket(_socket.AF_UNIX, _SOCK_SEQPACKET)
        try:
            made.setblocking(False)
            with short_path(self._path) as path:
                try:
                    os.unlink(path)  # of a command that was killed with its host process
                except FileNotFoundError:
                    pass
                made.bind(path)
            made.listen()
        except OSError:
            made.close()
            raise
        self._socket = made

    def admit(self, namespaces: Sequence[int]) -> None:
        assert self._socket is not None
        try:
            listening: Any = self._socket  # of a type whose stub lacks what it is made of
            accepted, _address = listening._accept()
        except BlockingIOError:
            return  # it did not wait
        peer = _socket.socket(fileno=accepted)
        rights = b"".join(descriptor.to_bytes(4, "little") for descriptor in namespaces)
        try:
            peer.sendmsg([b"namespaces"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
            self._visitors.append(peer)
        except OSError:
            peer.close()  # nor did this one

    def close(self) -> None:
        while self._visitors:
            self._visitors.pop().close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with short_path(self._path) as path:
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    pass


@contextmanager
def short_path(path: bytes) -> Iterator[bytes]:
    """The same place by a path that fits: the name of a unix socket has 108 bytes (unix(7))."""
    above, _slash, name = path.rpartition(b"/")
    directory = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield b"/proc/self/fd/%d/%s" % (directory, name)
    finally:
        os.close(directory)


def namespaces_at(path: bytes) -> tuple[int, list[int]]:
    """A descriptor that is at its end when the command whose entrance this is has ended, and its user and network
    namespace; the caller closes all. Raises OSError if no command is there."""
    asking = _socket.socket(_socket.AF_UNIX, _SOCK_SEQPACKET)
    try:
        with short_path(path) as short:
            asking.connect(short)
        _data, ancillary, _flags, _address = asking.recvmsg(64, _socket.CMSG_SPACE(8), _socket.MSG_CMSG_CLOEXEC)
        rights = b"".join(data for _level, _kind, data in ancillary)
        if len(rights) != 8:
            raise ConnectionResetError("the command has just ended")
        return asking.detach(), [int.from_bytes(rights[:4], "little"), int.from_bytes(rights[4:], "little")]
    finally:
        asking.close()


def show_inside(namespaces: Sequence[int], gone: int, inside: int, outside: int, opened: Callable[[int], None]) -> None:
    """Serve the port ``inside`` of a command (``namespaces_at``) on the host's loopback until it ends: on the port
    ``outside``, or any free one if that is 0; ``opened`` is told which. Raises MudroomError if that is taken."""
    from mudroom.net.entrances.ingress import Ingress, SocketMaker

    maker = SocketMaker(namespaces)
    try:
        Ingress(maker, inside, outside).run(gone, opened)
    finally:
        maker.close()


class Doorkeeper:
    """Beside one command (``sandbox/client/capture.py``), and used by the one thread that attends to it."""

    def __init__(
        self,
        gateway: Gateway,
        hush: Hush,
        entrance: Entrance,
        inspection: Inspection | None,
        fork: Callable[[], str] = str,
    ) -> None:
        self._gateway, self._hush, self._inspection, self._fork = gateway, hush, inspection, fork
        self._running: Running | None = None
        self._listeners: list[tuple[Kind, int]] = []
        self._namespaces: list[int] = []
        """The command's user and network namespaces, in this order."""
        self._entrance = entrance
        self._door: Door | None = None
        self.flows: list[Flow] = []
        self.notes: list[str] = []
        self._rules: Sequence[HostRule] = ()
        self._answered: list[HostRule] = []
        """Rules that hold for this command, because somebody was asked."""
        self._waiting: list[tuple[FlowQuestion, Waiting]] = []

    @property
    def is_inside(self) -> bool:
        """Whether the listeners are made in the command's network namespace."""
        return not self._listeners

    def __enter__(self) -> Doorkeeper:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def listen(self) -> int:
        """Where the command has no network namespace: a listener on the host's loopback. Returns its port. Others of
        this machine can connect there, too: they get what the command gets, which is less than they have."""
        made = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        made.bind(("127.0.0.1", 0))
        made.listen(_QUEUE)
        port: int = made.getsockname()[1]
        self._listeners.append(("proxy", made.detach()))
        return port

    def began(self, running: Running) -> None:
        self._running = running

    def descriptors(self) -> Collection[int]:
        if self._door is not None:
            bells = [bell for _question, one in self._waiting if (bell := one.fileno()) >= 0]
            return [self._door.fileno(), *self._entrance.descriptors(), *bells]
        if self._listeners:
            return [*self._entrance.descriptors(), *(descriptor for _kind, descriptor in self._listeners)]
        waiting = self._running.gate if self._running is not None else None
        return [] if waiting is None else [waiting.fileno()]

    def attend(self, ready: Collection[int]) -> float:
        began = time.monotonic()
        try:
            if any(descriptor in ready for descriptor in self._entrance.descriptors()):
                self._entrance.admit(self._namespaces)
            elif self._door is not None and self._door.fileno() in ready:
                self._hear(self._door)
            elif self._door is not None:
                self._look_elsewhere(self._door)
            elif self._listeners:
                self._open()
            elif self._running is not None:
                self._take(self._running)
        except MudroomError as error:
            self._without_network(str(error))
        return time.monotonic() - began

    def _take(self, running: Running) -> None:
        for kind, descriptor in running.listeners():
            if kind in _LISTENERS:
                self._listeners.append((_LISTENERS[kind], descriptor))
            else:
                self._namespaces.append(descriptor)
        if self._listeners:
            try:
                self._entrance.open()
            except OSError as error:  # the way in is a convenience; the way out does not depend on it
                self.notes.append(f"mudroom net open cannot reach this command: {error.strerror}")

    def _open(self) -> None:
        from mudroom.net.door import Listener

        listeners = [Listener(kind, descriptor) for kind, descriptor in self._listeners]
        ask = self._gateway.approver is not None
        self._rules = self._gateway.rules()
        self._door = self._gateway.gate.open(self._rules, listeners, ask=ask, inspection=self._inspection)
        self._listeners = []  # the door's, from now on

    def look(self) -> None:
        """Now and then: rules that have changed since hold for what comes from here on. Rules that cannot be read are
        as good as none: what was allowed by them is not any more."""
        if self._door is None:
            return
        try:
            self._look_elsewhere(self._door)
            rules = self._gateway.rules()
        except MudroomError as error:
            self._without_network(str(error))
            return
        if rules is not self._rules:
            self._rules = rules
            self._door.update([*rules, *self._answered])

    def _hear(self, door: Door) -> None:
        from mudroom.core.network.flow import Flow

        for one in door.receive():
            if isinstance(one, Flow):
                self.flows.append(one)
            else:
                self._ask(door, one)

    def _ask(self, door: Door, question: FlowQuestion) -> None:
        approver, question = self._gateway.approver, question._replace(fork=self._fork())
        begin = getattr(approver, "begin", None)
        if begin is not None and self._running is not None and not self._running.has_report():
            self._waiting.append((question, begin(question)))
            self._look_elsewhere(door)  # it may have been answered already, or nobody may be there
            return
        with self._hush():
            answer = self._answer(approver, question)
        self._settle(door, question, answer)

    def _look_elsewhere(self, door: Door) -> None:
        for question, waiting in list(self._waiting):
            answer = waiting.look()
            if answer is not None:
                self._waiting.remove((question, waiting))
                waiting.close()
                self._settle(door, question, answer)

    def _settle(self, door: Door, question: FlowQuestion, answer: FlowAnswer) -> None:
        if not answer.lasting:
            door.refuse(question.identity, answer.why)
            return
        from mudroom.core.network.host_rules import HostRule

        rule = HostRule("allow" if answer.allowed else "deny", question.host, (question.port,), source="asked")
        self._answered.append(rule._replace(source=f"asked, {answer.why}") if answer.why else rule)
        door.answer(question.identity, answer.allowed, self._answered[-1])
        if answer.keep:
            try:
                self._gateway.remember(rule)
            except MudroomError as error:  # it holds for this command all the same
                self.notes.append(f"the answer about {question.host} could not be kept: {error}")

    def _answer(self, approver: Approver | None, question: FlowQuestion) -> FlowAnswer:
        from mudroom.core.network.flow import FlowAnswer

        running = self._running
        if approver is None or running is None or running.has_report():
            return FlowAnswer(False)
        return approver(question, running.fileno())

    def _without_network(self, why: str) -> None:
        """Close the listeners: what connects is refused from here on."""
        self.notes.append(f"no network: {why}")
        self.close()

    def close(self) -> None:
        door, self._door = self._door, None
        while self._waiting:
            self._waiting.pop()[1].close()
        if door is not None:
            try:
                self.flows += door.shut(LAST_FLOWS)
            except MudroomError as error:
                self.notes.append(f"the gate: {error}")
        while self._listeners:
            os.close(self._listeners.pop()[1])
        while self._namespaces:
            os.close(self._namespaces.pop())
        self._entrance.close()
        self._running = None


def missing_credential(wanted: CredentialRule, environ: Mapping[bytes, bytes], home: bytes) -> str:
    """Why a credential cannot be read now, with what to do about it; empty if it can. Its value is not kept."""
    from mudroom.net.inspection.credential_value import read_credentials

    try:
        read_credentials((wanted,), environ, home)
    except MudroomError as error:
        return str(error)
    return ""
