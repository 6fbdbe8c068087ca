"""A shared sandbox that another process holds: run a command in it through the socket in the vault.

``visitor.py`` is the other end, and describes the rules and the messages.
"""

from __future__ import annotations

import _socket
import marshal
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mudroom.core.background import BackgroundStart
from mudroom.core.system.closing import Closing, Descriptor
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.capture import GRACE
from mudroom.sandbox.client.connection import Connection, with_report
from mudroom.sandbox.client.held import ENDING, join
from mudroom.sandbox.client.invocation import Invocation
from mudroom.session.shared_sandbox.visitor import WELCOME
from mudroom.typing import TYPE_CHECKING, Any
from mudroom.vault.forks.background import Book
from mudroom.vault.forks.collection import CollectedCommand
from mudroom.vault.socket_path import short_path
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.core.confinement.fallback import Mode
    from mudroom.core.network.flow import Flow
    from mudroom.sandbox.client.client import Running


class RemoteSandbox(Closing):
    """A connection to the process that holds the sandbox. To be closed."""

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

    def require_terms(self, terms: str) -> None:
        """Raise UsageError if a command with these terms cannot run there. The holder compares each request again."""
        self._ask({"op": "terms", "terms": terms})

    def flows(self) -> list[Flow]:
        """Return no flows: another process's gate has them."""
        return []

    def join(self, invocation: Invocation, cwd: bytes, terms: str) -> Running:
        """Start a command. It is refused if its terms differ."""
        return join(self._connection, 1, invocation, cwd, terms=terms)

    def collect(self, command: CollectedCommand | None) -> None:
        plain = None if command is None else (tuple(command.argv), *command[1:])
        self._ask({"op": "collect", "command": plain})

    def end(self, identities: Sequence[str] | None, grace: float = GRACE) -> None:
        """Ask the holder to end background commands. Their rows in the vault say when they have ended."""
        self._ask({"op": "end", "ids": None if identities is None else list(identities), "grace": grace})

    def start(
        self,
        started: BackgroundStart,
        environment: Mapping[bytes, bytes],
        terms: str,
        pipes: tuple[int, int, int] | None = None,
    ) -> None:
        """Start a background command. Raise UsageError if ``pipes`` are given, because this process could not tell when
        the command has ended."""
        if pipes is not None:
            raise UsageError(f"another mudroom holds the commands of the fork {self.fork.name}", ENDING)
        request = {"op": "start", "started": tuple(started), "environment": dict(environment), "terms": terms}
        self._ask(request)

    def checkpoint(self, name: str, time: int, *, keep: int | None = None, terms: str | None = None) -> str:
        """Freeze the fork's files and return the checkpoint's name. ``terms``: the terms of the command that the
        checkpoint is made for, refused if they differ; None: no command."""
        request = {"op": "checkpoint", "name": name, "time": time, "keep": keep, "terms": terms}
        chosen: str = self._ask(request)
        return chosen

    def _ask(self, request: Mapping[str, Any]) -> Any:
        data = b""
        with suppress(MudroomError), Descriptor(with_report(self._connection, request, ())) as answer:
            data = os.read(answer, 65536)  # else the holder is gone
        if not data:
            raise MudroomError("the process that holds the commands of this fork has ended", "try again")
        record = marshal.loads(data)
        if record[0] == "failed":
            raise UsageError(record[1], record[2])
        return record[1]


def connect(fork: Fork) -> RemoteSandbox | None:
    """Return a connection to the process that holds a fork's shared sandbox, or None if no process does."""
    book = Book(fork)
    common = book.common()
    if common is None:
        return None
    asking = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        with short_path(book.socket) as path:
            asking.connect(path)
        welcome = asking.recv(1)  # without it, the sandbox may be about to end
    except OSError:
        welcome = b""
    if welcome != WELCOME:
        asking.close()
        return None
    return RemoteSandbox(Connection(asking), fork, common)
