"""Ref moves in the user's repository: all or none, with git's own lock files.

1. If the checked-out commit moves, the user's index moves with it (``index_file.py``); its lock is taken first.
2. Each ref to move gets its ``.lock`` file, with its new value if any; so does ``packed-refs`` if a ref is to be
   removed. Then each present value is compared, and empty directories in the way are removed.
3. Logs are written: the last step that is expected to fail.
4. The lock files become their refs, ``packed-refs`` before the removed refs' files, the index last.

If a step before 4 fails, no ref has moved. Every step may be repeated after a crash: a ref that already has its new
value is left alone. Protocol: gitrepository-layout(5); refs/files-backend.c.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from dulwich.refs import Ref

from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.commits.core.ref_plan import HEAD, STASH, RefMove, RepositoryMoves
from mudroom.ext.commits.git.index_file import IndexMove, IndexUpdate, move_index
from mudroom.ext.commits.git.repository import Repository
from mudroom.ext.commits.git.write import RepositoryWriter
from mudroom.stage import disk
from mudroom.typing import NamedTuple
from mudroom.vault.git.place import RepositoryPlace
from mudroom.vault.sync import sync_directory

_NO_PACKED = b"# pack-refs with: peeled fully-peeled sorted \n"


class RefFailure(NamedTuple):
    """A ref that kept a repository's refs from moving."""

    label: bytes
    ref: bytes
    reason: str


def reversed_moves(record: RepositoryMoves) -> RepositoryMoves:
    moves = tuple(RefMove(move.name, move.after, move.before, move.entries) for move in reversed(record.moves))
    checkout = (record.checkout[1], record.checkout[0]) if record.checkout is not None else None
    return record._replace(moves=moves, checkout=checkout, message=b"mudroom: undo")


def perform_moves(record: RepositoryMoves, *, back: bool = False, again: bool = False) -> list[RefFailure]:
    """Move the refs. Return an empty list, or the reasons why none was moved. ``back``: the moves reverse earlier ones.
    ``again``: they were begun before, and may have been cut off.

    Raise UsageError if the repository is gone or unsupported.
    """
    with Repository(RepositoryPlace(record.git, record.common)) as live:
        return _Transaction(live, record, back=back, again=again).run()


def _objects(move: RefMove) -> list[bytes]:
    """Return the ids of objects needed for a move: ``git gc`` may have removed them."""
    needed = [move.after, *(commit for commit, _message in move.entries)]
    return [name for name in needed if name and not name.startswith(b"refs/")]


