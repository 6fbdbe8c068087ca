"""Connections of a command to servers in other forks: types that the gate's host asks for them by."""

from __future__ import annotations

from mudroom.core.registry import part
from mudroom.errors import MudroomError
from mudroom.typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Hashable

    from mudroom.core.network.fork_rule import ForkIdentity
    from mudroom.core.settings import Settings
    from mudroom.vault.store.fork import Fork
    from mudroom.vault.store.store import Vault


class ForkRefused(MudroomError):
    """A fork does not consent to a connection."""


class DialledFork(NamedTuple):
    """A connection to a server in another fork."""

    descriptor: int
    """The connected socket, which the caller closes."""
    rule: str
    """The rules by which both forks consent."""
    http: bool = False
    """Only plain HTTP/1 may be sent."""


class PendingConnection(Protocol):
    """A connection to a server in another fork that is being made."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is a result; -1: there is one now."""

    def result(self) -> DialledFork:
        """Return the connection. Raise MudroomError with the reason if there is none."""

    def close(self) -> None:
        """Give the connection up if it is not made."""


class Dialler(Protocol):
    """Connections of a command to servers in other forks."""

    all_hosts: bool
    """Whether it makes every connection that the rules allow: the gate looks no name up and vets no address, since the
    far end does both."""

    def begin(self, host: str, port: int, path: str) -> PendingConnection:
        """Return a connection that is being made. ``path``: of a plain HTTP request. Raise ForkRefused if a fork does
        not consent, MudroomError with the reason if there can be no connection."""

    def close(self) -> None:
        """Release what connections need that have been made."""


class InnerSockets(Protocol):
    """The makers of sockets in the namespaces of running commands. Thread-safe."""

    def make(self, entrance: bytes, wanted: Hashable, identity: Callable[[], Hashable], family: bytes) -> socket.socket:
        """Return a non-blocking socket in the network namespace of the command behind an entrance. ``wanted``: the fork
        that is meant; ``identity`` returns which fork has that path now. Raise OSError if no command is running there,
        MudroomError if another fork has taken the path meanwhile."""

    def close(self) -> None: ...


class ForkLinks(Protocol):
    """What connects forks of this machine, as both consent."""

    def inner_sockets(self) -> InnerSockets: ...

    def dialler(self, vault: Vault, fork: Fork, pool: InnerSockets, settings: Settings) -> Dialler:
        """Return what connects a command of the fork with other forks."""

    def dial_from_worker(
        self, vault: Vault, pool: InnerSockets, caller: ForkIdentity, host: str, port: int, settings: Settings
    ) -> PendingConnection:
        """Return a connection to a fork of this machine for a command that runs on another. ``caller``: of that
        command's fork, as this machine knows it. Raise ForkRefused or MudroomError, as ``Dialler.begin``."""


def fork_links() -> ForkLinks:
    """Return it. Raise NotInstalled if the satellite that has it is absent."""
    links: ForkLinks = part("agents", "links", "a connection to another fork")
    return links
