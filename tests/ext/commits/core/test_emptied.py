"""Emptied forms of masked files are recognised in trees and indexes."""

from __future__ import annotations

import hashlib

from mudroom.core.git.index import TreeItem
from mudroom.ext.commits.core.emptied import EMPTY_BLOBS, Emptied
from tiers import each

ID = EMPTY_BLOBS[20]
EMPTY = TreeItem(0o100644, ID)
FULL = TreeItem(0o100644, b"\1" * 20)


def test_ids_of_the_empty_blob() -> None:
    for length, name in ((20, "sha1"), (32, "sha256")):
        assert hashlib.new(name, b"blob 0\0").digest() == EMPTY_BLOBS[length]


@each(
    ("path", "item", "bases", "expected"),
    [
        (b"keys/server.key", EMPTY, (), True),
        (b"keys/server.key", EMPTY, (None, FULL), True),
        (b"keys/server.key", EMPTY._replace(mode=0o100755), (FULL,), True),
        (b"moved/elsewhere/server.key", EMPTY, (None,), True),
        (b"server.key", EMPTY, (), True),
        (b"keys/server.key", EMPTY, (EMPTY,), False),  # it was empty before
        (b"keys/server.key", EMPTY, (FULL, EMPTY), False),  # it is empty in one parent of a merge
        (b"keys/server.key", FULL, (), False),
        (b"keys/server.key", None, (FULL,), False),
        (b"keys/server.key", TreeItem(0o160000, ID), (), False),
        (b"keys/server.key", TreeItem(0o120000, ID), (), False),
        (b"keys/other.key", EMPTY, (), False),
        (b"server.key/__init__.py", EMPTY, (), False),
        (b"not-server.key", EMPTY, (), False),
    ],
)
def test_entries(path: bytes, item: TreeItem | None, bases: tuple[TreeItem | None, ...], expected: bool) -> None:
    assert Emptied([b"keys/server.key"]).is_emptied(path, item, bases) is expected


def test_sha256() -> None:
    empty = TreeItem(0o100644, EMPTY_BLOBS[32])
    assert Emptied([b"a.key"]).is_emptied(b"a.key", empty)
    assert not Emptied([b"a.key"]).is_emptied(b"a.key", empty, [empty])


def test_no_masked_files() -> None:
    assert not Emptied([])
    assert Emptied([b"a"])
    assert not Emptied([]).is_emptied(b"a.key", EMPTY)
