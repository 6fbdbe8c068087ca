"""A coordinator with an origin that is a test, and nodes that do what a test says. No test is here."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mudroom.ext.fleet.base.manifest import base_id
from mudroom.ext.fleet.base.objects import ObjectStore
from mudroom.ext.fleet.base.pack import packs, unpack
from mudroom.ext.fleet.base.scan import Scanned, ScannedObjects
from mudroom.ext.fleet.engine.cluster_node import RelayError
from mudroom.ext.fleet.engine.coordinator import Coordinator
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame, FrameReader, encode
from mudroom.ext.fleet.wire.message import frame_of, message_of

ORIGIN = "ab" * 16
PATIENCE = 10.0


class FrameSource:
    """Frames that a test puts in; None: the end."""

    def __init__(self) -> None:
        self._frames: queue.Queue[Frame | None] = queue.Queue()

    def put(self, frame: Frame | None) -> None:
        self._frames.put(frame)

    def next(self) -> Frame | None:
        return self._frames.get()


class ScriptedNode:
    """A worker behind a relay. ``received``: the frames that were written to it. It says hello, is ready for any base
    after it has asked for all of it, and accepts errands; ``reply`` tells the rest."""

    def __init__(
        self, name: str, slots: int = 2, levels: tuple[int, ...] = (1,), protocol: int = wire.PROTOCOL
    ) -> None:
        self.name, self.slots, self.levels, self.protocol = name, slots, levels, protocol
        self.received: queue.Queue[Frame] = queue.Queue()
        self.errands: dict[str, int] = {}
        """Streams by errand."""
        self.objects = 0
        self.is_closed = self.is_ended = False
        self.wants: tuple[bytes, ...] = ()
        """Digests that it asks for when a base is offered."""
        self.refuses_bases = False
        self._replies: queue.Queue[bytes | Exception] = queue.Queue()
        self._reader = FrameReader()
        self._offered = b""
        self._gate = threading.Event()
        self._gate.set()

    def read(self) -> bytes:
        data = self._replies.get()
        if isinstance(data, Exception):
            raise data
        return data

    def write(self, data: bytes) -> None:
        self._gate.wait()
        for frame in self._reader.feed(data):
            self._handle(frame)

    def end(self) -> None:
        self.is_ended = True
        self._replies.put(b"")

    def close(self) -> None:
        self.is_closed = True
        self._gate.set()
        self._replies.put(RelayError("closed"))

    def stall(self) -> None:
        """Take nothing that is written from now on."""
        self._gate.clear()

    def resume(self) -> None:
        self._gate.set()

    def disconnect(self) -> None:
        self._replies.put(RelayError("the node was switched off"))

    def reply(self, kind: int, message: object, stream: int = 0) -> None:
        self._replies.put(encode(frame_of(kind, message, stream)))

    def reply_bytes(self, data: bytes) -> None:
        self._replies.put(data)

    def finish(self, errand: str, *, state: str = "ended") -> None:
        self.reply(wire.OUTCOME, outcome(errand, state), self.errands[errand])

    def _handle(self, frame: Frame) -> None:
        if frame.kind == wire.HELLO:
            hello = wire.WorkerHello(self.protocol, "0", 2, "x", "k", self.levels, 64, 100, 1000, "local")
            self.reply(wire.HELLO, hello)
        elif frame.kind == wire.OFFER:
            self._offered = base_id(message_of(frame, wire.OfferedBase).base)
            if self.refuses_bases:
                self.reply(wire.FAILED, wire.Failed("no room", "", self._offered))
            elif self.wants:
                self.reply(wire.WANT, wire.Want(self._offered, self.wants, ()))
            else:
                self.reply(wire.READY, wire.Ready(self._offered))
        elif frame.kind == wire.OBJECTS:
            self.objects += len(frame.body)
            self.reply(wire.READY, wire.Ready(self._offered))
        elif frame.kind == wire.ERRAND:
            errand = message_of(frame, wire.Errand)
            self.errands[errand.errand] = frame.stream
            self.reply(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), frame.stream)
        self.received.put(frame)

    def wait_for(self, kind: int) -> Frame:
        """Return the next frame with a kind that was written to it."""
        while True:
            frame = self.received.get(timeout=PATIENCE)
            if frame.kind == kind:
                return frame


def outcome(errand: str, state: str = "ended") -> wire.ErrandOutcome:
    return wire.ErrandOutcome(errand, 1, state, 0, 0, False, 1.0, 1.0, 1, 1, 0, 0, "f", 0, b"", -1, b"")


class Origin:
    """The origin's end on a link to a coordinator."""

    def __init__(self, write: FrameSource, read: int) -> None:
        self._write, self._read = write, read
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        self._streams = 0

    def send(self, kind: int, message: object, stream: int = 0) -> None:
        self._write.put(frame_of(kind, message, stream))

    def send_frame(self, frame: Frame | None) -> None:
        self._write.put(frame)

    def next(self) -> Frame:
        while not self._frames:
            data = os.read(self._read, 1 << 20)
            assert data, "the coordinator is gone"
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def wait_for(self, kind: int, stream: int | None = None) -> Frame:
        """Return the next frame with a kind, on a stream; others are passed over."""
        while True:
            frame = self.next()
            if frame.kind == kind and stream in (None, frame.stream):
                return frame

    def send_base(self, scanned: Scanned) -> int:
        """Send a base. Return the bytes in packs."""
        size = 0
        self.send(wire.OFFER, wire.OfferedBase(scanned.base))
        with ScannedObjects(scanned) as objects:
            while (frame := self.next()).kind != wire.READY:
                want = message_of(frame, wire.Want)
                for pack in packs((*want.nodes, *want.files), objects):
                    size += len(pack)
                    self.send_frame(Frame(wire.OBJECTS, 0, pack))
        return size

    def run(self, base: bytes, errand: str, *, level: int | None = None) -> int:
        """Send an errand. Return its stream."""
        self._streams += 1
        message = wire.Errand(errand, 1, base, (b"true",), b"", (), level, b"", 0.0)
        self.send(wire.ERRAND, message, self._streams)
        return self._streams


@contextmanager
def coordinated(tmp_path: Path, *nodes: ScriptedNode) -> Iterator[Origin]:
    """A coordinator with these nodes. All are ended with the block."""
    read, write = os.pipe()
    frames = FrameSource()
    coordinator = Coordinator(write, "test", ObjectStore(os.fsencode(tmp_path / "cluster")))
    hello = wire.OriginHello(wire.PROTOCOL, "0", ORIGIN, "lab", 60.0)
    thread = threading.Thread(target=coordinator.serve, args=(hello, frames, nodes), daemon=True)
    thread.start()
    try:
        yield Origin(frames, read)
    finally:
        frames.put(None)
        thread.join(PATIENCE)
        assert not thread.is_alive()
        os.close(read)
        os.close(write)


def objects_of(frame: Frame, store: ObjectStore, wanted: set[bytes]) -> list[bytes]:
    return unpack(frame.body, store, wanted)


def until(condition: Callable[[], bool]) -> None:
    """Wait until a thread has made the condition true."""
    waiting = threading.Event()
    for _turn in range(1000):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come")
