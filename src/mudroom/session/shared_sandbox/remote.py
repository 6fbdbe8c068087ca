"""How one mudroom process has a command run in a sandbox that another one holds: both ends of a socket in the vault.

Rules of this file:
1. Nobody but the user can come here: the vault's directory is the user's alone, and hidden from every command; the
   kernel says who connects (SO_PEERCRED, unix(7)), and whoever can gain no privileges any more (no_new_privs) while we
   could is a sandboxed process that has found a way here, and is shown the door.
2. A visitor gets no descriptor of the sandbox and no namespace. It hands in a command, which the sandbox's own init
   starts (``sandbox/launcher/holder.py``), so it cannot ask for less confinement than there is; and if it asks for
   more, or for
   other things (``terms``), it is refused.
3. A visitor that goes away takes its command with it.

The messages are those of ``sandbox/launcher/wire.py``. ``command`` and ``signal`` are as at the door of the sandbox,
with ``terms`` beside; the others carry a pipe on which ``("done", value)`` or ``("failed", message, hint)`` is
answered.
"""

from __future__ import annotations

import _socket
import marshal
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mudroom.core.background import BackgroundStart
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.capture import GRACE, SIGKILL
from mudroom.sandbox.client.connection import Connection, with_report
from mudroom.sandbox.client.held import ENDING, JoinedCommand, join
from mudroom.sandbox.launcher.wire import receive, tell
from mudroom.session.confinement.gateway import short_path
from mudroom.vault.forks.background import Book
from mudroom.vault.forks.collection import CollectedCommand
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.core.confinement.fallback import Mode
    from mudroom.core.network.flow import Flow
    from mudroom.session.shared_sandbox.tender import SharedSandbox

_SOCK_STREAM = _socket.SOCK_STREAM
WELCOME = b"w"
PATIENCE = 10.0
"""Seconds that a visitor has to finish a sentence."""


OTHER_TERMS = (
    "the commands in the background of this fork were started under other settings (network, limits, what is shown, "
    "level, credentials): no command can join them under these"
)


class Visitor:
    def __init__(self, connection: _socket.socket) -> None:
        self.connection = connection
        self.commands: dict[int, int] = {}
        """The visitor's number of a command → the sandbox's."""


