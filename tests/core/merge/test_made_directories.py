"""Which changes of repositories and linked directories that a fork made are left out."""

from __future__ import annotations

import pytest

from mudroom.core.merge.made_directories import left_out, remarks_on
from mudroom.core.merge.made_undo import repositories_in, undo_of_repositories
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.choice import select_below, select_exactly
from mudroom.core.tree.entry import Entry
from tiers import each


def added(path: str, *flags: str) -> Change:
    kind = "directory" if path.endswith("/") else "file"
    entry = Entry(kind, 0o755, 0, b"", 1, 1, 1, 0, 0, 0, 0)  # type: ignore[arg-type]
    return Change(path.rstrip("/").encode(), "added", None, entry, flags=flags)


def repository(top: str, *flags: str) -> list[Change]:
    names = ("/", "/HEAD", "/config", "/refs/")
    return [added(top + name, "new-repository", *flags) for name in names]


def left(changes: list[Change], *named: str, live: tuple[bytes, ...] = ()) -> set[str]:
    judged = left_out(changes, {name.encode() for name in named}, live.__contains__)
    return {path.decode() for path, stays in judged.items() if stays}


ALL = {"x/.git", "x/.git/HEAD", "x/.git/config", "x/.git/refs"}


def test_a_harmless_repository_is_taken_unless_the_project_has_one_there() -> None:
    changes = [added("x/"), *repository("x/.git"), added("x/a")]
    assert left(changes) == set()
    assert left(changes, live=(b"x/.git",)) == ALL


@pytest.mark.parametrize(
    ("named", "stays"),
    [
        ((), ALL),
        (("x",), ALL),
        (("x/.git/config",), ALL),
        (("x/.git",), set()),
        (("x/.git/HEAD", "x/.git/config"), set()),
    ],
)
def test_another_one_is_taken_whole_or_not_at_all(named: tuple[str, ...], stays: set[str]) -> None:
    assert left([added("x/"), *repository("x/.git", "protected"), *repository("y/.git")], *named) == stays


@each(
    ("named", "taken"),
    [
        ((), set()),
        (("a",), set()),
        (("a/wt",), {"a/wt", "a/wt/d", "a/wt/d/f", "a/wt/f"}),
        (("a/wt/d",), {"a/wt", "a/wt/d", "a/wt/d/f"}),
        (("a/wt/d/f",), {"a/wt", "a/wt/d", "a/wt/d/f"}),
        (("a/wt/.git",), {"a/wt", "a/wt/.git"}),
    ],
)
def test_files_of_a_work_tree_are_taken_if_they_are_named(named: tuple[str, ...], taken: set[str]) -> None:
    paths = ("a/wt/", "a/wt/.git", "a/wt/d/", "a/wt/d/f", "a/wt/f")
    changes = [added("a/"), *(added(path, "protected", "work-tree") for path in paths)]
    assert {path.rstrip("/") for path in paths} - left(changes, *named) == taken


def test_the_directory_of_a_submodule_is_taken_empty() -> None:
    changes = [added("s/", "submodule"), *(added(path, "protected", "submodule") for path in ("s/.git", "s/f"))]
    assert left(changes) == {"s/.git", "s/f"}
    assert left(changes, "s") == {"s/.git"}
    assert left(changes[1:], "s") == {"s/.git"}, "the project has the directory"


def test_a_repository_is_selected_whole() -> None:
    changes = [added("x/"), *repository("x/.git"), added("x/a"), added("y")]
    for select in (select_below, select_exactly):
        paths = {change.path for change in select(changes, [b"x/.git/HEAD"])}
        assert paths == {b"x"} | {path.encode() for path in ALL}
        assert {change.path for change in select(changes, [b"y"])} == {b"y"}


def test_only_remarks_about_what_was_left_out_are_told() -> None:
    remarks = (Remark(b"wt", "is a work tree that the fork made"), Remark(b"wt/f", "is a socket"))
    assert remarks_on([b"wt/a"], remarks) == remarks[:1]
    assert remarks_on([b"x"], remarks) == ()


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
