"""A new repository goes whole with an undo, or stays whole."""

from __future__ import annotations

from mudroom.core.merge.made_undo import repositories_in, undo_of_repositories
from mudroom.core.tree.entry import Entry
from tiers import each


def entry(mtime: int, kind: str = "file") -> Entry:
    return Entry(kind, 0o644, 1, b"", 1, mtime, 1, 0, 0, mtime, 0)  # type: ignore[arg-type]


TREE = {b".git": entry(1, "directory"), b".git/HEAD": entry(1), b".git/index": entry(1), b"a": entry(1)}


@each(
    ("change", "stays"),
    [
        ({}, False),
        ({b"a": entry(2)}, False),
        ({b".git/index": entry(2)}, False),
        ({b".git/HEAD": entry(2)}, True),
        ({b".git/index": None}, True),
        ({b".git/objects/aa": entry(1)}, True),
    ],
)
def test_whether_a_repository_stays(change: dict[bytes, Entry | None], stays: bool) -> None:
    live = {path: each for path, each in (TREE | change).items() if each is not None}
    undo = undo_of_repositories([b".git"], TREE, live)
    assert undo.staying == ({b".git"} if stays else set())
    assert undo.tree[b".git/index"] == (TREE if stays else live)[b".git/index"]
    assert undo.tree[b"a"] == TREE[b"a"]


def test_where_repositories_are() -> None:
    assert repositories_in(b"x", [b"a", b".git", b".git/HEAD", b"b/.git", b".git/c/.git"]) == [b".git", b"b/.git"]
    assert repositories_in(b"x/.git", [b"HEAD"]) == [b""]
