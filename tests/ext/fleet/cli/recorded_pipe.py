"""A program between an origin and a worker that keeps every byte on both pipes, and a reader for its files.

    python recorded_pipe.py DIRECTORY COMMAND …

Each run writes two new files: ``PID.sent`` (origin to worker) and ``PID.received``. No test is here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from mudroom.ext.fleet.base.pack import parse
from mudroom.ext.fleet.wire.frame import FrameReader
from mudroom.ext.fleet.wire.message import OBJECTS, TYPES, ArchivePart, Errand, Out, message_of

BLOCK = 1 << 16


def main() -> int:
    directory, *command = sys.argv[1:]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert worker.stdin is not None and worker.stdout is not None
    beside = Path(directory) / str(os.getpid())
    sending = threading.Thread(target=_pass_on, args=(0, worker.stdin, beside.with_suffix(".sent")), daemon=True)
    sending.start()
    with os.fdopen(os.dup(1), "wb") as origin:
        _pass_on(worker.stdout.fileno(), origin, beside.with_suffix(".received"))
    return worker.wait()


def _pass_on(source: int, target: BinaryIO, kept: Path) -> None:
    with kept.open("wb") as file:
        while data := os.read(source, BLOCK):
            file.write(data)
            file.flush()
            try:
                target.write(data)
                target.flush()
            except BrokenPipeError:
                return
    target.close()


def texts(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yield everything that crossed, as it is and unpacked, each with a name: the streams, packed objects, errands'
    output, archives and settings; and the content of zlib or gzip streams within these."""
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        yield f"{path.name}, as it is", data
        joined: dict[tuple[str, int], bytearray] = defaultdict(bytearray)
        reader = FrameReader()
        for number, frame in enumerate(reader.feed(data)):
            name = f"{path.name}, frame {number} of kind {frame.kind}"
            if frame.kind == OBJECTS:
                for row, content in parse(frame.body):
                    yield f"{name}, object {row.digest.hex()[:8]}", bytes(content)
            elif frame.kind in TYPES:
                message: object = message_of(frame, TYPES[frame.kind])
                yield f"{name}, read", repr(msgspec.to_builtins(message)).encode()
                if isinstance(message, Errand):
                    yield f"{name}, settings", message.settings
                if isinstance(message, Out):
                    joined[f"{path.name}, output {message.stream}", frame.stream] += message.data
                if isinstance(message, ArchivePart):
                    joined[f"{path.name}, archive", frame.stream] += message.data
        assert reader.is_between_frames, f"{path.name} ends within a frame"
        for (name, stream), pieces in joined.items():
            whole = bytes(pieces)
            yield f"{name} of {stream}", whole
            yield from _unpacked(f"{name} of {stream}", whole)


def _unpacked(name: str, data: bytes, deep: int = 3) -> Iterator[tuple[str, bytes]]:
    """Yield the contents of gzip and zlib streams in ``data``, wherever they start."""
    if not deep:
        return
    for magic, bits in (
        (b"\x1f\x8b\x08", 31),
        (b"\x78\x01", 15),
        (b"\x78\x5e", 15),
        (b"\x78\x9c", 15),
        (b"\x78\xda", 15),
    ):
        at = data.find(magic)
        while at >= 0:
            try:
                content = zlib.decompressobj(bits).decompress(data[at:], 1 << 28)
            except zlib.error:
                content = b""
            if content:
                yield f"{name}, unpacked at {at}", content
                if bits == 31:
                    yield from _unpacked(f"{name}, unpacked at {at}", content, deep - 1)
            at = data.find(magic, at + 1)


if __name__ == "__main__":
    sys.exit(main())
