"""Walk from a fork's commit to the commits and objects that the project's repository lacks.

Commits are new if no branch or tag in the repository reaches them. Objects alone do not count, because a removed
branch's stay until git's garbage collection. Every object that a new commit needs, and that its parents do not have at
the same path, is visited, so the set of objects is complete.
"""

from __future__ import annotations

from dulwich.lru_cache import LRUSizeCache

from mudroom.core.git.index import TreeItem
from mudroom.core.tree.git_name import reads_as
from mudroom.core.tree.path import show, show_path
from mudroom.errors import UsageError
from mudroom.ext.commits.core.emptied import Emptied
from mudroom.ext.commits.git.check import MODULE, TREE, CommitText, TreeEntry, check_entry, parse_tree
from mudroom.ext.commits.git.history import History
from mudroom.ext.commits.git.read import refusal
from mudroom.ext.commits.git.repository import Repository
from mudroom.typing import NamedTuple

NOT_MASKED = Emptied(())
OBJECT_LIMIT = PATH_LIMIT = 2_000_000
_CACHED_ENTRIES = 500_000
_READ_BY_GIT = (b".gitmodules", b".gitattributes")


def tree_item(entry: TreeEntry) -> TreeItem:
    return TreeItem(int(entry.mode, 8), bytes.fromhex(entry.id.decode()))


class EmptiedFile(UsageError):
    """A commit or index holds a masked file as an empty file."""


def emptied_refusal(path: bytes, place: str) -> EmptiedFile:
    return EmptiedFile(
        f"{show(path)} is masked, and the {place} of the fork holds it as an empty file",
        f"commit it anew without that file: git rm --cached {show_path(path)}; or show it to the fork: --show PATH",
    )


class NewObjects(NamedTuple):
    """Commits and objects that a branch at the last of ``commits`` needs. Empty if the repository's branches have
    it."""

    commits: tuple[tuple[bytes, CommitText], ...]
    """Parents before children."""
    missing: dict[bytes, bytes]
    """Objects that the repository lacks, with their kinds."""
    settings: frozenset[tuple[bytes, bytes]]
    """Blobs that git itself would read, with the file name it knows them by."""


