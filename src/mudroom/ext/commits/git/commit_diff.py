"""A fork's commit compared with its first parent, as changes with contents.

Bounded by the commit's files, a text's bytes, and all texts' bytes. Beyond a limit a file is named and not shown.
Secrets' contents are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from mudroom.core.text.linediff import count_lines, is_binary
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import sort_key
from mudroom.core.tree.review_tags import TEXT_LIMIT
from mudroom.ext.commits.git.check import LINK, MODULE, TREE, TreeEntry, parse_tree
from mudroom.ext.commits.git.history import History
from mudroom.ext.commits.git.log import ForkLog, LoggedCommit
from mudroom.ext.commits.git.read import refusal
from mudroom.stage.diff import content_diff, git_mode
from mudroom.typing import Literal, NamedTuple

FILES_LISTED = 2_000
"""Maximum changed files listed for a commit."""
TEXTS_LIMIT = 32 << 20
"""Bytes shown from all texts of a commit."""
LINES_LIMIT = 250_000
"""Maximum lines on both sides of a compared text: a hostile text this large takes a second."""
_TREES_READ = 50_000
_PATH_LIMIT = 8_192

FileKind = Literal["text", "binary", "large", "masked", "renamed"]
_NOT_SHOWN = {"masked": b"# a secret: it is not shown\n", "large": b"# too large to be shown\n"}


class CommitFile(NamedTuple):
    """A changed file in a commit. ``change`` has entries without times and inodes."""

    change: Change
    kind: FileKind
    """``masked``: a secret, whose content is not read. ``renamed``: with the same content."""
    old: bytes = b""
    """A text's content, a link's target, or for a submodule a line that names its commit."""
    new: bytes = b""

    @property
    def modes(self) -> tuple[str, str] | None:
        """Both modes as git shows them (100644), if they differ."""
        base, staged = self.change.base, self.change.staged
        if base is None or staged is None or git_mode(base) == git_mode(staged):
            return None
        return f"{git_mode(base):06o}", f"{git_mode(staged):06o}"

    def lines(self) -> Iterator[bytes]:
        change = self.change
        if self.kind != "text":
            yield from content_diff(change, None, b"" if self.kind == "binary" else None)
            if self.kind in _NOT_SHOWN:
                yield _NOT_SHOWN[self.kind]
        elif change.base is not None and change.staged is not None and _type(change.base) != _type(change.staged):
            yield from content_diff(change._replace(verb="deleted", staged=None), self.old, b"")
            yield from content_diff(change._replace(verb="added", base=None), b"", self.new)
        else:
            yield from content_diff(change, self.old, self.new)


class CommitDiff(NamedTuple):
    commit: LoggedCommit
    files: tuple[CommitFile, ...]
    """By path, at most ``FILES_LISTED``."""
    more: bool
    """Whether the commit has more files than are listed."""

    @property
    def lines_added(self) -> int:
        return sum(file.change.lines_added for file in self.files)

    @property
    def lines_removed(self) -> int:
        return sum(file.change.lines_removed for file in self.files)


class _Sides(NamedTuple):
    old: TreeEntry | None
    new: TreeEntry | None


def read_commit_diff(log: ForkLog, name: bytes, hides: Callable[[bytes], bool]) -> CommitDiff:
    """Return a commit's changes. ``hides``: whether a path is a secret's; asked if the parent has a file there. Raise
    UsageError if an object is missing, damaged or refused."""
    commit = log.history.commit(name)
    parent = log.history.commit(commit.parents[0]).tree if commit.parents else None
    trees = _TreeReader(log.history, log.live.format.oid_length)
    changed, more = trees.changes(parent, commit.tree)
    reader = _FileReader(log.history, hides)
    files = tuple(reader.read(path, sides, source) for path, sides, source in _with_renames(changed))
    return CommitDiff(log.describe(name), files, more)


class _TreeReader:
    def __init__(self, history: History, id_length: int) -> None:
        self._history, self._id_length, self._left = history, id_length, _TREES_READ

    def changes(self, old: bytes | None, new: bytes) -> tuple[dict[bytes, _Sides], bool]:
        """Return the files that differ between two trees, and whether there are more."""
        changed: dict[bytes, _Sides] = {}
        pending: list[tuple[bytes, bytes | None, bytes | None]] = [(b"", old, new)]
        while pending:
            prefix, before_id, after_id = pending.pop()
            before, after = self._entries(before_id), self._entries(after_id)
            for name in sorted(before.keys() | after.keys(), key=sort_key):
                sides = _Sides(before.get(name), after.get(name))
                if sides.old == sides.new:
                    continue
                path = prefix + name
                if len(path) > _PATH_LIMIT:
                    raise refusal("a path in it is longer than 8,192 bytes")
                trees = [side.id if side is not None and side.mode == TREE else None for side in sides]
                if any(trees):
                    pending.append((path + b"/", trees[0], trees[1]))
                files = _Sides(*(side if side is not None and side.mode != TREE else None for side in sides))
                if not any(files):
                    continue
                if len(changed) >= FILES_LISTED:
                    return _sorted(changed), True
                changed[path] = files
        return _sorted(changed), False

    def _entries(self, tree: bytes | None) -> Mapping[bytes, TreeEntry]:
        if tree is None:
            return {}
        self._left -= 1
        if self._left < 0:
            raise refusal(f"a commit has more than {_TREES_READ:,} changed directories", "")
        try:
            return parse_tree(self._history.content(tree, b"tree"), self._id_length)
        except ValueError as error:
            raise refusal(f"the tree {tree.decode()} {error}") from None


def _sorted(changed: Mapping[bytes, _Sides]) -> dict[bytes, _Sides]:
    return {path: changed[path] for path in sorted(changed, key=sort_key)}


def _with_renames(changed: Mapping[bytes, _Sides]) -> Iterator[tuple[bytes, _Sides, bytes]]:
    """Yield path, sides and source for each file. A file that was only moved is one rename."""
    gone: dict[TreeEntry, list[bytes]] = {}
    for path, sides in changed.items():
        if sides.new is None and sides.old is not None and sides.old.mode != MODULE:
            gone.setdefault(sides.old, []).append(path)
    sources: dict[bytes, bytes] = {}
    for path, sides in changed.items():
        if sides.old is None and sides.new is not None and gone.get(sides.new):
            sources[path] = gone[sides.new].pop(0)
    moved = set(sources.values())
    for path, sides in changed.items():
        if path not in moved:
            yield path, sides, sources.get(path, b"")


class _FileReader:
    def __init__(self, history: History, hides: Callable[[bytes], bool]) -> None:
        self._history, self._hides, self._left = history, hides, TEXTS_LIMIT

    def read(self, path: bytes, sides: _Sides, source: bytes) -> CommitFile:
        if source:
            entry = _entry(sides.new)
            return CommitFile(Change(path, "renamed", entry, entry, source=source), "renamed")
        verb: Literal["added", "modified", "deleted"] = (
            "added" if sides.old is None else "deleted" if sides.new is None else "modified"
        )
        change = Change(path, verb, _entry(sides.old), _entry(sides.new))
        if sides.old is not None and self._hides(path):
            return CommitFile(change, "masked")
        old, new = self._content(sides.old), self._content(sides.new)
        if old is None or new is None or max(len(old), len(new)) > TEXT_LIMIT:
            return CommitFile(change, "large")
        if is_binary(old) or is_binary(new):
            return CommitFile(change._replace(binary=True), "binary")
        if old.count(b"\n") + new.count(b"\n") > LINES_LIMIT:
            return CommitFile(change, "large")
        counts = count_lines(old, new)
        return CommitFile(change._replace(lines_added=counts.added, lines_removed=counts.removed), "text", old, new)

    def _content(self, entry: TreeEntry | None) -> bytes | None:
        """Return one side's content, or None after too many bytes."""
        if entry is None:
            return b""
        if entry.mode == MODULE:
            return b"Subproject commit " + entry.id + b"\n"
        if self._left <= 0:
            return None
        data = self._history.content(entry.id, b"blob")
        self._left -= len(data)
        return data


def _type(entry: Entry) -> tuple[str, int]:
    return entry.kind, entry.mode >> 12


def _entry(side: TreeEntry | None) -> Entry | None:
    if side is None:
        return None
    if side.mode == MODULE:  # git shows mode 160000
        return Entry("file", 0o060000, 0, b"", 0, 0, 0, 0, 0, 0, 0)
    if side.mode == LINK:
        return Entry("symlink", 0, 0, b"", 0, 0, 0, 0, 0, 0, 0)
    return Entry("file", int(side.mode, 8) & 0o7777, 0, b"", 0, 0, 0, 0, 0, 0, 0)
