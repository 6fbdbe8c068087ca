"""Connections of a command to servers in other forks, as the policy links them.

The gate asks for each connection (``ForkDial``). The link is checked again here, because the gate process has read
untrusted data. The socket is made in the network namespace of the other fork's command, whose host process hands out
the namespaces (``Entrance``).
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Sequence

from mudroom.core.network.fork_host import ENDPOINT_PORT, AgentLink, fork_of, link_rules
from mudroom.core.network.host_rules import HostRule
from mudroom.errors import MudroomError
from mudroom.session.confinement.entrance import namespaces_at
from mudroom.session.confinement.namespace_program import start
from mudroom.vault.forks.endpoint import endpoint_of
from mudroom.vault.store.store import Vault

PATIENCE = 1.0
"""Seconds in which the host process of the other fork's command hands out its namespaces."""


class ForkDialler:
    """Thread-safe: it has no state."""

    def __init__(self, vault: Vault, links: Sequence[AgentLink]) -> None:
        """``links``: those that lead from the command's fork."""
        self._vault = vault
        self._ports = {(link.target, link.port or ENDPOINT_PORT): link.port for link in links}
        self.rules: tuple[HostRule, ...] = tuple(link_rules(links))

    def begin(self, host: str, port: int) -> ForkConnection:
        """Return a connection that is being made. Raise MudroomError with the reason if there can be none."""
        name = fork_of(host)
        if (name, port) not in self._ports:
            raise MudroomError(f"no link leads to {name}:{port}")
        fork = self._vault.find(name)
        if fork is None:
            raise MudroomError(f"there is no fork named {name}")
        inner = self._ports[name, port]
        if inner is None:
            endpoint = endpoint_of(fork)
            if endpoint is None:
                raise MudroomError(f"no agent in the fork {name} has registered an endpoint")
            inner = endpoint.port
        try:
            gone, namespaces = namespaces_at(fork.entrance, PATIENCE)
        except OSError:
            raise MudroomError(f"no command is running in the fork {name}") from None
        try:
            return ForkConnection(f"{name}:{inner}", *start("late_socket", [str(inner)], namespaces))
        except OSError as error:
            raise MudroomError(f"{name}:{inner}: {os.strerror(error.errno or errno.EIO).lower()}") from error
        finally:
            for descriptor in (gone, *namespaces):
                os.close(descriptor)


class ForkConnection:
    """A connection that a process in the other fork's namespace is making. A server that does not accept can delay it,
    so it is not waited for: other work of the command goes on."""

    def __init__(self, place: str, pid: int, channel: socket.socket) -> None:
        self._place, self._pid, self._channel = place, pid, channel
        channel.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is a result."""
        return self._channel.fileno()

    def result(self) -> int:
        """Return the connected socket, which the caller closes. Raise MudroomError with the reason if there is none."""
        try:
            reply, descriptors, _flags, _address = socket.recv_fds(self._channel, 16, 1)
        except OSError:
            reply, descriptors = b"", []
        if descriptors:
            return descriptors[0]
        number = int(reply) if reply.isdigit() else errno.ECONNRESET
        raise MudroomError(f"{self._place}: {os.strerror(number).lower()}")

    def close(self) -> None:
        """End the process if it has not ended."""
        self._channel.close()
        os.kill(self._pid, signal.SIGKILL)  # not waited for yet, so the number is still its own
        os.waitpid(self._pid, 0)
