"""Connections of a command to servers in other forks, as the policy links them.

The gate asks for each connection (``ForkDial``). The link is checked again here, because the gate process has read
untrusted data. The socket is made in the network namespace of the other fork's command, whose host process hands out
the namespaces (``Entrance``).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from mudroom.core.network.fork_host import ENDPOINT_PORT, AgentLink, fork_of, link_rules
from mudroom.core.network.host_rules import HostRule
from mudroom.errors import MudroomError
from mudroom.session.confinement.gateway import namespaces_at
from mudroom.session.confinement.namespace_program import inside
from mudroom.vault.forks.endpoint import endpoint_of
from mudroom.vault.store.store import Vault


class ForkDialler:
    """Thread-safe: it has no state."""

    def __init__(self, vault: Vault, links: Sequence[AgentLink]) -> None:
        """``links``: those that lead from the command's fork."""
        self._vault = vault
        self._ports = {(link.target, link.port or ENDPOINT_PORT): link.port for link in links}
        self.rules: tuple[HostRule, ...] = tuple(link_rules(links))

    def dial(self, host: str, port: int) -> int:
        """Return a connected socket, which the caller closes. Raise MudroomError with the reason."""
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
            gone, namespaces = namespaces_at(fork.entrance)
        except OSError:
            raise MudroomError(f"no command is running in the fork {name}") from None
        try:
            return _connected(inner, namespaces)
        except OSError as error:
            raise MudroomError(f"{name}:{inner}: {os.strerror(error.errno or errno.EIO).lower()}") from error
        finally:
            for descriptor in (gone, *namespaces):
                os.close(descriptor)


def _connected(port: int, namespaces: Sequence[int]) -> int:
    """Return a socket that is connected to a port of the command's loopback. Raise OSError."""
    with inside("late_socket", [str(port)], namespaces) as channel:
        reply, descriptors, _flags, _address = socket.recv_fds(channel, 16, 1)
    if descriptors:
        return descriptors[0]
    raise OSError(int(reply) if reply.isdigit() else errno.ECONNRESET, "")
