"""Errands on a cluster's nodes: which waits, which was given to a node, and which are lost with a node.

An errand is given to a node once. Before it is sent there, because its base has to come first, it can still be given to
another; after that it is lost with its node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mudroom.ext.fleet.engine.cluster_node import ClusterNode, Key
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.message import frame_of, message_of
from mudroom.typing import NamedTuple

MOST_WAITING = 10_000
"""Errands that wait for a free slot."""


class PlacedStream(NamedTuple):
    node: ClusterNode
    key: Key
    is_errand: bool
    """Else an archive's stream."""


class Placement:
    """The caller holds the coordinator's lock during each call."""

    def __init__(self, send: Callable[[Frame], None], is_awaited: Callable[[], bool] = lambda: False) -> None:
        """``send``: writes a frame to the origin. ``is_awaited``: whether nodes may still join, so that an errand which
        no node can run now waits."""
        self._send, self._is_awaited = send, is_awaited
        self.nodes: list[ClusterNode] = []
        self.bases: dict[bytes, wire.Base] = {}
        """Bases whose objects the coordinator has."""
        self._streams: dict[int, PlacedStream] = {}
        self._keys: dict[Key, ClusterNode] = {}
        """Nodes that have errands which were not kept yet."""
        self._waiting: deque[tuple[wire.Errand, Frame]] = deque()

    def add(self, frame: Frame) -> None:
        errand = message_of(frame, wire.Errand)
        if (errand.errand, errand.attempt) in self._keys:
            return self._fail(frame.stream, "this attempt of the errand was accepted already")
        if errand.base not in self.bases:
            return self._fail(frame.stream, "the base of the errand was not offered", "offer it first")
        if len(self._waiting) >= MOST_WAITING:
            return self._fail(frame.stream, f"{MOST_WAITING:,} errands wait for a node already", "send it later")
        self._waiting.append((errand, frame))
        self.place()
        return None

    def place(self) -> None:
        """Give the errands that wait to nodes with a free slot."""
        left: deque[tuple[wire.Errand, Frame]] = deque()
        while self._waiting:
            errand, frame = self._waiting.popleft()
            able = [node for node in self.nodes if _is_able(node, errand)]
            free = [node for node in able if node.free > 0]
            is_coming = self._is_awaited() or any(node.hello is None and not node.is_gone for node in self.nodes)
            if not able and not is_coming:
                level = "" if errand.level is None else f" at level {errand.level}"
                self._fail(frame.stream, f"no node of the cluster can run it{level}")
            elif not free:
                left.append((errand, frame))
            else:
                self._give(max(free, key=lambda node: _preference(node, errand)), errand, frame)
        self._waiting = left

    def _give(self, node: ClusterNode, errand: wire.Errand, frame: Frame) -> None:
        key = errand.errand, errand.attempt
        self._keys[key] = node
        self._streams[frame.stream] = PlacedStream(node, key, is_errand=True)
        if errand.base in node.bases:
            node.running[key] = frame.stream
            node.send(frame)
            return
        node.pending.append((key, frame))
        if not node.offered:
            self._offer(node, errand.base)

    def _offer(self, node: ClusterNode, base: bytes) -> None:
        node.offered = base
        node.send(frame_of(wire.OFFER, wire.OfferedBase(self.bases[base])))

    def cancel(self, frame: Frame) -> None:
        """Cancel an errand where it runs. One that waits here never starts."""
        cancel = message_of(frame, wire.CancelErrand)
        key = cancel.errand, cancel.attempt
        waiting = next((each for each in self._waiting if (each[0].errand, each[0].attempt) == key), None)
        placed = self._streams.get(frame.stream)
        if waiting is not None:
            self._waiting.remove(waiting)
            self._outcome(waiting[1].stream, key, "cancelled", "cancelled before it was placed")
        elif placed is not None and key in placed.node.running:
            placed.node.send(frame)
        elif placed is not None:
            pending = [each for each in placed.node.pending if each[0] == key]
            for each in pending:
                placed.node.pending.remove(each)
                self._forget(each[1].stream)
                self._outcome(each[1].stream, key, "cancelled", "cancelled before it was sent to its node")

    def pass_to_node(self, frame: Frame, key: Key, *, is_answered: bool) -> None:
        """Pass a request about an errand on to its node."""
        node = self._keys.get(key)
        if node is None or node.is_gone:
            if is_answered:
                self._fail(frame.stream, "the node of this errand is not in the cluster now", for_now=True)
            return
        if is_answered:
            self._streams[frame.stream] = PlacedStream(node, key, is_errand=False)
        else:
            del self._keys[key]
        node.send(frame)

    def ready(self, node: ClusterNode, base: bytes) -> None:
        if base != node.offered:
            raise LinkError("is ready for a base that was not offered")
        node.bases.add(base)
        node.offered = b""
        pending, node.pending = node.pending, []
        for key, frame in pending:
            errand = message_of(frame, wire.Errand)
            if errand.base in node.bases:
                node.running[key] = frame.stream
                node.send(frame)
            else:
                node.pending.append((key, frame))
                if not node.offered:
                    self._offer(node, errand.base)

    def not_ready(self, node: ClusterNode) -> None:
        """The base cannot be had there: its errands are given to others."""
        node.refused.add(node.offered)
        node.offered = b""
        self._place_again(node)
        self.place()

    def _place_again(self, node: ClusterNode) -> None:
        """Put the errands that were not sent to a node back."""
        pending, node.pending = node.pending, []
        for key, frame in pending:
            self._forget(frame.stream)
            del self._keys[key]
            self._waiting.append((message_of(frame, wire.Errand), frame))

    def own_stream(self, node: ClusterNode, stream: int) -> PlacedStream | None:
        """Return a stream's purpose; None: the origin waits for nothing there. Raise LinkError if it is another
        node's."""
        placed = self._streams.get(stream)
        if placed is not None and placed.node is not node:
            raise LinkError("spoke about another node's errand")
        return placed

    def _forget(self, stream: int) -> None:
        self._streams.pop(stream, None)

    def _outcome(self, stream: int, key: Key, state: str, reason: str) -> None:
        outcome = wire.ErrandOutcome(*key, state, 0, 0, False, 0.0, 0.0, 0, 0, 0, 0, "", 0, b"", -1, b"", reason)
        self._send(frame_of(wire.OUTCOME, outcome, stream))

    def _fail(self, stream: int, reason: str, hint: str = "", *, for_now: bool = False) -> None:
        self._send(frame_of(wire.FAILED, wire.Failed(reason, hint, for_now=for_now), stream))

    def adopt(self, node: ClusterNode, keys: list[Key]) -> None:
        """Note a node's errands from an earlier link. An errand that another node has, too, stays there."""
        for key in keys:
            self._keys.setdefault(key, node)

    def finish(self, stream: int, placed: PlacedStream, *, failed: bool) -> None:
        """Note that a stream's purpose is over."""
        self._forget(stream)
        if placed.is_errand:
            placed.node.running.pop(placed.key, None)
            if failed:  # it was never accepted
                self._keys.pop(placed.key, None)
        self.place()

    def lose_node(self, node: ClusterNode, reason: str) -> None:
        """Note that a node is gone: its errands are lost, those that were not sent are placed again."""
        node.is_gone = True
        self._place_again(node)
        lost = [(stream, placed) for stream, placed in self._streams.items() if placed.node is node]
        for stream, placed in lost:
            self._forget(stream)
            if placed.is_errand:
                self._outcome(stream, placed.key, "lost", f"the node {node.name} is gone: {reason}")
            else:
                self._fail(stream, f"the node {node.name} is gone: {reason}", for_now=True)
        node.running.clear()
        self.place()


def _is_able(node: ClusterNode, errand: wire.Errand) -> bool:
    return (
        node.hello is not None
        and not node.is_gone
        and (errand.level is None or errand.level in node.hello.levels)
        and errand.base not in node.refused
    )


def _preference(node: ClusterNode, errand: wire.Errand) -> tuple[bool, bool, float]:
    is_coming = errand.base == node.offered
    return errand.base in node.bases, is_coming, node.free / max(node.relay.slots, 1)
