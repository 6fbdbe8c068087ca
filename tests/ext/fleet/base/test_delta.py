"""A large file of which an earlier version is there: what both have is not sent, and the result is verified."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from base_transfer import Worker, listing, make, scanned

from conftest import tick
from mudroom.ext.fleet.base.delta import LEAST, MOST_BLOCKS, described, packs_for, pieces
from mudroom.ext.fleet.base.manifest import Row, digest_of_content
from mudroom.ext.fleet.base.objects import MOST_SIMILAR, BaseReceiver
from mudroom.ext.fleet.base.pack import PART, RefusedPack, parse, unpack
from mudroom.ext.fleet.base.scan import Scanned, ScannedObjects
from mudroom.ext.fleet.wire.frame import LinkError
from mudroom.ext.fleet.wire.message import READY, Similar, Want, message_of

SIZE = 3 * LEAST + 12_345


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, length: data[offset : offset + length]


def rebuilt(old: bytes, new: bytes) -> tuple[bytes, int]:
    """Return the file that the pieces make of the old one, and the bytes that are sent for it."""
    made, sent = b"", 0
    for piece in pieces(len(new), reader(new), described(b"", len(old), reader(old))):
        assert piece.offset == len(made) and 0 < piece.length <= PART
        made += (old if piece.taken >= 0 else new)[max(piece.taken, -1) if piece.taken >= 0 else piece.offset :][
            : piece.length
        ]
        sent += piece.length if piece.taken < 0 else 0
    return made, sent


def edits(dice: random.Random, old: bytes) -> Iterator[tuple[str, bytes]]:
    at, length = dice.randrange(len(old)), dice.randrange(1, 5000)
    yield "replaced", old[:at] + dice.randbytes(length) + old[at + length :]
    yield "inserted", old[:at] + dice.randbytes(length) + old[at:]
    yield "deleted", old[:at] + old[at + length :]
    yield "appended", old + dice.randbytes(length)
    yield "prepended", dice.randbytes(length) + old
    yield "cut off", old[: len(old) - length]


@pytest.mark.parametrize("seed", range(3))
def test_one_edit_costs_its_bytes_and_three_blocks(seed: int) -> None:
    dice = random.Random(seed)
    old = dice.randbytes(SIZE)
    for edit, new in edits(dice, old):
        made, sent = rebuilt(old, new)
        assert made == new, edit
        assert sent <= 5000 + 3 * (1 << 16), edit


@pytest.mark.parametrize(
    ("old", "new"), [(b"", b"x"), (b"x", b""), (b"", b""), (bytes(SIZE), bytes(SIZE + 1)), (b"ab" * SIZE, b"ba" * SIZE)]
)
def test_any_two_files_are_rebuilt(old: bytes, new: bytes) -> None:
    assert rebuilt(old, new)[0] == new


def test_the_blocks_of_a_large_file_are_bounded() -> None:
    file = described(b"", 10 << 30, lambda _offset, _length: b"")
    assert (len(file.blocks), file.block) == (MOST_BLOCKS * 10, 1 << 20)


@pytest.mark.parametrize(
    "similar",
    [
        Similar(b"", 1 << 20, 0, b""),
        Similar(b"", 1 << 20, -1, b""),
        Similar(b"", -5, 1 << 16, b""),
        Similar(b"", 1 << 20, PART + 1, bytes(16)),
        Similar(b"", 1 << 20, 1 << 16, bytes(16 * 15)),
        Similar(b"", 1 << 62, 1, bytes(16)),
        Similar(b"", (MOST_BLOCKS + 1) << 4, 1 << 4, bytes(16 * (MOST_BLOCKS + 1))),
    ],
)
def test_impossible_blocks_end_the_link(similar: Similar) -> None:
    with pytest.raises(LinkError, match="cannot have"):
        list(pieces(10, reader(bytes(10)), similar))


# --- over a link ---


def shipped(worker: Worker, base: Scanned) -> tuple[Path, int, int]:
    """Ship a base as a link does. Return its tree, the bytes of packs, and the requests."""
    complete: list[bytes] = []
    receiver = BaseReceiver(
        worker.store,
        worker.snapshots.missing,
        lambda _name, offered: complete.append(worker.snapshots.acquire(offered)),
        worker.snapshots.similar,
    )
    size = rounds = 0
    with ScannedObjects(base) as objects:
        answer = receiver.offer(base.base)
        while answer.kind != READY:
            rounds += 1
            want, following = message_of(answer, Want), None
            for pack in packs_for(want, objects):
                size += len(pack)
                following = receiver.receive(pack)
            assert following is not None
            answer = following
    return Path(os.fsdecode(complete[0])), size, rounds


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make(tmp_path / "p", {f"large{number}": os.urandom(SIZE) for number in range(2)})


def change(path: Path) -> None:
    tick()
    with path.open("r+b") as stream:
        stream.seek(SIZE // 2)
        stream.write(os.urandom(4096))


def again(tmp_path: Path) -> Worker:
    """Return the worker of the next link, which has the last snapshot and no objects."""
    worker = Worker(tmp_path / "w")
    worker.store.evict(0)
    return worker


def test_a_changed_block_is_what_is_sent_of_a_large_file(tmp_path: Path, project: Path) -> None:
    worker = Worker(tmp_path / "w")
    assert shipped(worker, scanned(project))[1] > 2 * SIZE
    worker.close()
    change(project / "large0")
    worker = again(tmp_path)
    tree, size, _rounds = shipped(worker, scanned(project))
    assert listing(tree) == listing(project)
    assert size < 3 << 16
    worker.close()


def test_a_similar_file_that_is_damaged_is_sent_whole(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(tmp_path / "w")
    shipped(worker, scanned(project))
    worker.close()
    change(project / "large0")
    change(project / "large1")
    worker = again(tmp_path)
    read = worker.snapshots._read_similar

    def torn(row: Row, offset: int, length: int) -> bytes:
        return read(row, offset, length) if length <= 1 << 16 else b""  # blocks are described, and then not there

    monkeypatch.setattr(worker.snapshots, "_read_similar", torn)
    tree, size, _rounds = shipped(worker, scanned(project))
    assert listing(tree) == listing(project)
    assert 2 * SIZE < size < 3 * SIZE
    worker.close()


def test_many_similar_files_are_asked_for_in_turn(tmp_path: Path) -> None:
    count = MOST_SIMILAR + 2
    project = make(tmp_path / "p", {f"f{number}": os.urandom(LEAST) for number in range(count)})
    worker = Worker(tmp_path / "w")
    shipped(worker, scanned(project))
    worker.close()
    tick()
    for path in project.iterdir():
        path.write_bytes(path.read_bytes() + b"more")
    worker = again(tmp_path)
    tree, size, rounds = shipped(worker, scanned(project))
    assert listing(tree) == listing(project)
    assert (rounds, size < count * (2 << 16)) == (3, True)
    worker.close()


def test_parts_may_be_taken_of_a_similar_file_alone(tmp_path: Path) -> None:
    old, new = os.urandom(LEAST), os.urandom(LEAST)
    project = make(tmp_path / "p", {"new": new})
    digest = digest_of_content(new)
    with ScannedObjects(scanned(project)) as objects:
        (pack,) = packs_for(Want(b"", (), (), (described(digest, LEAST, reader(new)),)), objects)
    assert len(pack) < 200
    worker = Worker(tmp_path / "w")
    with pytest.raises(RefusedPack, match="impossible row"):
        unpack(pack, worker.store, {digest})
    with pytest.raises(RefusedPack, match="is not"):
        unpack(pack, worker.store, {digest}, {digest: reader(old)})
    assert worker.store.used() == 0
    assert unpack(pack, worker.store, {digest}, {digest: reader(new)}) == [digest]
    assert [row.taken for row, _data in parse(pack, {digest})] == [0]
    worker.close()
