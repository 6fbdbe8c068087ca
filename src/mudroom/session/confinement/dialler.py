"""Connections of a command to servers in other forks: types that the gate's host asks for them by."""

from __future__ import annotations

from mudroom.errors import MudroomError
from mudroom.typing import NamedTuple, Protocol


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
    """Connections of a command to servers in other forks (``fork_dial.py``)."""

    all_hosts: bool
    """Whether it makes every connection that the rules allow: the gate looks no name up and vets no address, since the
    far end does both."""

    def begin(self, host: str, port: int, path: str) -> PendingConnection:
        """Return a connection that is being made. ``path``: of a plain HTTP request. Raise ForkRefused if a fork does
        not consent, MudroomError with the reason if there can be no connection."""

    def close(self) -> None:
        """Release what connections need that have been made."""
