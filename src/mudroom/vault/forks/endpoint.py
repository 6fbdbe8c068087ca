"""The endpoint at which an agent serves others: where its server for other agents listens inside the sandbox.

It is registered when the agent starts and removed when it ends. After a kill it stays until the next agent; no server
listens there then, and a connection to it is refused.
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from mudroom.core.agent.endpoint import AgentEndpoint
from mudroom.errors import FULL
from mudroom.stage import disk, safe_open
from mudroom.vault.store.fork import Fork

_NAME = b"/endpoint"


def register(fork: Fork, endpoint: AgentEndpoint) -> None:
    """Record the endpoint when the agent starts in the fork. A full disk leaves it unregistered."""
    beside = fork.path + _NAME + b".new"
    try:
        with open(beside, "wb") as stream:
            stream.write(msgspec.json.encode(endpoint))
        disk.rename_path(beside, fork.path + _NAME)
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
