"""A small language for frames: an origin by hand, at the other end of ``mudroom worker --stdio``.

worker.hello()                                  → the worker's hello
worker.send_base(project)                       → the project's base id, once the worker has everything
stream = worker.start(base, b"make", "test")    → an accepted errand's stream
worker.outcome(stream)                          → its outcome; what came before is in ``worker.received``
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import forked
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.fleet.base.manifest import base_id
from mudroom.ext.fleet.base.pack import packs
from mudroom.ext.fleet.base.scan import Scanned, ScannedObjects, scan
from mudroom.ext.fleet.wire import message
from mudroom.ext.fleet.wire import settings as wire_settings
from mudroom.ext.fleet.wire.frame import Frame, FrameReader, encode
from mudroom.ext.fleet.wire.message import frame_of
from mudroom.ext.fleet.worker.stdio import serve

PATIENCE = 60.0
ORIGIN = "0123456789abcdef" * 2
GATED = Settings()


class Ended(Exception):
    """The worker has closed its end."""


class ScriptedOrigin:
    """``worker``: starts a worker with two descriptors, and ends it."""

    def __init__(self, worker: WorkerThread | WorkerProcess, home: Path, origin: str = ORIGIN) -> None:
        self.worker, self.home, self.origin = worker, home, origin
        theirs_read, self._write = os.pipe()
        self._read, theirs_write = os.pipe()
        worker.start(theirs_read, theirs_write)
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        self._streams = 0
        self.received: list[Frame] = []
        """Every frame that came."""

    # --- frames ---

    def raw(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._write, view) :]

    def send(self, kind: int, body: object, stream: int = 0) -> None:
        frame = Frame(kind, stream, body) if isinstance(body, bytes) else frame_of(kind, body, stream)
        self.raw(encode(frame))

    def next(self, timeout: float = PATIENCE) -> Frame:
        """Return the next frame. Raise Ended when the pipe has ended."""
        until = time.monotonic() + timeout
        while not self._frames:
            ready, _writable, _failed = select.select([self._read], [], [], max(until - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"no frame came; before: {[frame.kind for frame in self.received[-5:]]}")
            data = os.read(self._read, 1 << 18)
            if not data:
                raise Ended
            self._frames += self._reader.feed(data)
        frame = self._frames.pop(0)
        self.received.append(frame)
        return frame

    def expect(self, kind: int, stream: int | None = None, timeout: float = PATIENCE) -> Any:
        """Return the message in the next frame with this kind, on this stream. Frames before it are in ``received``."""
        while True:
            frame = self.next(timeout)
            if frame.kind == kind and stream in (None, frame.stream):
                return message_of(frame)
            if frame.kind == message.FAILED and stream == frame.stream:
                raise AssertionError(message_of(frame))

    def new_stream(self) -> int:
        self._streams += 1
        return self._streams

    # --- sentences ---

    def hello(self, lease: float = 60.0, node: str = "one") -> message.WorkerHello:
        self.send(message.HELLO, message.OriginHello(message.PROTOCOL, "test", self.origin, node, lease))
        hello: message.WorkerHello = self.expect(message.HELLO)
        return hello

    def send_base(self, project: Path, settings: Settings = GATED) -> bytes:
        scanned = scanned_project(project, settings, self.home)
        self.send(message.OFFER, message.OfferedBase(scanned.base))
        with ScannedObjects(scanned) as objects:
            while True:
                frame = self.next()
                if frame.kind == message.READY:
                    return base_id(scanned.base)
                assert frame.kind == message.WANT, message_of(frame)
                want = message_of(frame)
                for pack in packs([*want.nodes, *want.files], objects):
                    self.send(message.OBJECTS, pack)

    def start(self, base: bytes, *words: str | bytes, name: str = "errand-0001", **fields: Any) -> int:
        """Send an errand, and return its stream once it is accepted."""
        stream = self.offer(base, *words, name=name, **fields)
        self.expect(message.ACCEPTED, stream)
        return stream

    def offer(self, base: bytes, *words: str | bytes, name: str = "errand-0001", **fields: Any) -> int:
        stream = self.new_stream()
        self.send(message.ERRAND, errand(base, *words, name=name, **fields), stream)
        return stream

    def sh(self, base: bytes, script: str, name: str = "errand-0001", **fields: Any) -> int:
        return self.start(base, "sh", "-c", script, name=name, **fields)

    def outcome(self, stream: int, timeout: float = PATIENCE) -> message.ErrandOutcome:
        outcome: message.ErrandOutcome = self.expect(message.OUTCOME, stream, timeout)
        return outcome

    def failure(self, stream: int) -> message.Failed:
        while True:
            frame = self.next()
            if frame.kind == message.FAILED and frame.stream == stream:
                failed: message.Failed = message_of(frame)
                return failed

    def printed(self, stream: int, which: int = 1) -> bytes:
        """Return the output that has come, and check its offsets."""
        data = b""
        for frame in self.received:
            if frame.kind == message.OUT and frame.stream == stream:
                out = message_of(frame)
                if out.stream == which:
                    assert out.offset == len(data)
                    data += out.data
        return data

    def fetch(self, outcome: message.ErrandOutcome, offset: int = 0) -> bytes:
        stream = self.new_stream()
        self.send(message.FETCH, message.Fetch(outcome.errand, outcome.attempt, offset), stream)
        data = b""
        while True:
            part: message.ArchivePart = self.expect(message.ARCHIVE, stream)
            assert part.offset == offset + len(data)
            data += part.data
            if part.is_last:
                return data

    def fetch_outcome(self, name: str, attempt: int = 1) -> int:
        stream = self.new_stream()
        self.send(message.FETCH, message.Fetch(name, attempt, -1), stream)
        return stream

    # --- ends ---

    def close_input(self) -> None:
        """Close our end for writing."""
        writing, self._write = self._write, -1
        if writing >= 0:
            os.close(writing)

    def disconnect(self) -> None:
        """Close both pipes, as an origin that was killed."""
        self.close_input()
        reading, self._read = self._read, -1
        if reading >= 0:
            os.close(reading)

    @property
    def pid(self) -> int:
        assert isinstance(self.worker, WorkerProcess)
        return self.worker.pid

    def wait(self) -> int:
        return self.worker.wait()

    def errors(self) -> str:
        return self.worker.errors()

    def close(self) -> None:
        self.disconnect()
        self.worker.close()


class WorkerProcess:
    """``mudroom worker --stdio``, as an origin starts it."""

    def __init__(self, home: Path, *options: str) -> None:
        self._home, self._options = home, options

    def start(self, read: int, write: int) -> None:
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("XDG_", "MUDROOM_", "PYTHON", "LC_", "LANG"))
        }
        self.process: subprocess.Popen[bytes] = forked.popen(
            ["worker", "--stdio", *self._options],
            stdin=read,
            stdout=write,
            stderr=subprocess.PIPE,
            env={**ours, "HOME": str(self._home), "MUDROOM_KEEPER": "0", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
        os.close(read)
        os.close(write)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        """End it, and check that no process is left."""
        if self.process.poll() is None:
            self.process.terminate()
            self.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        assert list(processes_of(self.process.pid)) == []


class WorkerThread:
    """A worker in a thread of the test: it does the same, and it starts at once."""

    def __init__(self, home: Path, jobs: int = 2) -> None:
        self._home, self._jobs = home, jobs
        self._error: MudroomError | None = None

    def start(self, read: int, write: int) -> None:
        self._thread = threading.Thread(target=self._serve, args=(read, write))
        self._thread.start()

    def _serve(self, read: int, write: int) -> None:
        ours = {name: value for name, value in os.environb.items() if not name.startswith((b"XDG_", b"MUDROOM_"))}
        try:
            serve(read, write, {**ours, b"HOME": os.fsencode(self._home)}, self._jobs)
        except MudroomError as error:
            self._error = error
        finally:
            os.close(write)
            os.close(read)

    def wait(self) -> int:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return 0 if self._error is None else self._error.exit_code

    def errors(self) -> str:
        return "" if self._error is None else f"mudroom: {self._error}"

    def close(self) -> None:
        self.wait()


def message_of(frame: Frame) -> Any:
    kind = message.WorkerHello if frame.kind == message.HELLO else message.TYPES[frame.kind]
    return message.message_of(frame, kind)


def errand(base: bytes, *words: str | bytes, name: str = "errand-0001", **fields: Any) -> message.Errand:
    given: dict[str, Any] = {
        "attempt": 1, "cwd": b"", "variables": (), "level": None, "settings": Settings(), "timeout": 0.0,
    } | fields  # fmt: skip
    given["settings"] = wire_settings.encode(given["settings"])
    argv = tuple(word.encode() if isinstance(word, str) else word for word in words)
    return message.Errand(name, base=base, argv=argv, **given)


def scanned_project(project: Path, settings: Settings, home: Path) -> Scanned:
    cache = home / "digests"
    return scan(os.fsencode(project), settings, home=os.fsencode(home), umask=0o022, cache=os.fsencode(cache))


def processes_of(session: int) -> Iterator[str]:
    """Yield the command lines of a session's processes (setsid(2)), zombies left out."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if int(stat[3]) == session and stat[0] != "Z":
                    yield Path(f"/proc/{entry}/cmdline").read_text().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError):
                continue


def row_of(frame: Frame) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.json.decode(message_of(frame).row)
    return row
