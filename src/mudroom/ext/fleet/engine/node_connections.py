"""Connections that commands on a cluster's nodes make through the origin: each node's numbers as numbers on one
link."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mudroom.ext.fleet.engine.cluster_node import ClusterNode
from mudroom.ext.fleet.engine.number_map import NumberMap
from mudroom.ext.fleet.engine.placement import Placement
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame
from mudroom.ext.fleet.wire.message import frame_of, message_of

MOST_CONNECTIONS = 1_000
CONNECTION = frozenset({wire.DATA, wire.SHUT, wire.ROOM})


class NodeConnections:
    """``_lock``, the coordinator's, guards the numbers."""

    def __init__(self, lock: threading.RLock, placement: Placement, send: Callable[[Frame], None]) -> None:
        """``send``: writes a frame to the origin."""
        self._lock, self._placement, self._send = lock, placement, send
        self._numbers = NumberMap(MOST_CONNECTIONS)
        self._half_shut: set[int] = set()
        """Connections in which one end sends no more bytes."""

    def dial(self, node: ClusterNode, frame: Frame) -> None:
        dial = message_of(frame, wire.Dial)
        with self._lock:
            self._placement.own_stream(node, frame.stream)
            number = self._numbers.add(node, dial.number)
            if number is None:
                refused = wire.Dialled(dial.number, "the cluster has too many connections")
                node.send(frame_of(wire.DIALLED, refused, frame.stream))
                return
        self._send(frame_of(wire.DIAL, dial._replace(number=number), frame.stream))

    def dialled(self, frame: Frame) -> None:
        dialled = message_of(frame, wire.Dialled)
        with self._lock:
            found = self._numbers.inner(dialled.number)
            if found is not None:
                found[0].send(frame_of(wire.DIALLED, dialled._replace(number=found[1]), frame.stream))
            if dialled.reason:
                self._numbers.remove(dialled.number)

    def to_node(self, frame: Frame) -> None:
        """Pass a connection's bytes on to its node. Bytes for one that is not there any more are late."""
        with self._lock:
            found = self._numbers.inner(frame.stream)
            if found is not None:
                found[0].send(frame._replace(stream=found[1]))
                self._shut(frame.stream, frame)

    def from_node(self, node: ClusterNode, frame: Frame) -> None:
        with self._lock:
            outer = self._numbers.outer(node, frame.stream)
            if outer is not None:
                self._shut(outer, frame)
        if outer is not None:
            self._send(frame._replace(stream=outer))

    def drop(self, node: ClusterNode) -> None:
        """End the connections of a node that is gone. Hold the lock."""
        for number in self._numbers.drop(node):
            self._half_shut.discard(number)
            self._send(Frame(wire.SHUT, number, b"\x01"))

    def _shut(self, outer: int, frame: Frame) -> None:
        """Forget a connection that is closed, or that both ends have shut. Hold the lock."""
        if frame.kind == wire.SHUT and (frame.body or outer in self._half_shut):
            self._numbers.remove(outer)
            self._half_shut.discard(outer)
        elif frame.kind == wire.SHUT:
            self._half_shut.add(outer)
