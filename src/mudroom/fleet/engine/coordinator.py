"""A coordinator: to an origin it is one worker, behind it are the workers of a cluster.

    origin ══ frames ══ coordinator ══ frames of NODE ══ relay ══ mudroom worker --stdio
                                    ══ …

It places errands, and passes frames on as bytes: of an errand's frames it reads ERRAND, OUTCOME and the numbers of
questions. The base is sent to it once; the nodes get from it what they lack, when their first errand is placed.

Rules of this file:
1. An errand is placed once. It is given to another node only if it was never sent to the first. A node that is gone
   ends its errands as ``lost``, and nobody else's.
2. Nothing waits for a node: what is to be written to one waits in a queue, and a node that does not take
   ``MOST_UNSENT`` bytes is gone. A node whose output the origin does not take is not read.
3. An errand is placed on a node with its level, where its base lies if one is free, then where most is free.
4. A node can only speak about its own errands: a frame on another's stream ends the node.
5. After the end of the origin's pipe the nodes are told the end of theirs. They keep outcomes as any worker does.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from mudroom import __version__
from mudroom.errors import MudroomError
from mudroom.fleet.base.manifest import base_id, require_base
from mudroom.fleet.base.objects import Missing, ObjectStore
from mudroom.fleet.base.pack import RefusedPack, packs, unpack
from mudroom.fleet.wire import message as wire
from mudroom.fleet.wire.frame import Frame, FrameReader, LinkError, encode
from mudroom.fleet.wire.message import frame_of, message_of

MOST_UNSENT = 64 << 20
"""Bytes that wait for a node."""
MOST_WAITING = 10_000
"""Errands that wait for a free place."""
MOST_QUESTIONS = 10_000
GREETING = 30.0
"""Seconds in which nodes say hello before the coordinator does; later ones join."""
LIMITS = MappingProxyType(
    {
        wire.HELLO: 1 << 20,
        wire.WANT: 4 << 20,
        wire.OUTCOME: 2 << 20,
        wire.OUT: (1 << 20) + 64,
        wire.ARCHIVE: (1 << 20) + 64,
        wire.EVENT: 1 << 18,
    }
)
"""Bytes of a body from a node, by kind, as the origin bounds them: it would end the link for one node's offence."""
LIMIT = 1 << 16
PASSED_ON = frozenset({wire.ACCEPTED, wire.OUT, wire.EVENT, wire.OUTCOME, wire.FAILED, wire.ARCHIVE})
_WANTED = 60_000

Key = tuple[str, int]
"""Errand and attempt."""


class FrameSource(Protocol):
    def next(self) -> Frame | None:
        """Return the next frame; None: the stream has ended. Raise LinkError at a frame that is not allowed."""


class Relay(Protocol):
    """Two pipes to the worker of one node. ``read`` and ``write`` are called by a thread each."""

    name: str
    places: int
    """Errands at one time."""

    def read(self) -> bytes:
        """Return the next bytes of the worker; empty: it has ended. Raise RelayError if the node is gone."""

    def write(self, data: bytes) -> None:
        """Raise RelayError if the node is gone."""

    def end(self) -> None:
        """Close the worker's input."""

    def close(self) -> None:
        """End the worker and everything of it, at once."""


class RelayError(MudroomError):
    """A node of the cluster is gone."""


class _Placed(NamedTuple):
    node: Node
    key: Key
    is_errand: bool
    """Else the stream of an archive."""


class Node:
    """State of a node. ``Coordinator._lock`` guards all but ``outgoing``, which has a condition of its own."""

    def __init__(self, relay: Relay) -> None:
        self.relay, self.name = relay, relay.name
        self.hello: wire.WorkerHello | None = None
        self.is_gone = False
        self.bases: set[bytes] = set()
        """Ids of bases that are ready there."""
        self.refused: set[bytes] = set()
        """Ids of bases that it could not take."""
        self.offered = b""
        """Id of the base that is being sent; empty: none."""
        self.pending: list[tuple[Key, Frame]] = []
        """Errands that wait for their base."""
        self.running: dict[Key, int] = {}
        """Streams of the errands that were sent."""
        self.outgoing = _Queue()

    @property
    def free(self) -> int:
        return self.relay.places - len(self.running) - len(self.pending)


class _Queue:
    """Bytes for a node. ``_condition`` guards everything."""

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
        """Return what is to be written, waiting for it; None: nothing will come any more."""
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