class Visitors:
    """The end of the process that holds the sandbox. All of it in the tender's thread."""

    def __init__(self, shared: SharedSandbox) -> None:
        self._shared = shared
        self._visitors: dict[int, Visitor] = {}
        self._socket = _socket.socket(_socket.AF_UNIX, _SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            os.makedirs(shared.book.path, mode=0o700, exist_ok=True)
            with short_path(shared.book.socket) as path:
                try:
                    os.unlink(path)  # of a process that was killed
                except FileNotFoundError:
                    pass
                self._socket.bind(path)
            self._socket.listen()
        except OSError as error:
            self._socket.close()
            raise MudroomError(f"no other mudroom can join the commands of this fork: {error.strerror}") from error

    @property
    def are_there(self) -> bool:
        return bool(self._visitors)

    def descriptors(self) -> list[int]:
        return [self._socket.fileno(), *self._visitors]

    def attend(self, descriptor: int) -> None:
        """Whatever goes wrong with a visitor is the end of that visitor's visit, and of nothing else."""
        if descriptor == self._socket.fileno():
            self._admit()
            return
        visitor = self._visitors[descriptor]
        try:
            request, descriptors = receive(visitor.connection)
        except (OSError, ValueError, EOFError, TypeError):
            request, descriptors = None, []
        if request is None:
            self._leave(descriptor)
            return
        try:
            self._serve(visitor, request, descriptors)
        except (LookupError, TypeError, ValueError, AttributeError):  # it does not speak as we do
            self._leave(descriptor)
        except (MudroomError, OSError):  # it has gone away, or the sandbox has
            self._leave(descriptor)
        finally:
            for one in descriptors:
                os.close(one)

    def _admit(self) -> None:
        listening: Any = self._socket  # of a type whose stub lacks what it is made of
        try:
            accepted, _address = listening._accept()
        except OSError:
            return  # it did not wait, or there is no descriptor for it
        connection = _socket.socket(fileno=accepted)
        try:
            connection.settimeout(PATIENCE)
            pid, uid, _gid = _credentials(connection)
            is_welcome = uid == os.geteuid() and (not _is_confined(pid) or _is_confined(os.getpid()))
            if is_welcome:
                connection.sendall(WELCOME)
        except OSError:
            is_welcome = False  # it has hung up
        if not is_welcome:
            connection.close()
            return
        self._visitors[accepted] = Visitor(connection)

    def _serve(self, visitor: Visitor, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        operation = request["op"]
        if operation == "command":
            self._command(visitor, request, descriptors)
        elif operation == "signal":
            if request["id"] in visitor.commands:
                identity = visitor.commands[request["id"]]
                self._shared.held.door.send({"op": "signal", "id": identity, "signal": request["signal"]}, ())
        else:
            self._answer(operation, request, descriptors)

    def _command(self, visitor: Visitor, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        if not self._are_ours(request["terms"]):
            tell(descriptors[-1], ("failed", -1, "refused", 0, OTHER_TERMS))
            return
        identity = visitor.commands[request["id"]] = self._shared.held.new_id()
        self._shared.held.door.send({**request, "id": identity}, descriptors)

    def _are_ours(self, terms: str) -> bool:
        try:
            return terms == self._shared.basis.terms()
        except MudroomError:
            return False  # the rules cannot be read just now

    def _answer(self, operation: str, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        answers: dict[str, Any] = {
            "collect": self._collect,
            "end": self._end,
            "start": self._start,
            "checkpoint": self._checkpoint,
        }
        try:
            record: tuple[Any, ...] = ("done", answers[operation](request))
        except (MudroomError, OSError) as error:
            record = ("failed", getattr(error, "message", str(error)), getattr(error, "hint", ""))
        try:
            tell(descriptors[-1], record)
        except BrokenPipeError:
            pass  # it has given up

    def _collect(self, request: Mapping[str, Any]) -> None:
        command = request["command"]
        self._shared.collect(None if command is None else CollectedCommand(*command))

    def _end(self, request: Mapping[str, Any]) -> None:
        self._shared.end(request["ids"], request["grace"])

    def _start(self, request: Mapping[str, Any]) -> str:
        if not self._are_ours(request["terms"]):
            raise UsageError(OTHER_TERMS, ENDING)
        started = BackgroundStart(*request["started"])._replace(keeper=os.getpid())
        self._shared.start(started, request["environment"], request["terms"])
        return started.id

    def _checkpoint(self, request: Mapping[str, Any]) -> str:
        if request["terms"] is not None and not self._are_ours(request["terms"]):
            raise UsageError(OTHER_TERMS, ENDING)
        return self._shared.checkpoint(request["name"], request["time"], keep=request["keep"])

    def _leave(self, descriptor: int) -> None:
        visitor = self._visitors.pop(descriptor)
        try:
            for identity in visitor.commands.values():  # those that are over are not known any more
                self._shared.held.door.send({"op": "signal", "id": identity, "signal": SIGKILL}, ())
        except MudroomError:
            pass  # the sandbox is gone, and they with it
        finally:
            visitor.connection.close()

    def close(self) -> None:
        while self._visitors:
            self._visitors.popitem()[1].connection.close()
        self._socket.close()


def _credentials(connection: _socket.socket) -> tuple[int, int, int]:
    """Pid, user and group of the other end: struct ucred."""
    raw = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    pid, uid, gid = (int.from_bytes(raw[at : at + 4], "little", signed=True) for at in (0, 4, 8))
    return pid, uid, gid


def _is_confined(pid: int) -> bool:
    """Whether a process can gain no privileges any more. One that is gone: yes."""
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            return b"\nNoNewPrivs:\t1\n" in stream.read()
    except OSError:
        return True


class RemoteSandbox:
    """The end of the process that wants something. To be closed."""

    is_elsewhere = True

    def __init__(self, connection: Connection, fork: Fork, common: Mapping[str, Any]) -> None:
        self.fork = fork
        self._connection = connection
        self.mode: Mode = common["mode"]
        self.port: int = common["port"]
        self.masked = frozenset(os.fsencode(path) for path in common["masked"])
        self.environment = {os.fsencode(name): os.fsencode(word) for name, word in common["environment"]}

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> RemoteSandbox:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def require_terms(self, terms: str) -> None:
        """The process that holds the sandbox compares them itself, with each request."""

    def flows(self) -> list[Flow]:
        """Of another process's gate, nothing is known here."""
        return []

    def join(
        self,
        argv: Sequence[bytes],
        environment: Mapping[bytes, bytes],
        cwd: bytes,
        stdio: tuple[int, int, int],
        terminal: Sequence[int],
        terms: str,
    ) -> JoinedCommand:
        """Start a command, which is refused if its terms are others."""
        return join(self._connection, 1, argv, environment, cwd, stdio, terminal, terms=terms)

    def collect(self, command: CollectedCommand | None) -> None:
        plain = None if command is None else (tuple(command.argv), *command[1:])
        self._ask({"op": "collect", "command": plain})

    def end(self, identities: Sequence[str] | None, grace: float = GRACE) -> None:
        """Ask for the end; it has come when the rows in the vault say so."""
        self._ask({"op": "end", "ids": None if identities is None else list(identities), "grace": grace})

    def start(self, started: BackgroundStart, environment: Mapping[bytes, bytes], terms: str) -> None:
        request = {"op": "start", "started": tuple(started), "environment": dict(environment), "terms": terms}
        self._ask(request)

    def checkpoint(self, name: str, time: int, *, keep: int | None = None, terms: str | None = None) -> str:
        """``terms``: of the command that it is made for, which is refused under others; None: it is for none."""
        request = {"op": "checkpoint", "name": name, "time": time, "keep": keep, "terms": terms}
        made: str = self._ask(request)
        return made

    def _ask(self, request: Mapping[str, Any]) -> Any:
        answer = with_report(self._connection, request, ())
        try:
            data = os.read(answer, 65536)
        finally:
            os.close(answer)
        if not data:
            raise MudroomError("the process that holds the commands of this fork has ended", "try again")
        record = marshal.loads(data)
        if record[0] == "failed":
            raise UsageError(record[1], record[2])
        return record[1]


def connect(fork: Fork) -> RemoteSandbox | None:
    """Whoever holds the commands in a fork's background; None if nobody does."""
    book = Book(fork)
    common = book.common()
    if common is None:
        return None
    asking = _socket.socket(_socket.AF_UNIX, _SOCK_STREAM)
    try:
        with short_path(book.socket) as path:
            asking.connect(path)
        welcome = asking.recv(1)  # who has not said this may be about to end
    except OSError:
        welcome = b""
    if welcome != WELCOME:
        asking.close()
        return None
    return RemoteSandbox(Connection(asking), fork, common)
