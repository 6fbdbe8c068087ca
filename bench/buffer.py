"""The write buffer beside plain files: what an agent's file tool waits for, per call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from bench.measure import Contestant, Finding, Lap, against, at_most, interleave, seconds_of
from bench.place import Place, Scale, new_place
from mudroom.stage.beneath import open_root
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.buffer.files import Files
from mudroom.stage.layers.layer import LayerWriter, remove_tree
from mudroom.stage.source import OpenSource

_CONTENT = b"x" * 4000
_FILES = 100
_ROUNDS = 15


def buffers(base: bytes, scale: Scale) -> Iterator[Finding]:
    """Everything per call, or per file; files of 4 kB."""
    names = [b"src/package/f%03d.py" % number for number in range(_FILES)]
    with new_place(base, "buffer") as place:
        os.makedirs(place.project + b"/src/package")
        os.mkdir(place.root + b"/plain")
        for name in names:
            _write(place.project + b"/" + name)
        with OpenSource(place.project) as project, place.session() as session:
            session.forks.new("bench")
            contestants = _contestants(place, project, session.forks.files("bench"), names, max(1, scale.tree // 2000))
            found = interleave(contestants, _ROUNDS, warm_up=2)
    read, write = against(found, ["a plain file, read"]), against(found, ["a plain file, written"])
    yield Finding("buffer", "read what is in the buffer", found["hit"], at_most(5e-6, "5 µs"), read)
    yield Finding("buffer", "the same by Files.read, with a str for a path", found["tool"], None, read)
    yield Finding("buffer", "the same by the files of a session", found["session"], at_most(5e-6, "5 µs"), read)
    yield Finding("buffer", "read through it", found["through"], None, read)
    yield Finding("buffer", "write into it, over what is there", found["write"], None, write)
    yield Finding("buffer", "a new buffer", found["fork"], at_most(10e-6, "10 µs"))
    yield Finding("buffer", "write and flush into a layer, a file", found["flush"], None, write)


def _contestants(place: Place, project: OpenSource, staged: Files, names: list[bytes], times: int) -> list[Contestant]:
    root = place.root

    def new() -> Buffer:
        return Buffer(project, keep=lambda _path: None, spill=root + b"/spill")

    full, through = new(), new()
    for name in names:
        full.write(name, _CONTENT)
        staged.write(name, _CONTENT)
    files, texts = Files(lambda: full), [os.fsdecode(name) for name in names]

    def each(what: str, action: Callable[[bytes], object]) -> Contestant:
        return lambda: [(what, seconds_of(lambda: [action(name) for _ in range(times) for name in names]) / _calls)]

    _calls = times * len(names)

    def tool() -> Iterator[Lap]:
        yield "tool", seconds_of(lambda: [files.read(text) for _ in range(times) for text in texts]) / _calls

    def flush() -> Iterator[Lap]:
        os.mkdir(root + b"/layer")
        layer, buffer = open_root(root + b"/layer"), new()

        def write_and_flush() -> None:
            for name in names:
                buffer.write(name, _CONTENT)
            buffer.flush(LayerWriter(layer, project))

        try:
            yield "flush", seconds_of(write_and_flush) / len(names)
        finally:
            os.close(layer)
            remove_tree(root + b"/layer")

    return [
        each("hit", full.read),
        tool,
        each("session", staged.read),
        each("through", through.read),
        each("a plain file, read", lambda name: _read(root + b"/project/" + name)),
        each("write", lambda name: full.write(name, _CONTENT)),
        each("a plain file, written", lambda name: _write(root + b"/plain/" + name.rpartition(b"/")[2])),
        each("fork", lambda _name: new()),
        flush,
    ]


def _read(path: bytes) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def _write(path: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(_CONTENT)
