"""Packs: what is written is read, and bytes that are no pack store nothing."""

from __future__ import annotations

import os
import random
import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom.ext.fleet.base.manifest import FILE, Row, digest_of_content, digest_of_node, encode_node
from mudroom.ext.fleet.base.objects import ObjectStore
from mudroom.ext.fleet.base.pack import PACK, PART, RefusedPack, packs, parse, unpack
from tiers import examples


class Everything:
    """Contains every digest."""

    def __contains__(self, _digest: object) -> bool:
        return True


class Contents:
    """Objects in memory, as an ``ObjectReader``."""

    def __init__(self, *contents: bytes, nodes: tuple[bytes, ...] = ()) -> None:
        self.nodes = {digest_of_node(node): node for node in nodes}
        self.all = {digest_of_content(data): data for data in contents} | self.nodes

    def size(self, digest: bytes) -> int:
        return len(self.all[digest])

    def is_node(self, digest: bytes) -> bool:
        return digest in self.nodes

    def read(self, digest: bytes, offset: int, length: int) -> bytes:
        return self.all[digest][offset : offset + length]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(os.fsencode(tmp_path / "objects"))


def frame(*rows: object, contents: bytes = b"", method: int = 0) -> bytes:
    table = msgspec.msgpack.encode(list(rows))
    payload = struct.pack(">I", len(table)) + table + contents
    return bytes([method]) + (zlib.compress(payload) if method == 1 else payload)


NODE = encode_node([Row(b"a", FILE, 0o644, 0, 1, digest_of_content(b"1"))])


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 3 << 20), st.booleans()), max_size=8), st.integers(0, 99))
def test_packs_hold_the_objects_in_order_and_are_bounded(sizes: list[tuple[int, bool]], seed: int) -> None:
    draw = random.Random(seed)
    contents = [draw.randbytes(size) if noise else draw.randbytes(1) * size for size, noise in sizes]
    objects = Contents(*contents, nodes=(NODE,))
    frames = list(packs(objects.all, objects))
    assert all(len(each) <= PACK for each in frames)
    read = [(row.digest, row.offset, bytes(data)) for each in frames for row, data in parse(each)]
    joined: dict[bytes, bytes] = {}
    for digest, offset, data in read:
        assert offset == len(joined.get(digest, b""))
        joined[digest] = joined.get(digest, b"") + data
    assert list(joined.items()) == list(objects.all.items())


@pytest.mark.parametrize("size", [PART - 1, PART, PART + 1, PACK, 3 * PACK + 5])
def test_a_file_that_is_larger_than_a_part_arrives(store: ObjectStore, size: int) -> None:
    large = random.Random(size).randbytes(size)
    objects = Contents(b"before", large, b"after", nodes=(NODE,))
    complete = [digest for each in packs(objects.all, objects) for digest in unpack(each, store, objects.all)]
    assert sorted(complete) == sorted(objects.all)
    assert all(store.get(digest) == data for digest, data in objects.all.items())
    assert store.node(digest_of_node(NODE)) == NODE


def test_what_can_be_compressed_is_and_noise_is_not() -> None:
    text, noise = Contents(b"line\n" * 400_000), Contents(os.urandom(2_000_000))
    assert sum(map(len, packs(text.all, text))) < 20_000
    assert sum(map(len, packs(noise.all, noise))) < 2_000_200


def test_what_is_missing_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        list(packs([digest_of_content(b"x")], Contents()))


