"""A worker in a few lines, over two pipes, that does what a test says: honest until a hook is replaced."""

from __future__ import annotations

import os
import threading
from _blake2 import blake2b
from collections.abc import Callable, Iterator
from typing import Any

from mudroom.ext.fleet.base.manifest import base_id
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame, FrameReader, LinkError, encode

HELLO = wire.WorkerHello(
    wire.PROTOCOL, "0.1.0", 2, os.uname().machine, "Linux 6", (0, 1, 2), 4, 1 << 33, 1 << 40, "local"
)


class ScriptedWorker:
    """The origin's end is ``reader`` and ``writer`` (a ``Transport``). The script runs in a thread."""

    def __init__(self, archive: bytes = b"", **hooks: Callable[..., Any]) -> None:
        self.archive, self._hooks = archive, hooks
        self.reader, self._output = os.pipe()
        self._input, self.writer = os.pipe()
        self.received: list[Frame] = []
        self.recorded = bytearray()
        """All bytes that the origin sent."""
        self.held: tuple[wire.HeldErrand, ...] = ()
        self.digest = blake2b(archive, digest_size=32).digest()
        self.is_ended = self.is_killed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # --- what the origin's link calls ---

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def exit_reason(self) -> str:
        return ""

    def was_killed(self) -> bool:
        return self.is_killed

    # --- what scripts call ---

    def raw(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._output, view) :]

    def send(self, kind: int, message: object, stream: int = 0) -> None:
        self.raw(encode(wire.frame_of(kind, message, stream)))

    def end(self) -> None:
        """End the pipe, as a process that is killed."""
        self.is_ended = True

    def outcome(self, errand: wire.Errand, /, **fields: Any) -> wire.ErrandOutcome:
        usual = wire.ErrandOutcome(
            errand.errand, errand.attempt, "ended", 0, 0, False, 0.1, 0.05, 9000, 1, 1, 0, "f", len(self.archive),
            self.digest, -1, b"",
        )  # fmt: skip
        return usual._replace(**fields)

    # --- the script ---

    def _run(self) -> None:
        frames = FrameReader()
        try:
            for data in self._blocks():
                self.recorded += data
                for frame in frames.feed(data):
                    self.received.append(frame)
                    self._handle(frame)
                    if self.is_ended:
                        return
        except (BrokenPipeError, LinkError):
            pass
        finally:
            os.close(self._output)
            os.close(self._input)

    def _blocks(self) -> Iterator[bytes]:
        while data := os.read(self._input, 1 << 16):
            yield data

    def _handle(self, frame: Frame) -> None:
        if frame.kind == wire.HELLO:
            self._call_hook("hello", None)
        elif frame.kind == wire.PING:
            self.send(wire.PONG, wire.Pong(wire.message_of(frame, wire.Ping).number, 0, 0.0, 1 << 40))
        elif frame.kind == wire.OFFER:
            self._call_hook("offer", wire.message_of(frame, wire.OfferedBase).base)
        elif frame.kind == wire.ERRAND:
            self._call_hook("errand", wire.message_of(frame, wire.Errand), frame.stream)
        elif frame.kind == wire.FETCH:
            self._call_hook("fetch", wire.message_of(frame, wire.Fetch), frame.stream)
        elif frame.kind == wire.CANCEL:
            self._call_hook("cancel", wire.message_of(frame, wire.CancelErrand), frame.stream)
        elif frame.kind == wire.KEPT:
            self._call_hook("kept", wire.message_of(frame, wire.Kept), frame.stream)
        elif frame.kind == wire.ANSWER:
            self._call_hook("answer", wire.message_of(frame, wire.Answer), frame.stream)
        elif frame.kind == wire.BYE:
            self.end()

    def _call_hook(self, name: str, *arguments: Any) -> None:
        hook = self._hooks.get(name)
        (hook or getattr(self, "_" + name))(*((self,) if hook else ()), *arguments)

    def _hello(self, _nothing: None) -> None:
        self.send(wire.HELLO, HELLO._replace(held=self.held))

    def _offer(self, base: wire.Base) -> None:
        self.send(wire.READY, wire.Ready(base_id(base)))

    def _errand(self, errand: wire.Errand, stream: int) -> None:
        self.send(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), stream)
        self.send(wire.OUTCOME, self.outcome(errand), stream)

    def _fetch(self, fetch: wire.Fetch, stream: int) -> None:
        if fetch.offset < 0:
            self.send(wire.OUTCOME, self.outcome(of(fetch)), stream)
            return
        for at in range(fetch.offset, len(self.archive), 1000):
            part = self.archive[at : at + 1000]
            self.send(wire.ARCHIVE, wire.ArchivePart(at, part, at + 1000 >= len(self.archive)), stream)

    def _cancel(self, cancel: wire.CancelErrand, stream: int) -> None:
        self.send(wire.OUTCOME, self.outcome(of(cancel), state="cancelled", archive=0), stream)

    def _kept(self, _kept: wire.Kept, _stream: int) -> None:
        pass

    def _answer(self, _answer: wire.Answer, _stream: int) -> None:
        pass


def of(message: wire.Fetch | wire.CancelErrand | wire.Kept) -> wire.Errand:
    """Return an errand with another message's names."""
    return wire.Errand(message.errand, message.attempt, b"", (), b"", (), None, b"", 0.0)


class ScriptedFleet:
    """Workers by name. A worker that is started again is made again."""

    def __init__(self, **makers: Callable[[], ScriptedWorker]) -> None:
        self._makers = makers
        self.started: dict[str, list[ScriptedWorker]] = {name: [] for name in makers}

    @property
    def workers(self) -> list[FleetWorker]:
        return [FleetWorker(name, (b"scripted",)) for name in self._makers]

    def start(self, worker: FleetWorker) -> ScriptedWorker:
        made = self._makers[worker.name]()
        self.started[worker.name].append(made)
        return made

    def received(self, name: str, kind: int) -> list[Frame]:
        return [frame for made in self.started[name] for frame in made.received if frame.kind == kind]
