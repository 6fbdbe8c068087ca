"""A Merkle manifest's nodes: one encoding for each directory, and no other is taken."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mudroom.ext.fleet.base.manifest import (
    DIRECTORY,
    EMPTY,
    FILE,
    NODE_LIMIT,
    SYMLINK,
    RefusedBase,
    Row,
    TreeLimits,
    base_id,
    decode_node,
    digest_of_content,
    digest_of_node,
    encode_node,
    measure,
    require_base,
    walk,
)
from mudroom.ext.fleet.wire.message import Base
from tiers import examples

ONE = digest_of_content(b"1")
BASE = Base(ONE, b"/home/ann/p", b"/home/ann", (b".env",), (b"build",), 0o022)

NAMES = st.binary(min_size=1, max_size=255).filter(
    lambda name: name not in (b".", b"..") and b"/" not in name and b"\0" not in name
)
MODES = st.integers(0, 0o777)
ROWS = st.one_of(
    st.builds(
        lambda name, mode, time, size: Row(name, FILE, mode, time, size, ONE if size else EMPTY),
        NAMES,
        MODES,
        st.integers(-(1 << 61), 1 << 61),
        st.integers(0, 1 << 62),
    ),
    st.builds(lambda name, mode: Row(name, DIRECTORY, mode, 0, 0, ONE), NAMES, MODES),
    st.builds(
        lambda name, target: Row(name, SYMLINK, 0, 0, 0, target),
        NAMES,
        st.binary(min_size=1, max_size=4095).filter(lambda target: b"\0" not in target),
    ),
)


def pack(*rows: object) -> bytes:
    return msgspec.msgpack.encode(list(rows))


@settings(max_examples=examples(800))
@given(st.lists(ROWS, max_size=8, unique_by=lambda row: row.name))
def test_a_node_is_read_as_it_was_written_whatever_the_order(rows: list[Row]) -> None:
    node = encode_node(rows)
    assert decode_node(node) == sorted(rows)
    assert encode_node(rows[::-1]) == node


FILE_ROW = (b"a", "f", 0o644, 1, 1, ONE)
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "no list": pack()[:0] + b"\xc0",
    "a map": b"\x80",
    "bytes behind it": pack(FILE_ROW) + b"\0",
    "an announced 2^32 rows": b"\xdd\xff\xff\xff\xff" + pack(FILE_ROW)[1:],
    "an announced name of 2^32 bytes": b"\x91\x96\xc6\xff\xff\xff\xffa",
    "a deep list": b"\x91" * 5000,
    "a name with a slash": pack((b"a/b", *FILE_ROW[1:])),
    "an absolute name": pack((b"/etc", *FILE_ROW[1:])),
    "dot": pack((b".", *FILE_ROW[1:])),
    "dot dot": pack((b"..", *FILE_ROW[1:])),
    "no name": pack((b"", *FILE_ROW[1:])),
    "a name with NUL": pack((b"a\0b", *FILE_ROW[1:])),
    "a long name": pack((b"a" * 256, *FILE_ROW[1:])),
    "a name as text": pack(("a", *FILE_ROW[1:])),
    "a name twice": pack(FILE_ROW, FILE_ROW),
    "a name twice, of two kinds": pack(FILE_ROW, (b"a", "l", 0, 0, 0, b"b")),
    "not in order": pack((b"b", *FILE_ROW[1:]), FILE_ROW),
    "a FIFO": pack((b"a", "p", 0o644, 0, 0, b"")),
    "a device": pack((b"a", "c", 0o644, 0, 0, b"\1\3")),
    "another kind": pack((b"a", 1, 0o644, 1, 1, ONE)),
    "set-uid": pack((b"a", "f", 0o4755, 1, 1, ONE)),
    "set-gid directory": pack((b"a", "d", 0o2755, 0, 0, ONE)),
    "sticky": pack((b"a", "d", 0o1777, 0, 0, ONE)),
    "a mode below 0": pack((b"a", "f", -1, 1, 1, ONE)),
    "a size below 0": pack((b"a", "f", 0o644, 1, -1, ONE)),
    "a size of 2^63": pack((b"a", "f", 0o644, 1, 1 << 63, ONE)),
    "a size that is no number": pack((b"a", "f", 0o644, 1, 1.5, ONE)),
    "a time beyond times": pack((b"a", "f", 0o644, 1 << 62, 1, ONE)),
    "a short digest": pack((b"a", "f", 0o644, 1, 1, ONE[:31])),
    "a long digest": pack((b"a", "d", 0o755, 0, 0, ONE + b"1")),
    "an empty file with another digest": pack((b"a", "f", 0o644, 1, 0, ONE)),
    "the digest of the empty file, with a size": pack((b"a", "f", 0o644, 1, 1, EMPTY)),
    "a directory with a size": pack((b"a", "d", 0o755, 0, 1, ONE)),
    "a directory with a time": pack((b"a", "d", 0o755, 1, 0, ONE)),
    "a link with a mode": pack((b"a", "l", 0o777, 0, 0, b"b")),
    "a link to nothing": pack((b"a", "l", 0, 0, 0, b"")),
    "a link with NUL": pack((b"a", "l", 0, 0, 0, b"b\0")),
    "a link of 4,096 bytes": pack((b"a", "l", 0, 0, 0, b"b" * 4096)),
    "a short row": pack(FILE_ROW[:5]),
    "a long row": pack((*FILE_ROW, 1)),
    "a long form of a number": pack(FILE_ROW).replace(b"\x01\x01\xc4", b"\x01\xcc\x01\xc4"),
    "a long form of a list": b"\xdc\x00\x01" + pack(FILE_ROW)[1:],
    "a reference to itself as text": pack((b"a", "d", 0o755, 0, 0, "a" * 32)),
    "pickle": b"cos\nsystem\n(S'id'\ntR.",
}


def test_a_node_that_is_not_as_it_is_written_is_refused() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = []
    for why, node in HOSTILE.items():
        try:
            decode_node(node)
        except RefusedBase as error:
            assert "\n" not in str(error), why
        else:
            taken.append(why)
    assert taken == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_a_node_beyond_the_limit_is_not_decoded() -> None:
    with pytest.raises(RefusedBase, match="bytes"):
        decode_node(b"\x90" + bytes(NODE_LIMIT))


@settings(max_examples=examples(4000))
@given(st.binary(max_size=200), st.integers(0, 1 << 32))
@example(b"\x90", 0)
def test_bytes_are_refused_or_are_the_only_form_of_their_rows(noise: bytes, seed: int) -> None:
    draw = random.Random(seed)
    node = bytearray(pack(FILE_ROW, (b"b", "d", 0o755, 0, 0, ONE), (b"c", "l", 0, 0, 0, b"../x")))
    for _ in range(draw.randrange(4)):
        node[draw.randrange(len(node))] = draw.randrange(256)
    for each in (noise, bytes(node), bytes(node) + noise, bytes(node[: draw.randrange(len(node))])):
        try:
            rows = decode_node(each)
        except RefusedBase:
            continue
        assert encode_node(rows) == each


def test_rows_that_no_node_may_hold_are_not_written() -> None:
    with pytest.raises(ValueError, match="name"):
        encode_node([Row(b"..", FILE, 0o644, 0, 1, ONE)])


# --- trees ---


def tree(*nodes: list[Row]) -> tuple[bytes, Callable[[bytes], bytes]]:
    """Return the last node's digest, and a reader for all."""
    stored = {digest_of_node(encode_node(rows)): encode_node(rows) for rows in nodes}
    return digest_of_node(encode_node(nodes[-1])), stored.__getitem__


