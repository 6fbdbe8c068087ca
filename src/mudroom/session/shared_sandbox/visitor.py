"""The holder's end of a shared sandbox's socket (``remote.py`` is the other end).

Rules in this file:
1. Only the user can connect: the vault's directory belongs to the user alone, and is hidden from every command. The
   kernel says which process connects (SO_PEERCRED, unix(7)). A process that can gain no more privileges (no_new_privs),
   while this process could, is a sandboxed process that has found a way here: it is refused.
2. A visitor gets neither a descriptor of the sandbox nor a namespace. It hands in a command, which the sandbox's own
   init starts (``src/native/launcher/init.c``), so it cannot request less confinement than there is. If it requests
   more, or other settings (``terms``), it is refused.
3. When a visitor disconnects, its commands are killed.

Messages use ``sandbox/client/wire.py``. ``command`` and ``signal`` are as at the sandbox's door, with ``terms``
added. The others carry a pipe for the answer, ``("done", value)`` or ``("failed", message, hint)``.
"""

from __future__ import annotations

import _socket
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mudroom.core.background import BackgroundStart
from mudroom.core.tree.entry import HELD_HINT, FileHeld
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.capture import SIGKILL
from mudroom.sandbox.client.held import ENDING, HeldSandbox
from mudroom.sandbox.client.wire import receive, tell
from mudroom.stage import disk
from mudroom.typing import Any, Protocol
from mudroom.vault.forks.background import Book
from mudroom.vault.forks.collection import CollectedCommand
from mudroom.vault.socket_path import short_path

WELCOME = b"w"
PATIENCE = 10.0
"""Seconds in which a visitor has to finish a message."""
OTHER_TERMS = (
    "the commands in the background of this fork were started under other settings (network, limits, what is shown, "
    "variables, level, credentials): no command can join them under these"
)


class VisitedSandbox(Protocol):
    """The part of a shared sandbox (``tender.py``) that visitors use."""

    book: Book
    held: HeldSandbox

    def admits(self) -> bool: ...

    def require_terms(self, terms: str) -> None: ...

    def collect(self, command: CollectedCommand | None) -> None: ...

    def end(self, identities: Sequence[str] | None, grace: float) -> None: ...

    def start(self, started: BackgroundStart, environment: Mapping[bytes, bytes], terms: str, /) -> None: ...

    def checkpoint(self, name: str, time: int, *, keep: int | None) -> str: ...


class Visitor:
    def __init__(self, connection: _socket.socket) -> None:
        self.connection = connection
        self.commands: dict[int, int] = {}
        """The visitor's number for each command → the sandbox's number."""


class Visitors:
    """A shared sandbox's visitors. Used only by the tender's thread."""

    def __init__(self, shared: VisitedSandbox) -> None:
        self._shared = shared
        self._visitors: dict[int, Visitor] = {}
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            os.makedirs(shared.book.path, mode=0o700, exist_ok=True)
            with short_path(shared.book.socket) as path:
                with suppress(FileNotFoundError):
                    os.unlink(path)  # left by a process that was killed
                self._socket.bind(path)
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise

    @property
    def are_there(self) -> bool:
        return bool(self._visitors)

    def descriptors(self) -> list[int]:
        return [self._socket.fileno(), *self._visitors]

    def attend(self, descriptor: int) -> None:
        """Serve a ready descriptor. An error disconnects this visitor only."""
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
        except (LookupError, TypeError, ValueError, AttributeError):  # a malformed request
            self._leave(descriptor)
        except (MudroomError, OSError):  # the visitor or the sandbox is gone
            self._leave(descriptor)
        finally:
            for passed in descriptors:
                os.close(passed)

    def _admit(self) -> None:
        listening: Any = self._socket  # the type stub lacks ``_accept``
        try:
            accepted, _address = listening._accept()
        except OSError:
            return  # the visitor has gone, or no descriptor is free
        connection = _socket.socket(fileno=accepted)
        try:
            connection.settimeout(PATIENCE)
            pid, uid, _gid = _credentials(connection)
            # a confined peer may be a command that has found its way out of the sandbox's view (rule 1)
            is_welcome = uid == disk.user() and (not _is_confined(pid) or _is_confined(os.getpid()))
            is_welcome = is_welcome and self._shared.admits()
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
            self._shared.require_terms(terms)
        except MudroomError:
            return False  # other terms, or the policy cannot be read at the moment
        return True

    def _answer(self, operation: str, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        answers: dict[str, Any] = {
            "collect": self._collect,
            "end": self._end,
            "start": self._start,
            "checkpoint": self._checkpoint,
            "terms": self._require_terms,
        }
        try:
            record: tuple[Any, ...] = ("done", answers[operation](request))
        except (MudroomError, OSError) as error:
            record = ("failed", *_told(error))
        with suppress(BrokenPipeError):  # the visitor has gone
            tell(descriptors[-1], record)

    def _collect(self, request: Mapping[str, Any]) -> None:
        command = request["command"]
        self._shared.collect(None if command is None else CollectedCommand(*command))

    def _end(self, request: Mapping[str, Any]) -> None:
        self._shared.end(request["ids"], request["grace"])

    def _require_terms(self, request: Mapping[str, Any]) -> None:
        if request["terms"] is not None and not self._are_ours(request["terms"]):
            raise UsageError(OTHER_TERMS, ENDING)

    def _start(self, request: Mapping[str, Any]) -> str:
        self._require_terms(request)
        started = BackgroundStart(*request["started"])._replace(keeper=os.getpid())
        self._shared.start(started, request["environment"], request["terms"])
        return started.id

    def _checkpoint(self, request: Mapping[str, Any]) -> str:
        self._require_terms(request)
        return self._shared.checkpoint(request["name"], request["time"], keep=request["keep"])

    def _leave(self, descriptor: int) -> None:
        visitor = self._visitors.pop(descriptor)
        try:
            for identity in visitor.commands.values():  # the sandbox ignores the numbers of ended commands
                self._shared.held.door.send({"op": "signal", "id": identity, "signal": SIGKILL}, ())
        except MudroomError:
            pass  # the sandbox is gone, and its commands with it
        finally:
            visitor.connection.close()

    def close(self) -> None:
        while self._visitors:
            self._visitors.popitem()[1].connection.close()
        self._socket.close()


def _credentials(connection: _socket.socket) -> tuple[int, int, int]:
    """Return the peer's pid, user and group (struct ucred)."""
    raw = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    pid, uid, gid = (int.from_bytes(raw[at : at + 4], "little", signed=True) for at in (0, 4, 8))
    return pid, uid, gid


def _is_confined(pid: int) -> bool:
    """Return whether a process can gain no more privileges (no_new_privs); True if it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            return b"\nNoNewPrivs:\t1\n" in stream.read()
    except OSError:
        return True


def _told(error: MudroomError | OSError) -> tuple[str, str]:
    """Return an error's message and hint, for another process's user."""
    if isinstance(error, MudroomError):
        return error.message, error.hint
    path = f"{show(os.fsencode(error.filename))}: " if isinstance(error.filename, (str, bytes)) else ""
    return f"{path}{error.strerror or error}", HELD_HINT if isinstance(error, FileHeld) else ""
