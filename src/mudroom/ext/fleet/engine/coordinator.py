"""Coordinator: to an origin it is one worker, behind it are a cluster's workers.

    origin ══ frames ══ coordinator ══ a node's frames ══ relay ══ mudroom worker --stdio
                                    ══ …

It places errands, and passes frames on as bytes. It reads an errand's ERRAND and OUTCOME frames and the numbers in its
questions. The base is sent to it once; the nodes get from it the objects that they lack, when their first errand is
placed.

Rules of this file:
1. An errand is placed once. It is given to another node only if it was never sent to the first. A node that is gone
   ends its own errands as ``lost``, and no others.
2. Nothing waits for a node: bytes for a node wait in a queue, and a node that does not take ``MOST_UNSENT`` bytes is
   gone. A node whose output the origin does not take is not read.
3. An errand is placed on a node with its level, where its base lies if one is free, then where most is free.
4. A node can only speak about its own errands: a frame on another's stream ends the node.
5. When the origin's pipe has ended, the nodes' pipes are ended. The nodes keep outcomes as any worker does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from mudroom import __version__
from mudroom.errors import MudroomError
from mudroom.ext.fleet.base.delta import packs_for
from mudroom.ext.fleet.base.manifest import base_id, require_base
from mudroom.ext.fleet.base.objects import BaseReceiver, Missing, ObjectStore
from mudroom.ext.fleet.engine.cluster_node import LIMITS, ClusterNode, Key, NodeRelay, RelayError
from mudroom.ext.fleet.engine.placement import Placement
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame, FrameReader, LinkError, encode
from mudroom.ext.fleet.wire.message import frame_of, message_of
from mudroom.typing import Protocol


class NumberMap:
    """Several nodes' numbers as numbers on one link. The caller holds the coordinator's lock during each call."""

    def __init__(self, most: int) -> None:
        """``most``: numbers at one time."""
        self._most = most
        self._outer: dict[tuple[str, int], int] = {}
        self._inner: dict[int, tuple[ClusterNode, int]] = {}
        self._last = 0

    def add(self, node: ClusterNode, number: int) -> int | None:
        """Return the link's number for a node's number; None: there are too many, or the node has it in use."""
        if len(self._inner) >= self._most or (node.name, number) in self._outer:
            return None
        self._last += 1
        self._outer[node.name, number] = self._last
        self._inner[self._last] = node, number
        return self._last

    def outer(self, node: ClusterNode, number: int) -> int | None:
        return self._outer.get((node.name, number))

    def inner(self, outer: int) -> tuple[ClusterNode, int] | None:
        return self._inner.get(outer)

    def remove(self, outer: int) -> None:
        found = self._inner.pop(outer, None)
        if found is not None:
            del self._outer[found[0].name, found[1]]

    def drop(self, node: ClusterNode) -> list[int]:
        """Remove a node's numbers. Return the link's."""
        dropped = [outer for outer, found in self._inner.items() if found[0] is node]
        for outer in dropped:
            self.remove(outer)
        return dropped


# --- Nodes' connections ---
# Connections that commands on a cluster's nodes make through the origin: each node's numbers as numbers on one
# link.


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


MOST_QUESTIONS = 10_000
GREETING = 30.0
"""Seconds in which nodes say hello before the coordinator does; later ones join."""
PASSED_ON = frozenset({wire.ACCEPTED, wire.OUT, wire.EVENT, wire.OUTCOME, wire.FAILED, wire.ARCHIVE})
_MARGIN = 0.05
"""Seconds, so that the grace is over when its timer ends."""


class FrameSource(Protocol):
    def next(self) -> Frame | None:
        """Return the next frame; None: the stream has ended. Raise LinkError at a frame that is not allowed."""


class Coordinator:
    """``_lock`` guards the placement and the numbers; ``_writing`` is held while a frame is written to the origin.
    ``_receiver`` belongs to the thread that reads the origin. No lock is held while a node is waited for."""

    def __init__(self, write: int, engine: str, store: ObjectStore, grace: float = 0.0) -> None:
        """``grace``: seconds after the start, and after a node's loss, in which others may join. Errands that no node
        can run wait for so long."""
        self._grace, self._awaited_until = grace, time.monotonic() + grace
        self._write, self._engine, self._store = write, engine, store
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._placement = Placement(self._send_to_origin, lambda: time.monotonic() < self._awaited_until)
        self._nodes = self._placement.nodes
        self._greeted = threading.Condition(self._lock)
        self._questions = NumberMap(MOST_QUESTIONS)
        self._connections = NodeConnections(self._lock, self._placement, self._send_to_origin)
        self._hello = False
        """Whether the origin has our hello."""
        self._origin: wire.OriginHello | None = None
        self._threads: list[threading.Thread] = []
        self._is_write_closed = self._is_shutting_down = False
        self._last_loss = ""
        """The node that was lost last, and why."""
        self._receiver = BaseReceiver(store, self._missing, self._has_base)

    # --- the origin's end ---

    def serve(self, origin: wire.OriginHello, frames: FrameSource, relays: Sequence[NodeRelay]) -> None:
        """Serve one link until its origin is gone and the nodes' commands have ended."""
        self._origin = origin
        for relay in relays:
            self.add(relay)
        with self._greeted:
            self._greeted.wait_for(lambda: all(node.hello or node.is_gone for node in self._nodes), GREETING)
            greeting = self._greeting()
        try:
            if greeting is None:
                self._send_to_origin(frame_of(wire.BYE, wire.Bye("no node of the cluster has a worker that answers")))
                return
            with self._lock:
                self._hello = True
                self._send_to_origin(frame_of(wire.HELLO, greeting))
            self._settle_later()
            self._serve_origin(frames)
        finally:
            self._shut_down()

    def add(self, relay: NodeRelay) -> None:
        """Take a node in. It gets errands once its worker has said hello."""
        assert self._origin is not None
        node = ClusterNode(relay, self._overflow)
        hello = self._origin._replace(node=f"{self._origin.node}/{node.name}")
        node.outgoing.put(encode(frame_of(wire.HELLO, hello)))
        with self._lock:
            self._nodes.append(node)
            for work in (self._read_node, self._write_node):
                thread = threading.Thread(target=work, args=(node,), name=f"{work.__name__} {node.name}", daemon=True)
                self._threads.append(thread)
                thread.start()

    @property
    def names(self) -> set[str]:
        """Return the names of the nodes that are here."""
        with self._lock:
            return {node.name for node in self._nodes if not node.is_gone}

    def _greeting(self) -> wire.WorkerHello | None:
        hellos = [node.hello for node in self._nodes if node.hello is not None and not node.is_gone]
        if not hellos:
            return None
        return wire.WorkerHello(
            wire.PROTOCOL,
            __version__,
            max(hello.vault_format for hello in hellos),
            hellos[0].arch,
            hellos[0].kernel,
            tuple(sorted({level for hello in hellos for level in hello.levels})),
            sum(node.relay.slots for node in self._nodes if node.hello is not None),
            sum(hello.memory for hello in hellos),
            min(hello.free_disk for hello in hellos),
            self._engine,
            tuple(node.name for node in self._nodes if node.hello is not None),
            tuple(held for hello in hellos for held in hello.held),
        )

    def _serve_origin(self, frames: FrameSource) -> None:
        try:
            while (frame := frames.next()) is not None and frame.kind != wire.BYE:
                self._handle_origin_frame(frame)
        except LinkError as error:
            self._send_to_origin(frame_of(wire.BYE, wire.Bye(str(error))))

    def _handle_origin_frame(self, frame: Frame) -> None:
        if frame.kind == wire.PING:
            self._ping(frame)
        elif frame.kind == wire.OFFER:
            self._receiver.incoming = None
            self._receive_base(lambda: self._receiver.offer(message_of(frame, wire.OfferedBase).base))
        elif frame.kind == wire.OBJECTS:
            self._receive_base(lambda: self._receiver.receive(frame.body))
        elif frame.kind == wire.ERRAND:
            with self._lock:
                self._placement.add(frame)
        elif frame.kind == wire.ANSWER:
            self._answer(frame)
        elif frame.kind == wire.FETCH:
            fetch = message_of(frame, wire.Fetch)
            self._pass_to_node(frame, (fetch.errand, fetch.attempt), is_answered=True)
        elif frame.kind == wire.KEPT:
            kept = message_of(frame, wire.Kept)
            self._pass_to_node(frame, (kept.errand, kept.attempt), is_answered=False)
        elif frame.kind == wire.CANCEL:
            with self._lock:
                self._placement.cancel(frame)
        elif frame.kind == wire.DIALLED:
            self._connections.dialled(frame)
        elif frame.kind in CONNECTION:
            self._connections.to_node(frame)
        elif frame.kind != wire.FAILED:
            raise LinkError(f"sent a frame of the unknown kind {frame.kind}")

    def _ping(self, frame: Frame) -> None:
        with self._lock:
            running = sum(len(node.running) for node in self._nodes)
            for node in self._nodes:
                if node.hello is not None:
                    node.send(frame)  # it keeps the lease of the node's errands
        number = message_of(frame, wire.Ping).number
        free = min((node.hello.free_disk for node in self._nodes if node.hello is not None), default=0)
        self._send_to_origin(frame_of(wire.PONG, wire.Pong(number, running, os.getloadavg()[0], free)))

    def _pass_to_node(self, frame: Frame, key: Key, *, is_answered: bool) -> None:
        with self._lock:
            self._placement.pass_to_node(frame, key, is_answered=is_answered)

    # --- the base ---

    def _receive_base(self, step: Callable[[], Frame | None]) -> None:
        """Take a step in receiving a base; tell the origin if it cannot be had here."""
        receiver = self._receiver
        try:
            answer = step()
        except LinkError:
            raise
        except MudroomError as error:
            about = base_id(receiver.incoming) if receiver.incoming is not None else b""
            receiver.incoming = None
            answer = frame_of(wire.FAILED, wire.Failed(error.message, error.hint, about))
        if answer is not None:
            self._send_to_origin(answer)

    def _missing(self, base: wire.Base) -> Missing:
        require_base(base)
        return self._store.missing(base)

    def _has_base(self, name: bytes, base: wire.Base) -> None:
        with self._lock:
            self._placement.bases[name] = base

    # --- questions ---

    def _answer(self, frame: Frame) -> None:
        answer = message_of(frame, wire.Answer)
        with self._lock:
            found = self._questions.inner(answer.number)
            self._questions.remove(answer.number)
            if found is not None:
                found[0].send(frame_of(wire.ANSWER, answer._replace(number=found[1]), frame.stream))

    # --- a node's end ---

    def _read_node(self, node: ClusterNode) -> None:
        reader, reason = FrameReader(LIMITS, wire.OTHERS), "its worker has ended"
        try:
            while data := node.relay.read():
                for frame in reader.feed(data):
                    self._handle_node_frame(node, frame)
        except MudroomError as error:
            reason = error.message
        except KeyError:
            reason = "it asked for objects that are not of its base"
        self._lose(node, reason)

    def _write_node(self, node: ClusterNode) -> None:
        try:
            while (data := node.outgoing.take()) is not None:
                node.relay.write(data)
            if not node.is_gone:
                node.relay.end()
        except MudroomError as error:
            self._lose(node, error.message)

    def _handle_node_frame(self, node: ClusterNode, frame: Frame) -> None:
        if frame.kind == wire.HELLO:
            self._greeted_by(node, message_of(frame, wire.WorkerHello))
        elif frame.kind == wire.WANT:
            self._send_objects(node, message_of(frame, wire.Want))
        elif frame.kind == wire.READY:
            with self._lock:
                self._placement.ready(node, message_of(frame, wire.Ready).base)
        elif frame.kind == wire.FAILED and frame.stream == 0:
            with self._lock:
                self._placement.not_ready(node)
        elif frame.kind == wire.BYE:
            raise RelayError(message_of(frame, wire.Bye).reason or "its worker has ended")
        elif frame.kind == wire.ASK:
            self._ask(node, frame)
        elif frame.kind == wire.DIAL:
            self._connections.dial(node, frame)
        elif frame.kind in CONNECTION:
            self._connections.from_node(node, frame)
        elif frame.kind != wire.PONG:
            self._pass_on(node, frame)

    def _greeted_by(self, node: ClusterNode, hello: wire.WorkerHello) -> None:
        if hello.protocol != wire.PROTOCOL:
            raise RelayError(f"its mudroom {hello.mudroom} speaks protocol {hello.protocol}, not {wire.PROTOCOL}")
        with self._greeted:
            node.hello = hello
            self._placement.adopt(node, [(held.errand, held.attempt) for held in hello.held])
            self._placement.place()
            self._greeted.notify_all()

    def _send_objects(self, node: ClusterNode, want: wire.Want) -> None:
        for pack in packs_for(want, self._store):
            node.outgoing.wait_for_room(len(pack))
            node.send(Frame(wire.OBJECTS, 0, pack))

    def _ask(self, node: ClusterNode, frame: Frame) -> None:
        ask = message_of(frame, wire.Ask)
        with self._lock:
            self._placement.own_stream(node, frame.stream)
            number = self._questions.add(node, ask.number)
            if number is None:
                node.send(frame_of(wire.ANSWER, wire.Answer(ask.number, b""), frame.stream))
                return
        self._send_to_origin(frame_of(wire.ASK, ask._replace(number=number), frame.stream))

    def _pass_on(self, node: ClusterNode, frame: Frame) -> None:
        if frame.kind not in PASSED_ON:
            raise LinkError(f"sent a frame of the unknown kind {frame.kind}")
        # read here, although it goes on as bytes: an unreadable frame ends this node, not the origin's link
        said: object = message_of(frame, wire.TYPES[frame.kind])
        with self._lock:
            placed = self._placement.own_stream(node, frame.stream)
            if placed is None:
                return
            is_over = frame.kind in (wire.OUTCOME, wire.FAILED)
            if isinstance(said, (wire.Accepted, wire.ErrandOutcome)) and (said.errand, said.attempt) != placed.key:
                raise LinkError("spoke about an errand on the stream of another")
            if isinstance(said, wire.ArchivePart):
                is_over = said.is_last
            if is_over:
                self._placement.finish(frame.stream, placed, failed=frame.kind == wire.FAILED)
        self._send_to_origin(frame)

    def _lose(self, node: ClusterNode, reason: str) -> None:
        """Note that a node is gone: its errands are lost, those that were not sent are placed again."""
        with self._lock:
            if node.is_gone:
                return
            self._awaited_until = time.monotonic() + self._grace
            self._placement.lose_node(node, reason)
            self._last_loss = f"{node.name}: {reason}"
            self._questions.drop(node)
            self._connections.drop(node)
            self._greeted.notify_all()
        self._settle_later()
        node.outgoing.end()
        node.relay.close()

    def _settle_later(self) -> None:
        if not self._grace:
            return self._settle()
        timer = threading.Timer(self._grace + _MARGIN, self._settle)
        timer.daemon = True
        timer.start()
        return None

    def _settle(self) -> None:
        """If no other node has joined in time: end the errands that none can run, and the link if none is left."""
        with self._lock:
            if time.monotonic() < self._awaited_until or not self._hello or self._is_shutting_down:
                return
            self._placement.place()
            if all(each.is_gone for each in self._nodes):
                self._send_to_origin(frame_of(wire.BYE, wire.Bye(f"no node of the cluster is left; {self._last_loss}")))

    # --- sending to the origin ---

    def _overflow(self, node: ClusterNode) -> None:
        """End a node that does not take what is sent to it. The caller holds the lock, so another thread does it."""
        threading.Thread(target=self._lose, args=(node, "it does not read what is sent to it"), daemon=True).start()

    def _send_to_origin(self, frame: Frame) -> None:
        """Write a frame to the origin. An origin that is gone misses nothing: outcomes are kept at the nodes."""
        data = memoryview(encode(frame))
        with self._writing:
            while data and not self._is_write_closed:
                try:
                    data = data[os.write(self._write, data) :]
                except OSError:
                    self._is_write_closed = True

    def _shut_down(self) -> None:
        """End the nodes' pipes, and wait until their workers have ended: at the latest with the lease."""
        with self._lock:
            self._is_shutting_down = True
            nodes, threads = list(self._nodes), list(self._threads)
        for node in nodes:
            node.outgoing.end()
        for thread in threads:
            thread.join()