class _Transaction:
    def __init__(self, live: Repository, record: RepositoryMoves, *, back: bool, again: bool) -> None:
        self._live, self._record, self._back, self._again = live, record, back, again
        self._writer = RepositoryWriter(live)
        self._locks: list[bytes] = []
        self._named = HEAD

    def run(self) -> list[RefFailure]:
        failures = self._failures(self._record.moves)
        if failures:
            return failures
        pending = [move for move in self._record.moves if self._value(move.name) != move.after]
        try:
            with self._index() as index:
                # after a crash, locks for already moved refs may be left, too
                packed = self._prepare([*self._record.moves] if self._again else pending)
                failures = self._failures(pending)
                if not failures:
                    self._log_moves(pending)
                    self._commit(pending, packed)
                    index.commit()
        except UsageError as error:
            return [RefFailure(self._record.label, self._named, f"cannot be moved: {error}")]
        finally:
            for lock in self._locks:
                os.unlink(lock)
            self._remove_empty_directories(move.name for move in pending)
        return failures

    # --- before any ref has moved ---

    def _index(self) -> IndexUpdate:
        record = self._record
        if record.checkout is None or not self._moves_checkout():
            return IndexUpdate(b"", None)
        path = record.git + b"/index"
        checkout = IndexMove(*record.checkout, record.work_tree, frozenset(record.staged))
        return move_index(self._live, path, checkout, again=self._again)

    def _moves_checkout(self) -> bool:
        """Return whether the moves include HEAD or its present branch: the user may have switched since."""
        return not {HEAD, self._live.head_target()}.isdisjoint(move.name for move in self._record.moves)

    def _value(self, name: bytes) -> bytes:
        if name == HEAD:
            return self._live.head_target()
        return self._live.refs.read_ref(Ref(name)) or b""

    def _failures(self, moves: Iterable[RefMove]) -> list[RefFailure]:
        reasons = ((move.name, self._obstacle(move)) for move in moves)
        return [RefFailure(self._record.label, name, reason) for name, reason in reasons if reason]

    def _obstacle(self, move: RefMove) -> str:
        """Return why a ref cannot move, or ""."""
        value = self._value(move.name)
        if value not in (move.before, move.after):
            return "has moved since" if value else "is not there any more"
        if value != move.after and not all(map(self._live.has, _objects(move))):
            return "is to have a commit that is not in the repository any more"
        if value == move.after or move.name == HEAD or self._moves_with_index(move):
            return ""
        return "is checked out" if move.name in self._live.checked_out() else ""

    def _moves_with_index(self, move: RefMove) -> bool:
        """Return whether this ref is the branch whose index moves with it."""
        record = self._record
        if record.checkout is None:
            return False
        here = self._live.head_target()
        heads = {here, *(value for other in record.moves if other.name == HEAD for value in other[1:3])}
        return move.name in heads and self._live.checked_out().get(move.name) in (None, record.git)

    def _prepare(self, pending: list[RefMove]) -> bytes:
        """Lock all refs. Return the packed-refs lock with its new content, or b"" if that stays. Raise UsageError."""
        for move in pending:
            content = move.after or move.before  # never empty: after a crash the content tells whose lock it is
            is_symbolic = move.name == HEAD and content.startswith(b"refs/")
            self._lock(move.name, (b"ref: " if is_symbolic else b"") + content + b"\n")
        packed = self._lock_packed({move.name for move in pending if not move.after})
        for move in pending:
            if move.after:
                self._named = move.name
                _remove_empty(self._path(move.name))
        return packed

    def _lock(self, name: bytes, content: bytes) -> bytes:
        self._named = name
        lock = self._path(name) + b".lock"
        self._writer.create_lock(name, lock, content, again=self._again)
        self._locks.append(lock)
        return lock

    def _lock_packed(self, removed: set[bytes]) -> bytes:
        """Lock packed-refs if a ref will be removed."""
        if not removed:
            return b""
        before = self._read_packed()
        content = without_packed(before, removed)
        # under this lock no other command can pack the ref meanwhile
        lock = self._lock(b"packed-refs", content or _NO_PACKED)
        if self._read_packed() != before:
            raise UsageError("another git command has packed refs meanwhile", "try again")
        return lock if content != before else b""

    def _read_packed(self) -> bytes:
        try:
            with open(self._path(b"packed-refs"), "rb") as stream:
                return stream.read()
        except FileNotFoundError:
            return b""

    def _log_moves(self, pending: list[RefMove]) -> None:
        record, head = self._record, self._live.head_target()
        for move in pending:
            if move.entries:
                self._log_stashes(move)
            elif move.name == HEAD and record.checkout is not None:
                self._writer.log(HEAD, *record.checkout, record.message, record.git)
            elif move.name != HEAD and move.after:
                self._writer.log(move.name, move.before, move.after, record.message)
                if move.name == head:
                    self._writer.log(HEAD, move.before, move.after, record.message, record.git)

    # --- the moves ---

    def _commit(self, pending: list[RefMove], packed: bytes) -> None:
        if packed:
            self._rename(packed)
        for move in pending:
            path = self._path(move.name)
            if move.after:
                self._rename(path + b".lock")
            else:
                with suppress(FileNotFoundError):
                    os.unlink(path)
                self._writer.remove_log(move.name)

    def _rename(self, lock: bytes) -> None:
        disk.rename_path(lock, lock.removesuffix(b".lock"))
        self._locks.remove(lock)
        sync_directory(os.path.dirname(lock))

    def _remove_empty_directories(self, names: Iterable[bytes]) -> None:
        """Remove these refs' directories where empty, but not refs/heads and its like."""
        for name in names:
            parent = os.path.dirname(name)
            with suppress(OSError):
                while parent.count(b"/") > 1:
                    os.rmdir(self._path(parent))
                    parent = os.path.dirname(parent)

    # --- stashes: each is an entry in the log for refs/stash ---

    def _log_stashes(self, move: RefMove) -> None:
        commits = [commit for commit, _message in move.entries]
        if self._back:
            self._writer.unlog(STASH, commits, again=self._again)
        elif not self._writer.ends_with(STASH, commits):
            old = move.before
            for commit, message in move.entries:
                self._writer.log(STASH, old, commit, message, always=True)
                old = commit

    def _path(self, name: bytes) -> bytes:
        return os.path.join(self._record.git if name == HEAD else self._record.common, name)


def without_packed(content: bytes, removed: set[bytes]) -> bytes:
    """Return packed-refs without some refs and their tags' peeled values: git-pack-refs(1)."""
    lines = []
    is_removed = False
    for line in content.splitlines(keepends=True):
        if line[:1] != b"^":
            is_removed = line[:1] != b"#" and line.rstrip(b"\n").partition(b" ")[2] in removed
        if not is_removed:
            lines.append(line)
    return b"".join(lines)


def _remove_empty(path: bytes) -> None:
    """Remove a directory that deleted refs left where a ref is to be. Raise UsageError if it is not empty."""
    if not os.path.isdir(path) or os.path.islink(path):
        return
    for directory, _directories, files in os.walk(path, topdown=False):
        if files:
            raise UsageError(f"there are files in {show(path)}")
        os.rmdir(directory)
