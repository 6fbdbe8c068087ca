"""Replace files in a tree: builds the trees that a new commit needs. Pure; format: gitformat-pack(5), "tree"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mudroom.core.git.blob import object_id
from mudroom.core.git.index import TreeItem

_TREE = 0o40000

ReadTree = Callable[[bytes], Mapping[bytes, TreeItem]]
"""Return a tree's entries by its binary id."""


def edit_tree(
    read: ReadTree, root: bytes | None, changes: Mapping[bytes, TreeItem | None], id_length: int = 20
) -> tuple[bytes, dict[bytes, bytes]]:
    """Apply ``changes`` to a tree. Return the result's binary id, and the new trees' content by id.

    ``root``: the present tree's id, or None. A change is a file by path, or None to remove it. A file replaces a
    directory at its path, and the reverse. Directories without files are removed.
    """
    new: dict[bytes, bytes] = {}
    item = _edited(read, root, changes, id_length, new)
    if item is None:
        data = b""
        item = object_id(b"tree", data, id_length)
        new[item] = data
    return item, new


def _edited(
    read: ReadTree,
    tree: bytes | None,
    changes: Mapping[bytes, TreeItem | None],
    id_length: int,
    new: dict[bytes, bytes],
) -> bytes | None:
    entries = dict(read(tree)) if tree is not None else {}
    below: dict[bytes, dict[bytes, TreeItem | None]] = {}
    for path, item in changes.items():
        name, slash, rest = path.partition(b"/")
        if slash:
            below.setdefault(name, {})[rest] = item
        elif item is not None:
            entries[name] = item
        elif name in entries and entries[name].mode != _TREE:
            del entries[name]
    for name, inside in below.items():
        present = entries.get(name)
        is_file = present is not None and present.mode != _TREE
        if is_file and not any(inside.values()):
            continue  # the files below are gone, and a file is there now
        under = present.id if present is not None and not is_file else None
        directory = _edited(read, under, inside, id_length, new)
        if directory is not None:
            entries[name] = TreeItem(_TREE, directory)
        else:
            entries.pop(name, None)
    if not entries:
        return None
    data = encode_tree(entries)
    edited = object_id(b"tree", data, id_length)
    if edited != tree:
        new[edited] = data
    return edited


def encode_tree(entries: Mapping[bytes, TreeItem]) -> bytes:
    """Return a tree with these entries, in git's order: a directory is sorted as if its name ended with a slash."""
    ordered = sorted(entries.items(), key=lambda row: row[0] + b"/" if row[1].mode == _TREE else row[0])
    return b"".join(b"%o %s\0" % (item.mode, name) + item.id for name, item in ordered)
