"""Files replaced in trees, compared with a plain dictionary of files."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from mudroom.core.git.blob import blob_id, object_id
from mudroom.core.git.index import TreeItem
from mudroom.ext.commits.git.check import parse_tree
from mudroom.ext.commits.git.one_commit import edit_tree, encode_tree

FILE, TREE = 0o100644, 0o40000
EMPTY = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")


class Store:
    def __init__(self, id_length: int = 20) -> None:
        self.id_length, self.trees = id_length, dict[bytes, bytes]()

    def read(self, tree: bytes) -> Mapping[bytes, TreeItem]:
        return {
            name: TreeItem(int(entry.mode, 8), bytes.fromhex(entry.id.decode()))
            for name, entry in parse_tree(self.trees[tree], self.id_length).items()
        }

    def edit(self, root: bytes | None, changes: Mapping[bytes, TreeItem | None]) -> bytes:
        edited, new = edit_tree(self.read, root, changes, self.id_length)
        assert all(object_id(b"tree", data, self.id_length) == name for name, data in new.items())
        self.trees |= new
        return edited

    def files(self, tree: bytes, above: bytes = b"") -> dict[bytes, TreeItem]:
        found: dict[bytes, TreeItem] = {}
        for name, item in self.read(tree).items():
            found |= self.files(item.id, above + name + b"/") if item.mode == TREE else {above + name: item}
        return found


def item(text: str, id_length: int = 20) -> TreeItem:
    return TreeItem(FILE, blob_id(text.encode(), id_length))


def test_an_empty_tree_is_that_of_git() -> None:
    store = Store()
    assert store.edit(None, {}) == EMPTY
    assert store.edit(store.edit(None, {b"a/b": item("x")}), {b"a/b": None}) == EMPTY


def test_a_directory_is_sorted_as_git_sorts_it() -> None:
    entries = {b"a": TreeItem(TREE, bytes(20)), b"a-b": item("x"), b"a0": item("y")}
    assert [row[:3] for row in encode_tree(entries).split(b" ")[1:]] == [b"a-b", b"a\0\0", b"a0\0"]


def test_a_file_for_a_directory_and_the_other_way_round() -> None:
    store = Store()
    root = store.edit(None, {b"a/b": item("1"), b"c": item("2")})
    changed = store.edit(root, {b"a/b": None, b"a": item("3"), b"c": None, b"c/d/e": item("4")})
    assert store.files(changed) == {b"a": item("3"), b"c/d/e": item("4")}
    assert store.files(store.edit(root, {b"c": None, b"c/d": item("5")})) == {b"a/b": item("1"), b"c/d": item("5")}


@pytest.mark.parametrize("id_length", [20, 32])
def test_like_a_dictionary(id_length: int) -> None:
    chance = random.Random(7)
    store, root, model = Store(id_length), None, dict[bytes, TreeItem]()
    names = [b"a", b"b", b"a/x", b"a/y", b"a/z/p", b"a/z/q", b"b/r", b"a-c"]
    for step in range(300):
        changes: dict[bytes, TreeItem | None] = {}
        for path in chance.sample(names, 3):
            changes[path] = None if chance.random() < 0.4 else item(str(step), id_length)
        placed = [path for path, new in changes.items() if new is not None]
        if any(one != other and one.startswith(other + b"/") for one in placed for other in placed):
            continue
        for path in placed:
            for known in model:
                if known.startswith(path + b"/") or path.startswith(known + b"/"):
                    changes[known] = None
        root = store.edit(root, changes)
        for path, new in changes.items():
            model.pop(path, None)
            model |= {path: new} if new is not None else {}
        assert store.files(root) == model