def chain(depth: int, *, twice: bool, size: int = 1) -> tuple[bytes, Callable[[bytes], bytes]]:
    rows = [Row(b"f", FILE, 0o644, 0, size, ONE)]
    nodes = [rows]
    for _ in range(depth):
        below = digest_of_node(encode_node(rows))
        rows = [Row(name, DIRECTORY, 0o755, 0, 0, below) for name in ((b"a", b"b") if twice else (b"a",))]
        nodes.append(rows)
    return tree(*nodes)


def test_a_tree_is_measured_without_walking_it() -> None:
    root, read = chain(10, twice=True)
    size = measure(root, read)
    assert (size.entries, size.size, size.depth) == (2**11 - 2 + 2**10, 2**10, 11)
    assert sum(len(rows) for _path, rows in walk(root, read)) == size.entries


def test_bombs_are_refused_in_the_time_of_their_nodes() -> None:
    asked = 0

    def counted(read: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def reading(digest: bytes) -> bytes:
            nonlocal asked
            asked += 1
            return read(digest)

        return reading

    for (root, read), why in (
        (chain(60, twice=True), "entries"),  # 2^60 files in 61 nodes
        (chain(5000, twice=False), "directories in a row"),
        (chain(3, twice=True, size=1 << 62), "bytes"),
        (chain(1, twice=False, size=1 << 40), "bytes"),
    ):
        asked = 0
        with pytest.raises(RefusedBase, match=why):
            measure(root, counted(read))
        assert asked <= 5001
    root, read = chain(4, twice=True)
    with pytest.raises(RefusedBase, match="more than 20 entries"):
        measure(root, read, TreeLimits(entries=20))


def test_a_missing_node_is_a_key_error() -> None:
    root, _read = chain(2, twice=False)
    nothing: dict[bytes, bytes] = {}
    with pytest.raises(KeyError):
        measure(root, nothing.__getitem__)


def test_no_file_has_the_digest_of_a_node() -> None:
    node = encode_node([])
    assert digest_of_node(node) != digest_of_content(node)


def test_the_id_of_a_base_depends_on_each_field() -> None:
    others = [
        BASE._replace(root=EMPTY),
        BASE._replace(project=b"/p"),
        BASE._replace(home=b"/h"),
        BASE._replace(masked=()),
        BASE._replace(masked=(b".env", b"x")),
        BASE._replace(excluded=()),
        BASE._replace(umask=0o077),
    ]
    assert len({base_id(base) for base in (BASE, *others)}) == 1 + len(others)


def test_an_impossible_base_is_refused() -> None:
    require_base(BASE)
    require_base(BASE._replace(project=b"/"))
    for base in (
        BASE._replace(root=ONE[:31]),
        BASE._replace(project=b"home"),
        BASE._replace(project=b""),
        BASE._replace(project=b"/home/../etc"),
        BASE._replace(project=b"/home//ann"),
        BASE._replace(home=b"/home/ann/"),
        BASE._replace(home=b"/a\0"),
        BASE._replace(masked=(b"/etc/passwd",)),
        BASE._replace(masked=(b"a/../../b",)),
        BASE._replace(excluded=(b"",)),
        BASE._replace(umask=0o1000),
        BASE._replace(umask=-1),
    ):
        with pytest.raises(RefusedBase):
            require_base(base)
