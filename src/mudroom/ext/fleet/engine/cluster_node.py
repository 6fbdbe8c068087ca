"""A cluster's node as its coordinator sees it: a relay to its worker, and the errands that were placed there."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import MappingProxyType

from mudroom.errors import MudroomError
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame, encode
from mudroom.typing import Protocol

MOST_UNSENT = 64 << 20
"""Bytes that wait for a node."""
LIMITS = MappingProxyType({**wire.FROM_WORKER, wire.DATA: 1 << 15, wire.SHUT: 1, wire.ROOM: 16})
"""Bytes in a body from a node, by kind, none above the origin's bound: it would end the link for one node's offence."""

Key = tuple[str, int]
"""Errand and attempt."""


class NodeRelay(Protocol):
    """Two pipes to one node's worker. A thread each calls ``read`` and ``write``."""

    name: str
    slots: int
    """Errands at one time."""

    def read(self) -> bytes:
        """Return the worker's next bytes; empty: it has ended. Raise RelayError if the node is gone."""

    def write(self, data: bytes) -> None:
        """Raise RelayError if the node is gone."""

    def end(self) -> None:
        """Close the worker's input."""

    def close(self) -> None:
        """End the worker and all its processes, at once. A ``read`` that waits ends, too."""


class RelayError(MudroomError):
    """A node in the cluster is gone."""


class ClusterNode:
    """The coordinator's lock guards all but ``outgoing``, which has its own."""

    def __init__(self, relay: NodeRelay, overflow: Callable[[ClusterNode], None]) -> None:
        """``overflow``: called when the node does not take what is sent to it."""
        self.relay, self.name = relay, relay.name
        self._overflow = overflow
        self.hello: wire.WorkerHello | None = None
        self.is_gone = False
        self.bases: set[bytes] = set()
        """Base ids that are ready there."""
        self.refused: set[bytes] = set()
        """Base ids that it could not take."""
        self.offered = b""
        """Id of the base that is being sent; empty: none."""
        self.pending: list[tuple[Key, Frame]] = []
        """Errands that wait for their base."""
        self.running: dict[Key, int] = {}
        """Streams on which the errands were sent."""
        self.outgoing = OutgoingBytes()

    @property
    def free(self) -> int:
        return self.relay.slots - len(self.running) - len(self.pending)

    def send(self, frame: Frame) -> None:
        if not self.outgoing.put(encode(frame)):
            self._overflow(self)


class OutgoingBytes:
    """Bytes for a node. ``_condition`` is the lock that guards everything."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._is_ended = False

    def put(self, data: bytes) -> bool:
        """Return whether there was room."""
        with self._condition:
            if self._size > MOST_UNSENT:
                return False
            self._parts.append(data)
            self._size += len(data)
            self._condition.notify_all()
            return True

    def wait_for_room(self, size: int) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._is_ended or self._size + size <= MOST_UNSENT // 2)

    def take(self) -> bytes | None:
        """Return the bytes that are to be written, waiting for them; None: nothing will come any more."""
        with self._condition:
            self._condition.wait_for(lambda: self._parts or self._is_ended)
            if not self._parts:
                return None
            data = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            self._condition.notify_all()
            return data

    def end(self) -> None:
        with self._condition:
            self._is_ended = True
            self._condition.notify_all()
