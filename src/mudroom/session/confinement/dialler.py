"""The interface for a command's connections to servers in other forks."""

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
    """The rules with which both forks consent."""
    http: bool = False
    """Only plain HTTP/1 may be sent."""


class PendingConnection(Protocol):
    """A connection being made to a server in another fork."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is a result; -1: the result is there now."""

    def result(self) -> DialledFork:
        """Return the connection. Raise MudroomError with the reason if there is none."""

    def close(self) -> None:
        """Give up the connection if it is not made yet."""


class Dialler(Protocol):
    """Makes a command's connections to servers in other forks."""

    all_hosts: bool
    """Whether it makes every connection that the rules allow. The gate then neither looks up names nor vets addresses,
    since the far end does both."""

    def begin(self, host: str, port: int, path: str) -> PendingConnection:
        """Begin a connection. ``path``: a plain HTTP request's path. Raise ForkRefused if a fork does not consent,
        MudroomError with the reason if no connection is possible."""

    def close(self) -> None:
        """Release the resources of connections that have been made."""


class InnerSockets(Protocol):
    """Makes sockets in running commands' namespaces. Thread-safe."""

    def make(self, entrance: bytes, wanted: Hashable, identity: Callable[[], Hashable], family: bytes) -> socket.socket:
        """Return a non-blocking socket in the network namespace of the command behind an entrance. ``wanted``: the
        intended fork; ``identity``: returns which fork has that path now. Raise OSError if no command is running there,
        MudroomError if another fork has taken the path meanwhile."""

    def close(self) -> None: ...


class ForkLinks(Protocol):
    """Connects forks on this machine when both consent."""

    def inner_sockets(self) -> InnerSockets: ...

    def dialler(self, vault: Vault, fork: Fork, pool: InnerSockets, settings: Settings) -> Dialler:
        """Return the dialler that connects the fork's commands with other forks."""

    def dial_from_worker(
        self, vault: Vault, pool: InnerSockets, caller: ForkIdentity, host: str, port: int, settings: Settings
    ) -> PendingConnection:
        """Begin a connection to a fork on this machine for a command that runs on another machine. ``caller``: the
        identity of that command's fork, as this machine knows it. Raise ForkRefused or MudroomError as
        ``Dialler.begin`` does."""


def fork_links() -> ForkLinks:
    """Return the satellite's implementation. Raise NotInstalled if the satellite is absent."""
    links: ForkLinks = part("agents", "links", "a connection to another fork")
    return links
