"""The user's index, when the checked-out commit moves: git-read-tree(1)'s two-tree merge, with git's lock file.

Entries that match the old commit become those in the new; staged entries stay. Stat data is filled in only where the
work tree file has its entry's content, so that git's plumbing sees it as unmodified at once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from mudroom.core.git.blob import blob_id, blob_ids
from mudroom.core.git.index import Index, IndexEntry, TreeItem, encode_index, parse_index
from mudroom.core.system.closing import Descriptor
from mudroom.errors import UsageError
from mudroom.ext.commits.git.check import parse_tree
from mudroom.ext.commits.git.repository import Repository
from mudroom.ext.commits.git.write import RepositoryWriter
from mudroom.stage import disk
from mudroom.stage.beneath import open_file, open_root
from mudroom.stage.source import Source, read_all
from mudroom.typing import NamedTuple
from mudroom.vault.sync import sync_directory

_HASH_LIMIT = 64 << 20
_WORD = 0xFFFFFFFF
_INDEX_LIMIT = 1 << 30


class IndexUpdate:
    """A lock on an index, with its new content. It is removed at the block's end unless ``commit`` is called."""

    def __init__(self, path: bytes, content: bytes | None) -> None:
        """``content``: None leaves the index alone."""
        self._path, self._is_open = path, content is not None

    def __enter__(self) -> IndexUpdate:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_open:
            os.unlink(self._path + b".lock")

    def commit(self) -> None:
        """Rename the lock to the index, durably."""
        if self._is_open:
            disk.rename_path(self._path + b".lock", self._path)
            self._is_open = False
            sync_directory(os.path.dirname(self._path))


def read_index(path: bytes, id_length: int) -> Index:
    """Return a repository's index, empty if there is none. Raise UsageError if it is damaged."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(_INDEX_LIMIT)
    except FileNotFoundError:
        return Index(())
    try:
        return parse_index(data, id_length)
    except ValueError as error:
        raise UsageError(f"the index of the repository is damaged: {error}", "git status shows it") from None


def index_obstacle(path: bytes, id_length: int) -> str:
    """Return why an index cannot move with its branch, as the end of a sentence; empty if it can."""
    if os.path.lexists(path + b".lock"):
        return "another git command has locked the index"
    try:
        index = read_index(path, id_length)
    except UsageError as error:
        return str(error)
    if any(entry.stage for entry in index.entries):
        return "the index has files in conflict"
    return "" if index.is_plain else "the index is split or sparse"


class IndexMove(NamedTuple):
    """The checked-out commit before and after; b"": no commit."""

    before: bytes
    after: bytes
    work_tree: bytes
    staged: frozenset[bytes] = frozenset()
    """Paths to leave alone."""


def move_index(live: Repository, path: bytes, move: IndexMove, *, again: bool = False) -> IndexUpdate:
    """Lock an index and prepare its move. Raise UsageError if it is locked or cannot be written. ``again``: as for
    ``create_lock_file``."""
    content = _moved(live, path, move)
    RepositoryWriter(live).create_lock(b"index", path + b".lock", content, again=again)
    try:
        if _moved(live, path, move) != content:
            raise UsageError("the index has changed meanwhile", "try again")
        _keep_time(path)
    except BaseException:
        os.unlink(path + b".lock")
        raise
    return IndexUpdate(path, content)


def _keep_time(path: bytes) -> None:
    """Give the new index the old one's time."""
    # git compares it with file times: a file edited in the old index's second, with equal size, would count as
    # unmodified (racy-git.txt)
    try:
        time = os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return
    os.utime(path + b".lock", ns=(time, time))


def _moved(live: Repository, path: bytes, move: IndexMove) -> bytes:
    id_length = live.format.oid_length
    index = read_index(path, id_length)
    if not index.is_plain:
        raise UsageError("the index is split, sparse or has files in conflict", "git status shows it")
    old, new = tree_difference(live, move.before, move.after)
    old, new = ({path: item for path, item in side.items() if path not in move.staged} for side in (old, new))
    entries = move_entries(index.entries, old, new)
    with Descriptor(open_root(move.work_tree)) as root:
        entries = [_with_stat(root, entry, id_length) if entry.path in new else entry for entry in entries]
    return encode_index(entries, id_length)


