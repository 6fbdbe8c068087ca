"""What is remembered of a fork's ports, so that an address is the same tomorrow: the port at which ``mudroom net open``
served one here, and the one that the fork's own address leads to.

A file that is missing or cannot be read remembers nothing. The last writer counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from mudroom.errors import MudroomError
from mudroom.stage import safe_open
from mudroom.vault.record import write
from mudroom.vault.store.fork import Fork

_NAME = b"/ports"


class ForkPorts(NamedTuple):
    first: int | None = None
    """The port inside that the fork's address without a number leads to (``ext/web/server/fork_address.py``)."""
    opened: Mapping[int, int] = {}
    """By port inside: the port of this machine."""


def ports_of(fork: Fork) -> ForkPorts:
    try:
        return msgspec.json.decode(safe_open.read(fork.path + _NAME), type=ForkPorts)
    except (OSError, MudroomError, msgspec.MsgspecError, UnicodeDecodeError):
        return ForkPorts()


def remember(fork: Fork, ports: ForkPorts) -> None:
    """Write them. A fork that has gone, or a full disk, remembers nothing."""
    try:
        if ports != ports_of(fork):
            write(fork.path + _NAME, msgspec.json.encode(ports), durable=False)
    except OSError:
        pass