ONE, TWO = digest_of_content(b"1"), digest_of_content(b"22")
LARGE = digest_of_content(bytes(PART + 1))
HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "a method": lambda: b"\0",
    "another method": lambda: b"\7" + frame((False, ONE, 1, 0, 1), contents=b"1")[1:],
    "rows of 2^32 bytes": lambda: b"\0\xff\xff\xff\xff\x90",
    "no rows": lambda: b"\0\0\0\0\0",
    "2^32 rows": lambda: b"\0\0\0\0\5\xdd\xff\xff\xff\xff",
    "too large": lambda: bytes(PACK + 1),
    "no zlib": lambda: b"\1garbage",
    "cut zlib": lambda: frame((False, ONE, 1, 0, 1), contents=b"1", method=1)[:-3],
    "zlib and more": lambda: frame((False, ONE, 1, 0, 1), contents=b"1", method=1) + b"x",
    "a zlib bomb": lambda: b"\1" + zlib.compress(bytes(200 << 20)),
    "a zlib bomb in zlib": lambda: b"\1" + zlib.compress(zlib.compress(bytes(200 << 20)) * 3),
    "another content": lambda: frame((False, ONE, 1, 0, 1), contents=b"2"),
    "a node as a file": lambda: frame((True, ONE, 1, 0, 1), contents=b"1"),
    "a file as a node": lambda: frame((False, digest_of_node(NODE), len(NODE), 0, len(NODE)), contents=NODE),
    "bytes behind the last": lambda: frame((False, ONE, 1, 0, 1), contents=b"11"),
    "bytes that are missing": lambda: frame((False, ONE, 1, 0, 1)),
    "a size of 2^32": lambda: frame((False, ONE, 1 << 32, 0, 1), contents=b"1"),
    "a size of 2^63": lambda: frame((False, ONE, (1 << 63) - 1, 0, 1), contents=b"1"),
    "a cut number": lambda: b"\0\0\0\0\1\xcf",
    "a length below 0": lambda: frame((False, ONE, 1, 0, -1)),
    "a length beyond the size": lambda: frame((False, ONE, 1, 0, 2), contents=b"11"),
    "an offset below 0": lambda: frame((False, ONE, 1, -1, 1), contents=b"1"),
    "an offset beyond the size": lambda: frame((False, ONE, 1, 2, 1), contents=b"1"),
    "an offset that overflows": lambda: frame((False, ONE, 1, (1 << 63) - 1, 1), contents=b"1"),
    "small parts": lambda: frame((False, TWO, 2, 0, 1), (False, TWO, 2, 1, 1), contents=b"22"),
    "a later part": lambda: frame((False, LARGE, PART + 1, PART, 1), contents=b"\0"),
    "a part that is taken from nowhere": lambda: frame((False, ONE, 1, 0, 1, 0)),
    "a part that is taken before the start": lambda: frame((False, ONE, 1, 0, 1, -2), contents=b"1"),
    "a short digest": lambda: frame((False, ONE[:5], 1, 0, 1), contents=b"1"),
    "a digest as text": lambda: frame((False, "1" * 32, 1, 0, 1), contents=b"1"),
    "a number for a boolean": lambda: frame((1, ONE, 1, 0, 1), contents=b"1"),
    "a short row": lambda: frame((False, ONE, 1, 0), contents=b"1"),
    "a node of 4 GiB": lambda: frame((True, ONE, 1 << 32, 0, PART), contents=bytes(PART)),
    "pickle": lambda: b"\0\0\0\0\4cos\nsystem\n",
}
"""Made by the test: every process in a run imports this file, and one runs its tests."""


def test_a_hostile_pack_stores_nothing(store: ObjectStore) -> None:
    hostile = {why: make() for why, make in HOSTILE.items()}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = []
    for why, each in hostile.items():
        try:
            unpack(each, store, Everything())
        except RefusedPack as error:
            assert "\n" not in str(error), why
        else:
            taken.append(why)
    assert taken == []
    assert store.used() == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_a_pack_with_one_wrong_object_stores_none(store: ObjectStore) -> None:
    with pytest.raises(RefusedPack, match="not "):
        unpack(frame((False, ONE, 1, 0, 1), (False, TWO, 2, 0, 2), contents=b"123"), store, {ONE, TWO})
    assert not store.has(ONE)


def test_an_object_that_was_not_asked_for_is_not_stored(store: ObjectStore) -> None:
    with pytest.raises(RefusedPack, match="not asked for"):
        unpack(frame((False, ONE, 1, 0, 1), contents=b"1"), store, {TWO})
    assert store.used() == 0


@pytest.mark.parametrize("damage", ["other", "again", "skipped", "another size", "another kind"])
def test_parts_have_to_follow_each_other(store: ObjectStore, damage: str) -> None:
    large = random.Random(1).randbytes(3 * PART)
    digest = digest_of_content(large)
    parts = [large[at : at + PART] for at in range(0, 3 * PART, PART)]

    def part(number: int, *, size: int = 3 * PART, is_node: bool = False) -> bytes:
        return frame((is_node, digest, size, number * PART, PART), contents=parts[number])

    before, wrong, why = {
        "other": ([part(0), part(1)[:-1] + bytes([part(1)[-1] ^ 1])], part(2), "not "),
        "again": ([part(0), part(1)], part(1), "follow"),
        "skipped": ([part(0)], part(2), "follow"),
        "another size": ([part(0)], part(1, size=4 * PART), "follow"),
        "another kind": ([part(0)], part(1, is_node=True), "follow"),
    }[damage]
    for each in before:
        unpack(each, store, {digest})
    with pytest.raises(RefusedPack, match=why):
        unpack(wrong, store, {digest})
    assert not store.has(digest)
    for number in range(3):  # it can be sent again
        unpack(part(number), store, {digest})
    assert store.get(digest) == large


@settings(max_examples=examples(3000))
@given(st.binary(max_size=120), st.integers(0, 1 << 32))
def test_no_bytes_break_the_reader(noise: bytes, seed: int) -> None:
    draw = random.Random(seed)
    good = bytearray(
        frame((False, ONE, 1, 0, 1), (True, digest_of_node(NODE), len(NODE), 0, len(NODE)), contents=b"1" + NODE)
    )
    for _ in range(draw.randrange(4)):
        good[draw.randrange(len(good))] = draw.randrange(256)
    for each in (noise, b"\0" + noise, b"\1" + zlib.compress(noise), bytes(good), bytes(good)[: draw.randrange(99)]):
        try:
            rows = list(parse(each))
        except RefusedPack:
            continue
        assert all(len(data) == row.length for row, data in rows)