class Coordinator:
    """``_lock`` guards the tables below; ``_writing`` is held while a frame is written to the origin. ``_sending`` and
    ``_wanted`` belong to the thread that reads the origin. No lock is held while a node is waited for."""

    def __init__(self, write: int, engine: str, store: ObjectStore) -> None:
        self._write, self._engine, self._store = write, engine, store
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._nodes: list[Node] = []
        self._greeted = threading.Condition(self._lock)
        self._streams: dict[int, _Placed] = {}
        self._keys: dict[Key, Node] = {}
        """Nodes of errands that were not kept yet."""
        self._waiting: deque[tuple[wire.Errand, Frame]] = deque()
        self._bases: dict[bytes, wire.Base] = {}
        """Bases whose objects are in the store."""
        self._questions: dict[int, tuple[Node, int]] = {}
        self._asked = 0
        self._hello = False
        """Whether the origin has our hello."""
        self._origin: wire.OriginHello | None = None
        self._threads: list[threading.Thread] = []
        self._is_deaf = self._is_leaving = False
        self._sending: wire.Base | None = None
        self._wanted: set[bytes] = set()

    # --- the origin's end ---

    def serve(self, origin: wire.OriginHello, frames: FrameSource, relays: Sequence[Relay]) -> None:
        """Serve one link until its origin is gone and the nodes' commands have ended."""
        self._origin = origin
        for relay in relays:
            self.add(relay)
        with self._greeted:
            self._greeted.wait_for(lambda: all(node.hello or node.is_gone for node in self._nodes), GREETING)
            greeting = self._greeting()
        try:
            if greeting is None:
                self._tell(frame_of(wire.BYE, wire.Bye("no node of the cluster has a worker that answers")))
                return
            with self._lock:
                self._hello = True
                self._tell(frame_of(wire.HELLO, greeting))
            self._take_all(frames)
        finally:
            self._leave()

    def add(self, relay: Relay) -> None:
        """Take a node in. It gets errands once its worker has said hello."""
        assert self._origin is not None
        node = Node(relay)
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
            sum(node.relay.places for node in self._nodes if node.hello is not None),
            sum(hello.memory for hello in hellos),
            min(hello.free_disk for hello in hellos),
            self._engine,
            tuple(node.name for node in self._nodes if node.hello is not None),
            tuple(held for hello in hellos for held in hello.held),
        )

    def _take_all(self, frames: FrameSource) -> None:
        try:
            while (frame := frames.next()) is not None and frame.kind != wire.BYE:
                self._take(frame)
        except LinkError as error:
            self._tell(frame_of(wire.BYE, wire.Bye(str(error))))

    def _take(self, frame: Frame) -> None:
        if frame.kind == wire.PING:
            self._ping(frame)
        elif frame.kind == wire.OFFER:
            self._sending = None
            self._supply(lambda: self._offered(message_of(frame, wire.OfferedBase).base))
        elif frame.kind == wire.OBJECTS:
            self._supply(lambda: self._came(frame.body))
        elif frame.kind == wire.ERRAND:
            self._errand(frame)
        elif frame.kind == wire.ANSWER:
            self._answer(frame)
        elif frame.kind == wire.FETCH:
            fetch = message_of(frame, wire.Fetch)
            self._about(frame, (fetch.errand, fetch.attempt), is_answered=True)
        elif frame.kind == wire.KEPT:
            kept = message_of(frame, wire.Kept)
            self._about(frame, (kept.errand, kept.attempt), is_answered=False)
        elif frame.kind == wire.CANCEL:
            self._cancel(frame)
        elif frame.kind not in (wire.DIALLED, wire.DATA, wire.SHUT, wire.FAILED):
            raise LinkError(f"sent a frame of the unknown kind {frame.kind}")

    def _ping(self, frame: Frame) -> None:
        with self._lock:
            running = sum(len(node.running) for node in self._nodes)
            for node in self._nodes:
                if node.hello is not None:
                    self._to(node, frame)  # it keeps the lease of the node's errands
        number = message_of(frame, wire.Ping).number
        free = min((node.hello.free_disk for node in self._nodes if node.hello is not None), default=0)
        self._tell(frame_of(wire.PONG, wire.Pong(number, running, os.getloadavg()[0], free)))

    # --- the base ---

    def _supply(self, step: Callable[[], None]) -> None:
        """Take a step of sending a base; tell the origin if it cannot be had here."""
        try:
            step()
        except LinkError:
            raise
        except MudroomError as error:
            about = base_id(self._sending) if self._sending is not None else b""
            self._sending = None
            self._tell(frame_of(wire.FAILED, wire.Failed(error.message, error.hint, about)))

    def _offered(self, base: wire.Base) -> None:
        self._sending = base
        require_base(base)
        self._ask_for_more(base)

    def _came(self, body: bytes) -> None:
        if self._sending is None:
            raise LinkError("sent objects before it offered a base")
        try:
            self._wanted.difference_update(unpack(body, self._store, self._wanted))
        except RefusedPack as error:
            raise LinkError(f"sent objects that cannot be used: {error.message}") from error
        if not self._wanted:
            self._ask_for_more(self._sending)

    def _ask_for_more(self, base: wire.Base) -> None:
        missing, name = self._store.missing(base), base_id(base)
        if missing == Missing((), ()):
            self._sending = None
            with self._lock:
                self._bases[name] = base
            self._tell(frame_of(wire.READY, wire.Ready(name)))
            return
        nodes, files = missing.nodes[:_WANTED], missing.files[:_WANTED]
        self._wanted = {*nodes, *files}
        self._tell(frame_of(wire.WANT, wire.Want(name, nodes, files)))

    # --- errands ---

    def _errand(self, frame: Frame) -> None:
        errand = message_of(frame, wire.Errand)
        with self._lock:
            if (errand.errand, errand.attempt) in self._keys:
                return self._fail(frame.stream, "this attempt of the errand was accepted already")
            if errand.base not in self._bases:
                return self._fail(frame.stream, "the base of the errand was not offered", "offer it first")
            if len(self._waiting) >= MOST_WAITING:
                return self._fail(frame.stream, f"{MOST_WAITING:,} errands wait for a node already", "send it later")
            self._waiting.append((errand, frame))
            self._place()
        return None

    def _place(self) -> None:
        """Give the errands that wait to nodes with a free place. Hold ``_lock``."""
        left: deque[tuple[wire.Errand, Frame]] = deque()
        while self._waiting:
            errand, frame = self._waiting.popleft()
            able = [node for node in self._nodes if _is_able(node, errand)]
            free = [node for node in able if node.free > 0]
            if not able:
                level = "" if errand.level is None else f" at level {errand.level}"
                self._fail(frame.stream, f"no node of the cluster can run it{level}")
            elif not free:
                left.append((errand, frame))
            else:
                self._give(max(free, key=lambda node: _preference(node, errand)), errand, frame)
        self._waiting = left

    def _give(self, node: Node, errand: wire.Errand, frame: Frame) -> None:
        key = errand.errand, errand.attempt
        self._keys[key] = node
        self._streams[frame.stream] = _Placed(node, key, is_errand=True)
        if errand.base in node.bases:
            node.running[key] = frame.stream
            self._to(node, frame)
            return
        node.pending.append((key, frame))
        if not node.offered:
            self._offer(node, errand.base)

    def _offer(self, node: Node, base: bytes) -> None:
        node.offered = base
        self._to(node, frame_of(wire.OFFER, wire.OfferedBase(self._bases[base])))

    def _cancel(self, frame: Frame) -> None:
        """Cancel an errand where it runs. One that waits here never starts."""
        cancel = message_of(frame, wire.CancelErrand)
        key = cancel.errand, cancel.attempt
        with self._lock:
            waiting = next((each for each in self._waiting if (each[0].errand, each[0].attempt) == key), None)
            placed = self._streams.get(frame.stream)
            if waiting is not None:
                self._waiting.remove(waiting)
                self._outcome(waiting[1].stream, key, "cancelled", "cancelled before it was placed")
            elif placed is not None and key in placed.node.running:
                self._to(placed.node, frame)
            elif placed is not None:
                pending = [each for each in placed.node.pending if each[0] == key]
                for each in pending:
                    placed.node.pending.remove(each)
                    self._forget(each[1].stream)
                    self._outcome(each[1].stream, key, "cancelled", "cancelled before it was sent to its node")

    def _about(self, frame: Frame, key: Key, *, is_answered: bool) -> None:
        """Pass a request about an errand on to its node."""
        with self._lock:
            node = self._keys.get(key)
            if node is None or node.is_gone:
                if is_answered:
                    self._fail(frame.stream, "the node of this errand is not in the cluster now")
                return
            if is_answered:
                self._streams[frame.stream] = _Placed(node, key, is_errand=False)
            else:
                del self._keys[key]
            self._to(node, frame)

    def _answer(self, frame: Frame) -> None:
        answer = message_of(frame, wire.Answer)
        with self._lock:
            node, number = self._questions.pop(answer.number, (None, 0))
            if node is not None and not node.is_gone:
                self._to(node, frame_of(wire.ANSWER, answer._replace(number=number), frame.stream))

    # --- a node's end ---

    def _read_node(self, node: Node) -> None:
        reader, reason = FrameReader(LIMITS, LIMIT), "its worker has ended"
        try:
            while data := node.relay.read():
                for frame in reader.feed(data):
                    self._hear(node, frame)
        except MudroomError as error:
            reason = error.message
        except KeyError:
            reason = "it asked for objects that are not of its base"
        self._gone(node, reason)

    def _write_node(self, node: Node) -> None:
        try:
            while (data := node.outgoing.take()) is not None:
                node.relay.write(data)
            if not node.is_gone:
                node.relay.end()
        except MudroomError as error:
            self._gone(node, error.message)

    def _hear(self, node: Node, frame: Frame) -> None:
        if frame.kind == wire.HELLO:
            self._greeted_by(node, message_of(frame, wire.WorkerHello))
        elif frame.kind == wire.WANT:
            self._send_objects(node, message_of(frame, wire.Want))
        elif frame.kind == wire.READY:
            self._ready(node, message_of(frame, wire.Ready).base)
        elif frame.kind == wire.FAILED and frame.stream == 0:
            self._not_ready(node)
        elif frame.kind == wire.BYE:
            raise RelayError(message_of(frame, wire.Bye).reason or "its worker has ended")
        elif frame.kind == wire.ASK:
            self._ask(node, frame)
        elif frame.kind == wire.DIAL:
            dial = message_of(frame, wire.Dial)
            self._to(node, frame_of(wire.DIALLED, wire.Dialled(dial.number, "a coordinator passes no connections on")))
        elif frame.kind not in (wire.PONG, wire.DATA, wire.SHUT):
            self._pass_on(node, frame)

    def _greeted_by(self, node: Node, hello: wire.WorkerHello) -> None:
        if hello.protocol != wire.PROTOCOL:
            raise RelayError(f"its mudroom {hello.mudroom} speaks protocol {hello.protocol}, not {wire.PROTOCOL}")
        with self._greeted:
            node.hello = hello
            for held in hello.held:
                self._keys.setdefault((held.errand, held.attempt), node)
            self._place()
            self._greeted.notify_all()

    def _send_objects(self, node: Node, want: wire.Want) -> None:
        for pack in packs((*want.nodes, *want.files), self._store):
            node.outgoing.wait_for_room(len(pack))
            self._to(node, Frame(wire.OBJECTS, 0, pack))

    def _ready(self, node: Node, base: bytes) -> None:
        with self._lock:
            if base != node.offered:
                raise LinkError("is ready for a base that was not offered")
            node.bases.add(base)
            node.offered = b""
            pending, node.pending = node.pending, []
            for key, frame in pending:
                errand = message_of(frame, wire.Errand)
                if errand.base in node.bases:
                    node.running[key] = frame.stream
                    self._to(node, frame)
                else:
                    node.pending.append((key, frame))
                    if not node.offered:
                        self._offer(node, errand.base)

    def _not_ready(self, node: Node) -> None:
        """The base cannot be had there: its errands are given to others."""
        with self._lock:
            node.refused.add(node.offered)
            node.offered = b""
            self._place_again(node)
            self._place()

    def _place_again(self, node: Node) -> None:
        """Put the errands that were not sent to a node back. Hold ``_lock``."""
        pending, node.pending = node.pending, []
        for key, frame in pending:
            self._forget(frame.stream)
            del self._keys[key]
            self._waiting.append((message_of(frame, wire.Errand), frame))

    def _ask(self, node: Node, frame: Frame) -> None:
        ask = message_of(frame, wire.Ask)
        with self._lock:
            self._require_own(node, frame.stream)
            if len(self._questions) >= MOST_QUESTIONS:
                self._to(node, frame_of(wire.ANSWER, wire.Answer(ask.number, b""), frame.stream))
                return
            self._asked += 1
            self._questions[self._asked] = node, ask.number
        self._tell(frame_of(wire.ASK, ask._replace(number=self._asked), frame.stream))

    def _pass_on(self, node: Node, frame: Frame) -> None:
        if frame.kind not in PASSED_ON:
            raise LinkError(f"sent a frame of the unknown kind {frame.kind}")
        said: object = message_of(
            frame, wire.TYPES[frame.kind]
        )  # what cannot be read ends this node, not the origin's link
        with self._lock:
            placed = self._require_own(node, frame.stream)
            if placed is None:
                return
            is_over = frame.kind in (wire.OUTCOME, wire.FAILED)
            if isinstance(said, (wire.Accepted, wire.ErrandOutcome)) and (said.errand, said.attempt) != placed.key:
                raise LinkError("spoke about an errand on the stream of another")
            if isinstance(said, wire.ArchivePart):
                is_over = said.is_last
            if is_over:
                self._forget(frame.stream)
                node.running.pop(placed.key, None)
                if frame.kind == wire.FAILED and placed.is_errand:
                    self._keys.pop(placed.key, None)
                self._place()
        self._tell(frame)

    def _require_own(self, node: Node, stream: int) -> _Placed | None:
        """Return what a stream is for; None: the origin waits for nothing there. Raise LinkError if it is another
        node's."""
        placed = self._streams.get(stream)
        if placed is not None and placed.node is not node:
            raise LinkError("spoke about another node's errand")
        return placed

    def _gone(self, node: Node, reason: str) -> None:
        """A node is gone: its errands are lost, those that were not sent are placed again."""
        with self._lock:
            if node.is_gone:
                return
            node.is_gone = True
            lost = [(stream, placed) for stream, placed in self._streams.items() if placed.node is node]
            self._place_again(node)
            for stream, placed in lost:
                if self._streams.pop(stream, None) is None:
                    continue
                if placed.is_errand:
                    self._outcome(stream, placed.key, "lost", f"the node {node.name} is gone: {reason}")
                else:
                    self._fail(stream, f"the node {node.name} is gone: {reason}")
            node.running.clear()
            for number in [number for number, asked in self._questions.items() if asked[0] is node]:
                del self._questions[number]
            self._place()
            self._greeted.notify_all()
            if self._hello and not self._is_leaving and all(each.is_gone for each in self._nodes):
                self._tell(frame_of(wire.BYE, wire.Bye(f"no node of the cluster is left; {node.name}: {reason}")))
        node.outgoing.end()
        node.relay.close()

    # --- telling ---

    def _forget(self, stream: int) -> None:
        self._streams.pop(stream, None)

    def _outcome(self, stream: int, key: Key, state: str, reason: str) -> None:
        outcome = wire.ErrandOutcome(*key, state, 0, 0, False, 0.0, 0.0, 0, 0, 0, 0, "", 0, b"", -1, b"", reason)
        self._tell(frame_of(wire.OUTCOME, outcome, stream))

    def _fail(self, stream: int, reason: str, hint: str = "") -> None:
        self._tell(frame_of(wire.FAILED, wire.Failed(reason, hint), stream))

    def _to(self, node: Node, frame: Frame) -> None:
        if not node.outgoing.put(encode(frame)):
            threading.Thread(target=self._gone, args=(node, "it does not read what is sent to it"), daemon=True).start()

    def _tell(self, frame: Frame) -> None:
        """Write a frame to the origin. One that is gone misses nothing: outcomes are kept at the nodes."""
        data = memoryview(encode(frame))
        with self._writing:
            while data and not self._is_deaf:
                try:
                    data = data[os.write(self._write, data) :]
                except OSError:
                    self._is_deaf = True

    def _leave(self) -> None:
        """End the nodes' pipes, and wait until their workers have ended: at the latest with the lease."""
        with self._lock:
            self._is_leaving = True
            nodes, threads = list(self._nodes), list(self._threads)
        for node in nodes:
            node.outgoing.end()
        for thread in threads:
            thread.join()


def _is_able(node: Node, errand: wire.Errand) -> bool:
    return (
        node.hello is not None
        and not node.is_gone
        and (errand.level is None or errand.level in node.hello.levels)
        and errand.base not in node.refused
    )


def _preference(node: Node, errand: wire.Errand) -> tuple[bool, bool, float]:
    is_coming = errand.base == node.offered
    return errand.base in node.bases, is_coming, node.free / max(node.relay.places, 1)
