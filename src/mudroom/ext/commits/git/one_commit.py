"""Record an apply's files as one commit on the checked-out branch in the user's repository.

1. ``open_one_commit`` refuses before anything is applied: no repository, an operation in progress, a locked index, no
   identity, a file that git would convert.
2. After the apply, ``OneCommit.make`` adds blobs, trees and the commit as one pack, and returns the ref and index moves
   (``ref_transaction.py``). The caller performs them, and keeps them for undo.

The tree is HEAD's, with the applied paths as they are in the project now. The user's other changes, staged or not, are
left out. Hooks are not run. The commit is signed if commit.gpgSign is set, or the policy asks (``signing.py``).
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dulwich.attrs import Pattern, parse_git_attributes
from dulwich.wildmatch import MalformedPattern

from mudroom.core.git.blob import blob_id, object_id
from mudroom.core.git.index import TreeItem
from mudroom.core.git.outcome import MadeCommit
from mudroom.core.merge.operations import Op
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import ancestors, is_below, show, show_path
from mudroom.errors import UsageError
from mudroom.ext.commits.core.ref_plan import HEAD, HEADS, RefMove, RepositoryMoves
from mudroom.ext.commits.git.check import parse_tree
from mudroom.ext.commits.git.index_file import index_obstacle
from mudroom.ext.commits.git.repository import Repository
from mudroom.ext.commits.git.signing import USE_GIT, signer
from mudroom.ext.commits.git.user_settings import UserFiles, UserSettings
from mudroom.ext.commits.git.write import RepositoryWriter
from mudroom.stage import disk
from mudroom.stage.source import OpenSource, Source, read_all, read_own, walk
from mudroom.typing import NamedTuple
from mudroom.vault.git.place import RepositoryPlace, find_repository

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


# --- Whether git would convert a file when storing it: gitattributes(5), core.autocrlf ---
# mudroom runs no filters, so a file that git would convert is never stored. The check may refuse more than git
# converts, but never less: a line that unsets an attribute is ignored.


_LIMIT = 1 << 20
_PATTERN_LIMIT = 1_000
_TEXT = frozenset((b"text", b"eol", b"crlf"))
_CONVERTING = frozenset((b"filter", b"working-tree-encoding"))
_CONVERTED = (b"true", b"yes", b"on", b"1", b"input")
_GLOBAL = b"/.config/git/attributes"


class AttributeLine(NamedTuple):
    directory: bytes
    """Directory with the file that holds the line."""
    pattern: Pattern | None
    """None: it matches every path."""
    attributes: frozenset[bytes]
    """Attributes that the line sets."""


class CheckIn:
    """The attributes and settings that decide how files are stored."""

    def __init__(self, place: RepositoryPlace, settings: UserSettings, user: UserFiles) -> None:
        self._autocrlf = (settings.value(b"core", b"autocrlf") or b"false").lower() in _CONVERTED
        self._macros: set[bytes] = set()
        self._read: dict[tuple[int, bytes], list[AttributeLine]] = {}
        named = settings.value(b"core", b"attributesfile")
        own = (user.home + named[1:] if named.startswith(b"~/") else named) if named else user.home + _GLOBAL
        self._lines: list[AttributeLine] = []
        for path in (b"/etc/gitattributes", own, place.common + b"/info/attributes"):
            try:
                self._lines += self._parsed(b"", read_own(path, _LIMIT))
            except ValueError:
                self._lines.append(AttributeLine(b"", None, _CONVERTING))

    def conversion(self, path: bytes, content: bytes, sources: Iterable[Source]) -> str:
        """Return why git would convert ``content``; empty if it would not. ``sources``: where ``.gitattributes`` are
        read."""
        lines = [*self._lines]
        for source in sources:
            for directory in (b"", *ancestors(path)):
                lines += self._lines_of(source, directory)
        sets: set[bytes] = set()
        for line in lines:
            below = path[len(line.directory) + 1 :] if line.directory else path
            if line.pattern is None or line.pattern.match(below):
                sets |= line.attributes
        converting = sets & (_CONVERTING | self._macros)
        if converting:
            names = ", ".join(sorted(name.decode("ascii", "replace") for name in converting))
            return f"git would convert it ({names} in .gitattributes)"
        if b"\r\n" in content and (self._autocrlf or sets & _TEXT):
            return "git would convert its line ends"
        return "git would shorten its $Id$" if b"ident" in sets and b"$Id" in content else ""

    def _lines_of(self, source: Source, directory: bytes) -> list[AttributeLine]:
        lines = self._read.get((id(source), directory))
        if lines is None:
            path = directory + b"/.gitattributes" if directory else b".gitattributes"
            entry = source.look(path)
            data = read_all(source, path, _LIMIT) if entry is not None and entry.kind == "file" else b""
            too_large = [AttributeLine(directory, None, _CONVERTING)]
            lines = self._read[id(source), directory] = too_large if data is None else self._parsed(directory, data)
        return lines

    def _parsed(self, directory: bytes, data: bytes) -> list[AttributeLine]:
        lines = []
        for pattern, attributes in parse_git_attributes(io.BytesIO(data)):
            # a user-defined macro may stand for a filter
            if pattern.startswith(b"[attr]"):
                self._macros.add(pattern[6:])
                continue
            sets = frozenset(name for name, value in attributes.items() if value not in (False, None))
            if sets and not pattern.startswith(b"!"):
                lines.append(AttributeLine(directory, _compiled(pattern), sets))
        return lines


def _compiled(pattern: bytes) -> Pattern | None:
    if len(pattern) > _PATTERN_LIMIT:
        return None
    try:
        return Pattern(pattern)
    except MalformedPattern:
        return None


FILE_LIMIT = 256 << 20
"""Bytes in a committed file; a larger one is refused."""
AGENT_TRACE = b"refs/notes/agent-trace"
_TREE, _LINK, _FILE, _PROGRAM, _MODULE = 0o40000, 0o120000, 0o100644, 0o100755, 0o160000

IsIgnored = Callable[[bytes, Entry], bool]


class CommitTime(NamedTuple):
    seconds: int
    """Since 1970."""
    zone: int
    """Minutes east of UTC."""


class OneCommit:
    """The user's repository, ready for a commit. ``source``: the project."""

    def __init__(self, live: Repository, user: UserFiles, source: Source, *, sign: bool) -> None:
        self._live, self._source = live, source
        self._id_length = live.format.oid_length
        settings = UserSettings(user, live.place)
        self._head = _require_ready(live)
        self._before = live.ref(self._head) if self._head.startswith(b"refs/") else self._head
        self._identity = settings.identity()
        self._signer = signer(user, live, always=sign)
        self._check_in = CheckIn(live.place, settings, user)
        self._has_modes = settings.flag(b"core", b"filemode", default=True)
        self._with_changes: set[bytes] = set()
        self._trees: dict[bytes, Mapping[bytes, TreeItem]] = {}
        self._root = live.tree_of(self._before)

    # --- before the apply ---

    def require(self, paths: Iterable[bytes], fork: Source) -> None:
        """Raise UsageError if one of these fork files cannot be committed. Note the files whose project version differs
        from HEAD."""
        for path in paths:
            top = self._repository_above(path)
            if top is not None:
                raise UsageError(f"{show_path(path)} belongs to the repository in {show_path(top)}", USE_GIT)
            entry = fork.look(path)
            if entry is not None and entry.kind == "file":
                self._require_as_it_is(path, _content(fork, path), (self._source, fork))
            if self._item(path, self._source.look(path)) != self._committed(path):
                self._with_changes.add(path)

    def _repository_above(self, path: bytes) -> bytes | None:
        for directory in ancestors(path):
            committed = self._committed(directory)
            is_module = committed is not None and committed.mode == _MODULE
            if is_module or self._source.look(directory + b"/.git") is not None:
                return directory
        return None

    def _require_as_it_is(self, path: bytes, content: bytes, sources: Sequence[Source]) -> None:
        reason = self._check_in.conversion(path, content, sources)
        if reason:
            raise UsageError(f"{show_path(path)} cannot be committed as it is: {reason}", USE_GIT)

    # --- after it ---

    def make(
        self,
        ops: Iterable[Op],
        message: bytes,
        time: CommitTime,
        is_ignored: IsIgnored,
        trace: Callable[[str], bytes] | None = None,
    ) -> tuple[list[RepositoryMoves], MadeCommit] | None:
        """Add the commit's objects. Return the moves, the branch's first, and the commit, or None if there is nothing
        to commit. ``trace``: returns the Agent Trace record of the commit, which becomes its note. Raise UsageError if
        a file cannot be committed, or the repository has changed meanwhile."""
        if self._live.head_target() != self._head or self._head_commit() != self._before:
            raise UsageError("HEAD has moved meanwhile", "git commit")
        left_out: set[bytes] = set()
        changes: dict[bytes, TreeItem | None] = {}
        for op in ops:
            changes |= self._changes_of(op, is_ignored, left_out)
        changes = {path: item for path, item in changes.items() if item != self._committed(path)}
        if not changes:
            return None
        root, trees = edit_tree(self._entries, self._root, changes, self._id_length)
        text = self._commit_text(root, message, time, self._before)
        if self._signer is not None:
            text = self._signer.signed(text)
        commit = object_id(b"commit", text, self._id_length)
        self._add(changes, trees, commit, text)
        moves = [self._moves(commit.hex().encode(), message)]
        if trace is not None:
            moves.append(self._note(commit.hex(), trace(commit.hex()), time))
        branch = show(self._head.removeprefix(HEADS)) if self._head.startswith(b"refs/") else ""
        mixed = tuple(sorted(self._with_changes & changes.keys()))
        return moves, MadeCommit(commit.hex(), branch, len(changes), mixed, tuple(sorted(left_out)))

    def _head_commit(self) -> bytes:
        return self._live.ref(self._head) if self._head.startswith(b"refs/") else self._head

    def _changes_of(self, op: Op, is_ignored: IsIgnored, left_out: set[bytes]) -> dict[bytes, TreeItem | None]:
        """Return the files at and below an operation's path, as the commit has them."""
        if op.kind in ("mkdir", "rmdir"):
            return {}
        changes: dict[bytes, TreeItem | None] = {}
        if op.old is not None and op.kind != "chmod":
            changes |= dict.fromkeys(self._committed_below(op.path))
        entry = self._source.look(op.path)
        present = [] if entry is None else [(op.path, entry)]
        if entry is not None and entry.kind == "directory":
            present = list(walk(self._source, op.path)) if op.whole else []
        for path, below in present:
            if below.kind not in ("file", "symlink"):
                continue
            is_new = self._committed(path) is None
            top = self._repository_above(path)
            if top is not None or b".git" in path.split(b"/"):
                left_out.add(top or path)
            elif is_new and is_ignored(path, below):
                left_out.add(path)
            else:
                changes[path] = self._item(path, below, check=True)
        return changes

    def _item(self, path: bytes, entry: Entry | None, *, check: bool = False) -> TreeItem | None:
        """Return a project file as a tree entry. ``check``: raise UsageError if git would convert it."""
        if entry is None or entry.kind not in ("file", "symlink"):
            return None
        if entry.kind == "symlink":
            return TreeItem(_LINK, blob_id(entry.target, self._id_length))
        content = _content(self._source, path)
        if check:
            self._require_as_it_is(path, content, (self._source,))
        mode = _PROGRAM if entry.mode & 0o100 else _FILE
        committed = self._committed(path)
        if not self._has_modes and committed is not None and committed.mode in (_FILE, _PROGRAM):
            mode = committed.mode
        return TreeItem(mode, blob_id(content, self._id_length))

    # --- the present commit ---

    def _entries(self, tree: bytes) -> Mapping[bytes, TreeItem]:
        entries = self._trees.get(tree)
        if entries is None:
            kind, data = self._live.get(tree.hex().encode()) or (b"", b"")
            if kind != b"tree":
                raise UsageError(f"the tree {tree.hex()} is missing in the repository", "git fsck")
            entries = self._trees[tree] = {
                name: TreeItem(int(entry.mode, 8), bytes.fromhex(entry.id.decode()))
                for name, entry in parse_tree(data, self._id_length).items()
            }
        return entries

    def _committed(self, path: bytes) -> TreeItem | None:
        """Return the entry at a path in HEAD's tree."""
        tree: bytes | None = self._root
        item: TreeItem | None = None
        for name in path.split(b"/"):
            item = self._entries(tree).get(name) if tree is not None else None
            tree = item.id if item is not None and item.mode == _TREE else None
        return item

    def _committed_below(self, path: bytes) -> Iterator[bytes]:
        """Yield the files at and below a path in HEAD's tree."""
        item = self._committed(path)
        if item is not None and item.mode != _TREE:
            yield path
        pending = [(path, item.id)] if item is not None and item.mode == _TREE else []
        while pending:
            directory, tree = pending.pop()
            for name, below in self._entries(tree).items():
                if below.mode == _TREE:
                    pending.append((directory + b"/" + name, below.id))
                else:
                    yield directory + b"/" + name

    # --- the new commit ---

    def _commit_text(self, root: bytes, message: bytes, time: CommitTime, before: bytes) -> bytes:
        sign, zone = b"-" if time.zone < 0 else b"+", abs(time.zone)
        stamp = b"%s %d %s%02d%02d" % (self._identity, time.seconds, sign, zone // 60, zone % 60)
        lines = [b"tree " + root.hex().encode()]
        lines += [b"parent " + before] if before else []
        lines += [b"author " + stamp, b"committer " + stamp, b"", message]
        return b"\n".join(lines)

    def _note(self, commit: str, content: bytes, time: CommitTime) -> RepositoryMoves:
        """Add a note about a commit, and return the move of the notes' ref. Raise UsageError if the ref is no commit's.
        git-notes(1): a note's path in the tree is the commit's id, whole or in directories of two digits."""
        before, place = self._live.ref(AGENT_TRACE), self._live.place
        blob = blob_id(content, self._id_length)
        note = {commit.encode(): TreeItem(_FILE, blob)}
        root, trees = edit_tree(self._entries, self._live.tree_of(before), note, self._id_length)
        text = self._commit_text(root, b"Notes added by mudroom\n", time, before)
        after = object_id(b"commit", text, self._id_length)
        objects = [(blob, b"blob", content), *((name, b"tree", data) for name, data in trees.items())]
        objects.append((after, b"commit", text))
        named = ((name.hex().encode(), kind, data) for name, kind, data in objects)
        RepositoryWriter(self._live).add_objects(len(objects), named)
        move = RefMove(AGENT_TRACE, before, after.hex().encode())
        return RepositoryMoves(b".git", place.git, place.common, (move,), b"notes: Notes added by mudroom")

    def _add(
        self, changes: Mapping[bytes, TreeItem | None], trees: Mapping[bytes, bytes], commit: bytes, text: bytes
    ) -> None:
        blobs = {item.id: path for path, item in changes.items() if item is not None}
        blobs = {item: path for item, path in blobs.items() if not self._live.has(item.hex().encode())}

        def objects() -> Iterator[tuple[bytes, bytes, bytes]]:
            for item, path in blobs.items():
                yield item.hex().encode(), b"blob", self._blob(path, item)
            for item, data in trees.items():
                yield item.hex().encode(), b"tree", data
            yield commit.hex().encode(), b"commit", text

        RepositoryWriter(self._live).add_objects(len(blobs) + len(trees) + 1, objects())

    def _blob(self, path: bytes, item: bytes) -> bytes:
        entry = self._source.look(path)
        is_link = entry is not None and entry.kind == "symlink"
        data = entry.target if entry is not None and is_link else _content(self._source, path)
        if blob_id(data, self._id_length) != item:
            raise UsageError(f"{show_path(path)} has changed meanwhile", "git commit")
        return data

    def _moves(self, commit: bytes, message: bytes) -> RepositoryMoves:
        place = self._live.place
        on_branch = self._head.startswith(b"refs/")
        move = RefMove(self._head if on_branch else HEAD, self._before, commit)
        subject = message.split(b"\n", 1)[0]
        log = (b"commit: " if self._before else b"commit (initial): ") + subject
        checkout = (self._before, commit)
        return RepositoryMoves(b".git", place.git, place.common, (move,), log, checkout, self._live.work_tree())


def clean_message(message: str) -> bytes:
    """Return a message as git stores it: without surrounding blank lines or trailing blanks. Raise UsageError if it is
    empty. git-commit(1), --cleanup=whitespace."""
    lines = [line.rstrip() for line in message.replace("\r\n", "\n").split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    if not text.strip():
        raise UsageError("the message of the commit is empty", "-m MESSAGE gives it")
    if "\0" in text:
        raise UsageError("the message of the commit holds a NUL", "write it without this character")
    return os.fsencode(text) + b"\n"


@contextmanager
def open_one_commit(project: bytes, user: UserFiles, *, sign: bool) -> Iterator[OneCommit]:
    """Open the project's repository for a commit. ``sign``: also if commit.gpgSign is not set. Raise UsageError if no
    commit can be made now."""
    place = find_repository(project, b".git")
    with Repository(place) as live, OpenSource(project) as source:
        if live.work_tree() != disk.real_path(project):
            raise UsageError("the work tree of the repository is not the project", USE_GIT)
        yield OneCommit(live, user, source, sign=sign)


def _require_ready(live: Repository) -> bytes:
    """Return HEAD's branch, or its commit. Raise UsageError if no commit can be made now."""
    operation = live.operation()
    if operation:
        raise UsageError(f"{operation} is not finished in the repository", "git status shows it")
    obstacle = index_obstacle(live.place.git + b"/index", live.format.oid_length)
    if obstacle:
        raise UsageError(f"no commit can be made: {obstacle}", "git status shows it")
    head = live.head_target()
    if not head or (head.startswith(b"refs/") and not head.startswith(HEADS)):
        raise UsageError("HEAD of the repository leads to no branch", "git status shows it")
    for lock in (live.place.git + b"/HEAD.lock", os.path.join(live.place.common, head) + b".lock"):
        if os.path.lexists(lock):
            raise UsageError("another git command is at work in the repository", f"if not, remove {show(lock)}")
    return head


def _content(source: Source, path: bytes) -> bytes:
    data = read_all(source, path, FILE_LIMIT)
    if data is None:
        raise UsageError(f"{show_path(path)} has more than {FILE_LIMIT >> 20} MiB", USE_GIT)
    return data


def covers(paths: Sequence[bytes], path: bytes, *, exact: bool) -> bool:
    """Return whether an apply's selection includes a path."""
    return not paths or (path in paths if exact else any(is_below(path, above) for above in paths))
