"""Where the servers of a fork are reached: the endpoint at which its agent serves others, and the ports by which the
user reached a server.

The endpoint is registered when the agent starts and removed when it ends. After a kill it stays until the next agent;
no server listens there then, and a connection to it is refused. The ports are remembered, so that an address is the
same tomorrow; a file of them that is missing or cannot be read remembers nothing, and the last writer counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from mudroom.core.agent.endpoint import AgentEndpoint
from mudroom.errors import FULL, MudroomError
from mudroom.stage import safe_open
from mudroom.vault.record import write
from mudroom.vault.store.fork import Fork

_NAME = b"/endpoint"
_PORTS = b"/ports"


def register(fork: Fork, endpoint: AgentEndpoint) -> None:
    """Record the endpoint when the agent starts in the fork. A full disk leaves it unregistered."""
    try:
        safe_open.replace(fork.path + _NAME, msgspec.json.encode(endpoint), durable=False)
    except OSError as error:
        if error.errno not in FULL:
            raise


def withdraw(fork: Fork) -> None:
    with suppress(FileNotFoundError):
        os.unlink(fork.path + _NAME)


def endpoint_of(fork: Fork) -> AgentEndpoint | None:
    """Return the registered endpoint, or None if it is missing or unreadable."""
    try:
        return msgspec.json.decode(safe_open.read(fork.path + _NAME), type=AgentEndpoint)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


# --- ports ---


class ForkPorts(NamedTuple):
    first: int | None = None
    """The port inside that the fork's address without a number leads to (``ext/web/server/fork_address.py``)."""
    opened: Mapping[int, int] = {}
    """By port inside: the port of this machine."""


def ports_of(fork: Fork) -> ForkPorts:
    try:
        return msgspec.json.decode(safe_open.read(fork.path + _PORTS), type=ForkPorts)
    except (OSError, MudroomError, msgspec.MsgspecError, UnicodeDecodeError):
        return ForkPorts()


def remember(fork: Fork, ports: ForkPorts) -> None:
    """Write them. A fork that has gone, or a full disk, remembers nothing."""
    with suppress(OSError):
        if ports != ports_of(fork):
            write(fork.path + _PORTS, msgspec.json.encode(ports), durable=False)
