"""The gate's requests to connect one command to other forks. Each is answered at once or when the connection is made.

Rule: no code here waits for a server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from mudroom.core.network.fork_host import ForkDial
from mudroom.errors import MudroomError
from mudroom.net.gate_handle import GuardHandle
from mudroom.session.confinement.dialler import Dialler, ForkRefused, PendingConnection

MOST_DIALS = 16
"""Maximum number of connections being made at a time (``net/gate/fork_dials.py``: further ones wait)."""
_APART = (
    "this command has no network namespace of its own, from which alone other forks are reached: it runs at level 0, "
    "or without namespaces (mudroom doctor)"
)


class DialDesk:
    """Owner: the thread that attends to the command."""

    def __init__(self, make: Callable[[], Dialler] | None) -> None:
        """``make``: returns the dialler, called at the first connection; None: no connection is possible."""
        self._make = make
        self._dialler: Dialler | None = None
        self._dials: list[tuple[int, PendingConnection]] = []
        """Connections being made, each with the number of the gate's request."""

    def descriptors(self) -> list[int]:
        return [connection.fileno() for _identity, connection in self._dials]

    def dial(self, guard: GuardHandle, request: ForkDial) -> None:
        try:
            if self._make is None:
                raise ForkRefused(_APART)
            if len(self._dials) >= MOST_DIALS:
                raise MudroomError(f"{MOST_DIALS} connections to other forks are being made")
            if self._dialler is None:
                self._dialler = self._make()
            connection = self._dialler.begin(request.host, request.port, request.path)
        except MudroomError as error:
            guard.dialled(request.identity, -1, error.message, is_refused=isinstance(error, ForkRefused))
            return
        if connection.fileno() < 0:
            _hand_over(guard, request.identity, connection)
        else:
            self._dials.append((request.identity, connection))

    def attend(self, guard: GuardHandle, ready: Collection[int]) -> None:
        """Report to the gate the connections that are made or have failed."""
        for dial in [dial for dial in self._dials if dial[1].fileno() in ready]:
            self._dials.remove(dial)
            _hand_over(guard, *dial)

    def close(self) -> None:
        while self._dials:
            self._dials.pop()[1].close()
        if self._dialler is not None:
            self._dialler.close()


def _hand_over(guard: GuardHandle, identity: int, connection: PendingConnection) -> None:
    try:
        made = connection.result()
    except MudroomError as error:
        guard.dialled(identity, -1, error.message, is_refused=isinstance(error, ForkRefused))
        return
    finally:
        connection.close()
    try:
        guard.dialled(identity, made.descriptor, rule=made.rule, http=made.http)
    finally:
        os.close(made.descriptor)
