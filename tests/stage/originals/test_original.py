"""Originals of a stack of layers: the first time counts, and an index that has grown is read anew."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mudroom.core.tree.entry import Entry
from mudroom.stage.file_cache import FileCache
from mudroom.stage.originals.original import Originals, read_rows
from mudroom.stage.reader import ANEW, FileReader


def entry(size: int) -> Entry:
    return Entry("file", 0o644, size, b"", 1, 2, 1, 0, 0, 3, 4)


def content(originals: Originals, path: bytes) -> bytes | None:
    descriptor = originals.content(path)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read()


@pytest.fixture(params=["anew", "kept"])
def reading(request: pytest.FixtureRequest) -> FileReader:
    return ANEW if request.param == "anew" else FileCache(clock=lambda: time.time_ns() + 10**10)


@pytest.fixture
def layers(tmp_path: Path) -> list[bytes]:
    for name in ("bottom", "top"):
        (tmp_path / name).mkdir()
    return [os.fsencode(tmp_path / name) for name in ("bottom", "top")]


def keep(layers: list[bytes], **contents: bytes) -> None:
    originals = Originals(layers)
    for name, data in contents.items():
        originals.keep(name.encode(), entry(len(data)), data)
    originals.save()


def test_the_first_time_counts(layers: list[bytes], reading: FileReader) -> None:
    keep(layers[:1], a=b"first", b=b"only")
    keep(layers, a=b"second", c=b"later")
    found = Originals(layers, reading)
    assert [content(found, path) for path in (b"a", b"b", b"c", b"d")] == [b"first", b"only", b"later", None]
    assert list(found.paths()) == [b"a", b"b", b"c"]
    kept = found.get(b"c")
    assert kept is not None
    assert (kept.layer, kept.entry) == (layers[1], entry(5))


def test_of_two_layers_that_know_it_the_lower_counts(layers: list[bytes], reading: FileReader) -> None:
    keep(layers[1:], a=b"in the top one")
    keep(layers[:1], a=b"in the bottom one")
    found = Originals(layers, reading)
    assert content(found, b"a") == b"in the bottom one"
    assert list(found.paths()) == [b"a"]


def test_what_comes_later_is_known_at_once_and_to_the_next(layers: list[bytes], reading: FileReader) -> None:
    keep(layers[:1], a=b"1")
    before = Originals(layers[:1], reading)
    more = Originals(layers[:1], reading)
    more.keep(b"b", entry(1), b"2")
    more.keep(b"b", entry(1), b"3")
    assert (content(more, b"b"), list(more.paths())) == (b"2", [b"a", b"b"])
    more.save()
    assert (before.get(b"b"), content(Originals(layers[:1], reading), b"b")) == (None, b"2")


def test_none_at_all(layers: list[bytes], reading: FileReader) -> None:
    found = Originals(layers, reading)
    assert (bool(found), found.get(b"a"), list(found.paths())) == (False, None, [])
    found.keep(b"a", None)
    assert (bool(found), b"a" in found) == (True, True)


@pytest.mark.parametrize("damage", ["cut off", "garbled", "zeros"])
def test_the_whole_batches_of_a_damaged_index_are_used_and_the_next_batch_is_written_behind_them(
    layers: list[bytes], reading: FileReader, damage: str
) -> None:
    """Otherwise it would be read as the end of the batch that was cut off, and no original be known."""
    index = layers[0] + b"/originals/index"
    keep(layers[:1], a=b"1")
    whole = os.path.getsize(index)
    keep(layers[:1], b=b"2")
    with open(index, "r+b") as stream:
        stream.seek(whole + 8)
        stream.write({"cut off": b"", "garbled": b"\xc1", "zeros": bytes(os.path.getsize(index) - whole - 8)}[damage])
        if damage == "cut off":
            stream.truncate()
    found = Originals(layers[:1], reading)
    assert (content(found, b"a"), found.get(b"b")) == (b"1", None)
    keep(layers[:1], b=b"3")
    found = Originals(layers[:1], reading)
    assert (content(found, b"a"), content(found, b"b")) == (b"1", b"3")
    assert read_rows(Path(os.fsdecode(index)).read_bytes(), index)[1] == ""


def test_a_batch_of_zeros_was_cut_off_by_a_crash(layers: list[bytes]) -> None:
    keep(layers[:1], a=b"first")
    with open(layers[0] + b"/originals/index", "ab") as stream:
        stream.write(bytes(100))
    assert content(Originals(layers[:1]), b"a") == b"first"
