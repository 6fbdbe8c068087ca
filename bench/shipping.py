"""A base to two workers, beside ``rsync -a`` over a pipe to two directories: first, unchanged, a little of it changed.

The change is two files of many, or a block in the middle of one large file. The files are noise, which no method
compresses. Ours is everything: scan, digests, frames over two pipes to two processes, and the tree on disk. The workers
run at once, and so do the two of rsync. Every round has workers and directories of its own; the project's digests are
forgotten before it.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator

from bench.measure import Budget, Contestant, Finding, Lap, Rival, against, at_most_times, clocked, interleave
from bench.place import Place, Scale, new_place, tick
from mudroom.core.settings import Settings
from mudroom.ext.fleet.base.delta import packs_for
from mudroom.ext.fleet.base.objects import BaseReceiver, ObjectStore
from mudroom.ext.fleet.base.scan import Scanned, ScannedObjects, scan
from mudroom.ext.fleet.base.snapshot import SnapshotStore
from mudroom.ext.fleet.wire.frame import Frame, FrameReader, encode
from mudroom.ext.fleet.wire.message import OBJECTS, OFFER, READY, Base, OfferedBase, Want, frame_of, message_of
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.top_directory import spread

_WORKERS = 2
_SIZE, _PER_DIRECTORY = 2_048, 40
_LARGE_SHARE = 10_000
"""Bytes of the large file for each file of the tree: 200 MB beside 20,000 files."""


def shipping(base: bytes, scale: Scale) -> Iterator[Finding]:
    size = scale.tree * _LARGE_SHARE
    yield from _shipping(
        base,
        scale,
        f"{scale.tree:,} files",
        "two files changed",
        lambda place: fill_with_noise(place.project, scale.tree),
        _change_two,
    )
    yield from _shipping(
        base,
        scale,
        f"a file of {size // 1_000_000:,} MB",
        "a block changed",
        lambda place: _write_large(place, size),
        _change_block,
    )


def _shipping(
    base: bytes, scale: Scale, subject: str, last: str, fill: Callable[[Place], None], change: Callable[[Place], None]
) -> Iterator[Finding]:
    steps = ("first", "unchanged", last)
    with new_place(base, "shipping") as place:
        spread(place.root)
        fill(place)
        rivals = "rsync -a over a pipe"
        found = interleave(
            [
                _rounds("ship", place, steps, change, lambda number: _ship(place, number)),
                Rival(
                    _rounds(rivals, place, steps, change, lambda number: _rsync(place, number)),
                    *(f"{rivals}, {step}{what}" for step in steps for what in ("", ", bytes")),
                ),
            ],
            scale.attempts - 1 or 1,
            warm_up=0,
        )
    for step in steps:
        for what in ("", ", bytes"):
            key = f"{step}{what}"
            mine = found[f"ship, {key}"]._replace(unit="bytes" if what else "s")
            others = against(
                found, [f"{rivals}, {key}"], {f"{rivals}, {key}": _BUDGETS[key]} if key in _BUDGETS else {}
            )
            shown = tuple(each._replace(name=rivals, series=each.series._replace(unit=mine.unit)) for each in others)
            budget = _LIMITS.get(key)
            yield Finding("fleet", f"{subject} to two workers, {key}", mine, budget, shown)


_BUDGETS = {"first": at_most_times(1.3), "first, bytes": at_most_times(1.1)}
_LIMITS = {
    "unchanged, bytes": Budget("≤ 1 kB a worker", lambda ours, _other: ours <= _WORKERS * 1_000),
    "two files changed, bytes": Budget("≤ 40 kB a worker", lambda ours, _other: ours <= _WORKERS * 40_000),
    "a block changed, bytes": Budget("≤ 2 MB a worker", lambda ours, _other: ours <= _WORKERS * 2_000_000),
}


def fill_with_noise(directory: bytes, files: int) -> None:
    for start in range(0, files, _PER_DIRECTORY):
        below = directory + b"/d%03d/e%03d" % (start // 1000, start // _PER_DIRECTORY)
        os.makedirs(below)
        for number in range(start, min(start + _PER_DIRECTORY, files)):
            with open(below + b"/f%06d" % number, "wb") as stream:
                stream.write(os.urandom(_SIZE))


def _change_two(place: Place) -> None:
    paths = [os.path.join(at, names[0]) for at, _below, names in os.walk(place.project) if names]
    for path in (paths[0], paths[-1]):
        with open(path, "r+b") as stream:
            stream.write(os.urandom(_SIZE))


def _write_large(place: Place, size: int) -> None:
    with open(place.project + b"/large", "wb") as stream:
        for start in range(0, size, 1 << 20):
            stream.write(os.urandom(min(1 << 20, size - start)))


def _change_block(place: Place) -> None:
    with open(place.project + b"/large", "r+b") as stream:
        stream.seek(os.fstat(stream.fileno()).st_size // 2)
        stream.write(os.urandom(4096))


def _rounds(
    name: str,
    place: Place,
    steps: tuple[str, ...],
    change: Callable[[Place], None],
    way: Callable[[int], tuple[float, int]],
) -> Contestant:
    """The three steps of one round. ``way`` ships once to each worker, and returns seconds and bytes."""
    directories = [place.root + b"/to-%d" % number for number in range(_WORKERS)]

    def measure() -> Iterator[Lap]:
        for directory in directories:
            os.mkdir(directory, 0o700)
        try:
            for step in steps:
                if step == steps[-1]:
                    change(place)
                tick()
                seconds, size = way(_WORKERS)
                yield f"{name}, {step}", seconds
                yield f"{name}, {step}, bytes", size
        finally:
            for directory in directories:
                remove_tree(directory)
            if os.path.lexists(place.root + b"/digests"):
                os.unlink(place.root + b"/digests")

    return measure


# --- ours ---


def _ship(place: Place, workers: int) -> tuple[float, int]:
    sizes: list[int] = []

    def one(scanned: Scanned, number: int) -> None:
        sizes.append(ship(scanned, place.root + b"/to-%d" % number))

    def everything() -> None:
        cache = place.root + b"/digests"
        scanned = scan(place.project, Settings(copy_limit=1 << 40), home=place.home, umask=0o022, cache=cache)
        threads = [threading.Thread(target=one, args=(scanned, number)) for number in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    seconds, _made = clocked(everything)
    if len(sizes) != workers:
        raise RuntimeError("a worker failed")
    return seconds, sum(sizes)


def ship(scanned: Scanned, directory: bytes) -> int:
    """Send a base to a new process that keeps it in ``directory``. Return the bytes of both directions."""
    to_worker, to_origin = os.pipe(), os.pipe()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(to_worker[1])
            os.close(to_origin[0])
            _receive(to_worker[0], to_origin[1], directory)
            status = 0
        finally:
            os._exit(status)
    os.close(to_worker[0])
    os.close(to_origin[1])
    try:
        return _send(scanned, to_origin[0], to_worker[1])
    finally:
        os.close(to_worker[1])
        os.close(to_origin[0])
        if os.waitpid(process, 0)[1]:
            raise RuntimeError("the worker failed")


def _send(scanned: Scanned, read: int, write: int) -> int:
    size = _put(write, frame_of(OFFER, OfferedBase(scanned.base)))
    reader = FrameReader()
    with ScannedObjects(scanned) as objects:
        while data := os.read(read, 1 << 20):
            size += len(data)
            for frame in reader.feed(data):
                if frame.kind == READY:
                    return size
                for pack in packs_for(message_of(frame, Want), objects):
                    size += _put(write, Frame(OBJECTS, 0, pack))
    raise RuntimeError("the worker is gone")


def _receive(read: int, write: int, directory: bytes) -> None:
    store = ObjectStore(directory + b"/objects")
    snapshots = SnapshotStore(directory + b"/grounds", store)

    def complete(_name: bytes, base: Base) -> None:
        snapshots.acquire(base)

    receiver = BaseReceiver(store, snapshots.missing, complete, snapshots.similar)
    reader = FrameReader()
    while data := os.read(read, 1 << 20):
        for frame in reader.feed(data):
            is_offer = frame.kind == OFFER
            answer = receiver.offer(message_of(frame, OfferedBase).base) if is_offer else receiver.receive(frame.body)
            if answer is not None:
                _put(write, answer)
                if answer.kind == READY:
                    return


def _put(descriptor: int, frame: Frame) -> int:
    data = memoryview(encode(frame))
    size = len(data)
    while data:
        data = data[os.write(descriptor, data) :]
    return size


# --- rsync ---


def _rsync(place: Place, workers: int) -> tuple[float, int]:
    """rsync(1), whose remote shell is a program that runs the server here: two processes over two pipes."""
    shell = place.root + b"/shell"
    if not os.path.lexists(shell):
        with open(shell, "wb") as stream:
            stream.write(b'#!/bin/sh\nshift\nexec "$@"\n')
        os.chmod(shell, 0o755)
    argv = ["rsync", "-a", "--stats", "--rsh", os.fsdecode(shell)]
    to = [os.fsdecode(place.root) + f"/to-{number}/" for number in range(workers)]

    def everything() -> list[str]:
        started = [
            subprocess.Popen(
                [*argv, os.fsdecode(place.project) + "/", f"here:{each}"], stdout=subprocess.PIPE, text=True
            )
            for each in to
        ]
        outputs = [process.communicate()[0] for process in started]
        for process in started:
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, argv)
        return outputs

    seconds, outputs = clocked(everything)
    return seconds, sum(_bytes_of(output) for output in outputs)


def _bytes_of(stats: str) -> int:
    lines = [line for line in stats.splitlines() if line.startswith(("Total bytes sent", "Total bytes received"))]
    return sum(int(line.partition(": ")[2].replace(",", "")) for line in lines)