class Walk:
    """Walk through a fork's repository. Methods raise UsageError for an object that is missing, damaged or refused."""

    def __init__(self, live: Repository, history: History, emptied: Emptied = NOT_MASKED) -> None:
        """``emptied``: the repository's masked files; a commit that holds one as an empty file is refused."""
        self._live, self._history, self._emptied = live, history, emptied
        self._trees: LRUSizeCache[bytes, dict[bytes, TreeEntry]] = LRUSizeCache(
            _CACHED_ENTRIES, compute_size=lambda entries: len(entries) + 1
        )
        self._seen: dict[bytes, bytes] = {}
        self._missing: dict[bytes, bytes] = {}
        self._settings: set[tuple[bytes, bytes]] = set()
        self._boundary: set[bytes] = set()
        self._complete: dict[bytes, bytes] | None = None

    def new(self, *heads: bytes) -> NewObjects:
        """Return the new objects that these commits and annotated tags need."""
        commits = []
        for head in heads:
            *tags, target = self._history.tags(head)
            for tag in tags:
                self._require(tag, b"tag")
            self._history.content(target, b"commit")
            commits.append(target)
        names = self._history.new_commits(*dict.fromkeys(commits))
        self._boundary = {above for name in names for above in self._history.commit(name).parents} - {*names}
        for name in names:
            self._follow(self._history.commit(name), name)
        return NewObjects(
            tuple((name, self._history.commit(name)) for name in names), self._missing, frozenset(self._settings)
        )

    def require_few_paths(self, before: bytes, after: bytes) -> None:
        """Raise UsageError if two commits differ in more than ``PATH_LIMIT`` paths: twelve trees of sixteen entries
        have 16**12. Each pair of trees is read once. b"": no commit."""
        commits = [self._history.commit(name).tree if name else b"" for name in (before, after)]
        counts: dict[tuple[bytes, ...], int] = {}
        pending = [tuple(commits)]
        while pending:
            pair = pending[-1]
            old, new = (self._base_entries(tree) if tree else {} for tree in pair)
            changed = [(old.get(at), new.get(at)) for at in old.keys() | new.keys() if old.get(at) != new.get(at)]
            below = [tuple(side.id if side and side.mode == TREE else b"" for side in sides) for sides in changed]
            unknown = [trees for trees in below if any(trees) and trees not in counts]
            if unknown:
                pending += unknown
                continue
            counts[pending.pop()] = total = len(changed) + sum(counts[trees] for trees in below if any(trees))
            if total > PATH_LIMIT:
                raise refusal(f"its commits change more than {PATH_LIMIT:,} paths", "")

    def _follow(self, commit: CommitText, name: bytes) -> None:
        """Record all objects that a commit needs and its parents do not have at the same path."""
        self._require(name, b"commit")
        pending = [(b"", commit.tree, [self._history.commit(above).tree for above in commit.parents])]
        while pending:
            prefix, tree, bases = pending.pop()
            if tree in bases or not self._require(tree, b"tree"):
                continue
            known = [self._base_entries(base) for base in bases]
            changed = list(self._entries(tree).items())
            for base in known:
                changed = [(at, entry) for at, entry in changed if base.get(at) != entry]
            for at, entry in changed:
                self._check(tree, at, entry)
                if entry.mode == TREE:
                    below = [base[at].id for base in known if at in base and base[at].mode == TREE]
                    pending.append((prefix + at + b"/", entry.id, below))
                    continue
                item = tree_item(entry)
                if self._emptied.is_emptied(prefix + at, item, [tree_item(base[at]) for base in known if at in base]):
                    raise emptied_refusal(prefix + at, f"commit {name.decode()[:12]}")
                if entry.mode != MODULE and self._require(entry.id, b"blob"):
                    self._settings |= {(entry.id, read) for read in _READ_BY_GIT if reads_as(at, read)}

    def _require(self, name: bytes, kind: bytes) -> bool:
        """Record that an object is needed. Return whether its contents must be examined."""
        before = self._seen.get(name)
        if before is not None and before != kind:
            raise refusal(f"the object {name.decode()} is used as {before.decode()} and as {kind.decode()}")
        if before is not None:
            return kind == b"blob" and name in self._missing
        self._seen[name] = kind
        if len(self._seen) > OBJECT_LIMIT:
            raise refusal(f"its new commits have more than {OBJECT_LIMIT:,} objects", "")
        has = self._live.has(name)
        if kind != b"commit" and (has or self._live.is_partial) and self._is_complete(name, kind):
            return False
        if not has:
            self._missing[name] = kind
        elif kind == b"blob":
            self._history.content(name, kind)
        return True

    def _is_complete(self, name: bytes, kind: bytes) -> bool:
        """Return whether the object occurs, at any path, in a parent of the new commits or in the checked-out commit.
        If so, the repository has all of it or, as a partial clone, knows where to get it."""
        if self._complete is None:
            self._complete = {}
            head = self._live.head()
            standing = self._boundary | ({head} if head is not None and self._live.has(head) else set())
            pending = [self._history.commit(name).tree for name in standing]
            while pending:
                tree = pending.pop()
                if tree in self._complete:
                    continue
                self._complete[tree] = b"tree"
                for entry in self._base_entries(tree).values():
                    if entry.mode == TREE:
                        pending.append(entry.id)
                    elif entry.mode != MODULE:
                        self._complete[entry.id] = b"blob"
        return self._complete.get(name) == kind

    def _check(self, tree: bytes, at: bytes, entry: TreeEntry) -> None:
        if self._live.has(tree):
            return  # part of the user's own history, so not checked
        try:
            check_entry(at, entry)
        except ValueError as error:
            raise refusal(f"the tree {tree.decode()} {error}") from None

    def _base_entries(self, name: bytes) -> dict[bytes, TreeEntry]:
        """Return the entries of an existing tree; empty if it is malformed, or left out of a partial clone."""
        if not self._live.has(name) and name not in self._missing:
            return {}
        try:
            return self._parsed(name)
        except ValueError:
            return {}

    def _entries(self, name: bytes) -> dict[bytes, TreeEntry]:
        try:
            return self._parsed(name)
        except ValueError as error:
            raise refusal(f"the tree {name.decode()} {error}") from None

    def _parsed(self, name: bytes) -> dict[bytes, TreeEntry]:
        entries = self._trees.get(name)
        if entries is None:
            data = self._history.content(name, b"tree")
            entries = self._trees[name] = parse_tree(data, self._live.format.oid_length)
        return entries