def move_entries(
    entries: Iterable[IndexEntry], old: Mapping[bytes, TreeItem], new: Mapping[bytes, TreeItem]
) -> list[IndexEntry]:
    """Return the entries after the checked-out commit has moved from tree ``old`` to tree ``new``.

    An entry equal to the old tree's becomes the new tree's; an entry that the user staged stays. This is
    git-read-tree(1)'s two-tree merge without its refusals. ``old`` and ``new`` need only the paths that differ.
    """
    present = {entry.path: entry for entry in entries}
    for path in old.keys() | new.keys():
        entry, before, after = present.get(path), old.get(path), new.get(path)
        if (entry.item if entry is not None else None) != before or before == after:
            continue
        if after is None:
            del present[path]
        else:
            fresh = IndexEntry(path, after)
            present[path] = fresh if entry is None else entry._replace(item=after, stat=fresh.stat)
    return list(present.values())


def _with_stat(root: int, entry: IndexEntry, id_length: int) -> IndexEntry:
    """Return the entry with stat data if the work tree file has its content; gitformat-index(5)."""
    if not stat.S_ISREG(entry.item.mode) or any(entry.stat):
        return entry
    try:
        descriptor = open_file(root, entry.path)
    except OSError:
        return entry
    with os.fdopen(descriptor, "rb") as stream:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _HASH_LIMIT:
            return entry
        data = stream.read(info.st_size + 1)
    if blob_id(data, id_length) != entry.item.id or bool(info.st_mode & 0o100) != bool(entry.item.mode & 0o100):
        return entry
    times = (*divmod(info.st_ctime_ns, 10**9), *divmod(info.st_mtime_ns, 10**9))
    words = (*times, info.st_dev, info.st_ino, entry.item.mode, info.st_uid, info.st_gid, info.st_size)
    return entry._replace(stat=b"".join((word & _WORD).to_bytes(4) for word in words))


def staged_already(
    live: Repository, path: bytes, old: dict[bytes, TreeItem], new: dict[bytes, TreeItem]
) -> tuple[bytes, ...]:
    """Return, sorted, the paths whose index entries match the new commit and not the old."""
    items = {entry.path: entry.item for entry in read_index(path, live.format.oid_length).entries if not entry.stage}
    paths = old.keys() | new.keys()
    return tuple(sorted(at for at in paths if items.get(at) == new.get(at) and items.get(at) != old.get(at)))


def tree_difference(
    live: Repository, before: bytes, after: bytes
) -> tuple[dict[bytes, TreeItem], dict[bytes, TreeItem]]:
    """Return the files that differ between two commits, by path. b"": a commit without files."""
    old: dict[bytes, TreeItem] = {}
    new: dict[bytes, TreeItem] = {}
    pending = [(b"", live.tree_of(before), live.tree_of(after))]
    while pending:
        prefix, one, other = pending.pop()
        if one == other:
            continue
        sides = _entries(live, one), _entries(live, other)
        for name in sides[0].keys() | sides[1].keys():
            pair = sides[0].get(name), sides[1].get(name)
            if pair[0] == pair[1]:
                continue
            path = prefix + name
            trees = [side.id if side is not None and side.mode == 0o40000 else None for side in pair]
            if any(trees):
                pending.append((path + b"/", trees[0], trees[1]))
            for side, files in zip(pair, (old, new), strict=True):
                if side is not None and side.mode != 0o40000:
                    files[path] = side
    return old, new


def holds(files: Source, path: bytes, item: TreeItem, id_length: int) -> bool:
    """Return whether the work tree file equals the committed one."""
    entry = files.look(path)
    if entry is None or (entry.kind == "symlink") != stat.S_ISLNK(item.mode):
        return False
    if entry.kind == "symlink":
        return blob_id(entry.target, id_length) == item.id
    if entry.kind != "file" or bool(entry.mode & 0o100) != bool(item.mode & 0o100):
        return False
    data = read_all(files, path, _HASH_LIMIT)
    return data is not None and item.id in blob_ids(data, id_length)


def _entries(live: Repository, tree: bytes | None) -> dict[bytes, TreeItem]:
    """Return a tree's entries, directories included, with binary ids."""
    if tree is None:
        return {}
    content = live.get(tree.hex().encode())
    if content is None or content[0] != b"tree":
        raise UsageError(f"the tree {tree.hex()} is missing in the repository", "git fsck")
    entries = parse_tree(content[1], live.format.oid_length)
    return {name: TreeItem(int(entry.mode, 8), bytes.fromhex(entry.id.decode())) for name, entry in entries.items()}
