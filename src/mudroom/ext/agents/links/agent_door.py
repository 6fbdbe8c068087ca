"""Connections from this machine to a running agent's server, for the user of ``mudroom serve``.

Only an endpoint whose port the fork shows is connected to (``core/fork_consent.py``); the user is the side that
reaches.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing

from mudroom.core.agent.endpoint import AgentEndpoint
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.agents.core.fork_consent import shown_by
from mudroom.ext.agents.links.fork_connection import connect_inside
from mudroom.ext.agents.links.fork_grants import side_of
from mudroom.sandbox.client.connection import wait_readable
from mudroom.session.confinement.dialler import DialledFork
from mudroom.session.session import Session
from mudroom.typing import NamedTuple
from mudroom.vault.forks.endpoint import endpoint_of
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

PATIENCE = 5.0
"""Seconds for the agent's server to accept."""


class OpenAgent(NamedTuple):
    """A connection to a running agent's server."""

    connection: socket.socket
    """Non-blocking; the caller closes it."""
    endpoint: AgentEndpoint
    fork: str


def running_agents(vault: Vault, agent: str) -> list[Fork]:
    """Return the forks in which this agent runs with an endpoint."""
    forks = []
    for fork in vault.forks():
        endpoint = endpoint_of(fork)
        if endpoint is not None and endpoint.agent == agent and os.path.lexists(fork.namespace_listener):
            forks.append(fork)
    return forks


def open_agent(session: Session, agent: str, fork: str) -> OpenAgent:
    """Return a connection to the agent's server in a fork. Raise UsageError if the fork does not show its port,
    MudroomError if there is no connection."""
    place = session.vault.fork(fork)
    endpoint, side = endpoint_of(place), side_of(place)
    if endpoint is None or endpoint.agent != agent:
        raise MudroomError(f"{agent} has ended in the fork {fork}", "mudroom agent run starts it")
    shown = shown_by(session.actor.settings.fork_rules, side, endpoint.port)
    if shown is None:
        raise UsageError(
            f"the fork {fork} does not show the port of its agent", f"mudroom net show {endpoint.port} --fork {fork}"
        )
    pool, where = session.machine.gate.inner_sockets, f"{side.fork.label}:{endpoint.port}"
    with closing(connect_inside(pool, place, side.fork, endpoint.port, where, DialledFork(-1, shown[0]))) as pending:
        if pending.fileno() >= 0 and not wait_readable((pending.fileno(),), time.monotonic() + PATIENCE):
            raise MudroomError(f"{where} does not accept connections", "mudroom ps shows what runs")
        return OpenAgent(socket.socket(fileno=pending.result().descriptor), endpoint, fork)
