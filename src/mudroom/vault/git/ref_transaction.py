"""Moves of refs in the user's repository: all or none, with git's own lock files.

1. Each ref to write gets its ``.lock`` file with the new value, and each present value is compared.
2. Logs are written and the lock files renamed; deleted refs are removed last.
3. If the checked-out commit moves, the user's index moves with it (``index_file.py``), whose lock is taken first.

Every step may be repeated after a crash: a ref that has its new value already is left alone. Source of the protocol:
gitrepository-layout(5); refs/files-backend.c.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from dulwich.file import FileLocked
from dulwich.objects import ObjectID
from dulwich.refs import Ref

from mudroom.core.git.ref_plan import HEAD, STASH, RefMove
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.vault.git.index_file import IndexMove, IndexUpdate, move_index
from mudroom.vault.git.repository import Repository, RepositoryPlace
from mudroom.vault.git.write import RepositoryWriter, sync_directory


class RepositoryMoves(NamedTuple):
    """What an apply does to the refs of one repository; kept for undo, redo and recovery."""

    label: bytes
    """The repository's path in the project, for display: ``.git``."""
    git: bytes
    common: bytes
    """As in RepositoryPlace: absolute, without links."""
    moves: tuple[RefMove, ...]
    message: bytes
    """For the logs of the refs."""
    checkout: tuple[bytes, bytes] | None = None
    """The checked-out commit before and after, if it moves; b"" before the first commit."""
    work_tree: bytes = b""
    """Absolute path of the work tree whose index moves."""
    staged: tuple[bytes, ...] = ()
    """Paths that the user had staged before as the new commit has them: undo leaves them staged."""

    @property
    def place(self) -> RepositoryPlace:
        return RepositoryPlace(self.git, self.common)


class RefFailure(NamedTuple):
    """A ref that is why nothing of a repository was moved."""

    label: bytes
    ref: bytes
    reason: str


def reversed_moves(record: RepositoryMoves) -> RepositoryMoves:
    """Return the moves that take these back."""
    moves = tuple(RefMove(move.name, move.after, move.before, move.entries) for move in reversed(record.moves))
    checkout = (record.checkout[1], record.checkout[0]) if record.checkout is not None else None
    return record._replace(moves=moves, checkout=checkout, message=b"mudroom: undo")


def perform_moves(record: RepositoryMoves, *, back: bool = False, again: bool = False) -> list[RefFailure]:
    """Move the refs. Return an empty list, or the reasons why nothing was moved. ``back``: the moves take back others.
    ``again``: they were begun before, and may have been cut off.

    Raise UsageError if the repository is gone or of an unsupported kind.
    """
    with Repository(record.place) as live:
        return _Transaction(live, record, back=back, again=again).run()


class _Transaction:
    def __init__(self, live: Repository, record: RepositoryMoves, *, back: bool, again: bool) -> None:
        self._live, self._record, self._back, self._again = live, record, back, again
        self._writer = RepositoryWriter(live)
        self._locks: list[bytes] = []

    def run(self) -> list[RefFailure]:
        failures = [failure for move in self._record.moves if (failure := self._check(move)) is not None]
        if failures:
            return failures
        pending = [move for move in self._record.moves if self._value(move.name) != move.after]
        try:
            with self._index():
                for move in pending:
                    if move.after:
                        self._lock(move)
                again = [failure for move in pending if (failure := self._check(move)) is not None]
                if again:
                    return again
                for move in pending:
                    self._commit(move)
        except UsageError as error:
            return [RefFailure(self._record.label, HEAD, str(error))]
        finally:
            for lock in self._locks:
                os.unlink(lock)
        return []

    def _index(self) -> IndexUpdate:
        record = self._record
        if record.checkout is None:
            return IndexUpdate(b"", None)
        path = record.git + b"/index"
        checkout = IndexMove(*record.checkout, record.work_tree, frozenset(record.staged))
        return move_index(self._live, path, checkout, again=self._again)

    def _value(self, name: bytes) -> bytes:
        if name == HEAD:
            return self._live.head_target()
        return self._live.refs.read_ref(Ref(name)) or b""

    def _check(self, move: RefMove) -> RefFailure | None:
        value = self._value(move.name)
        reason = ""
        if value not in (move.before, move.after):
            reason = "has moved since" if value else "is not there any more"
        elif value != move.after and move.name != HEAD and not self._moves_with_index(move):
            where = self._live.checked_out().get(move.name)
            reason = "is checked out" if where is not None else ""
        return RefFailure(self._record.label, move.name, reason) if reason else None

    def _moves_with_index(self, move: RefMove) -> bool:
        """Whether this ref is the branch whose index moves with it."""
        record = self._record
        if record.checkout is None:
            return False
        here = self._live.head_target()
        heads = {here, *(value for other in record.moves if other.name == HEAD for value in other[1:3])}
        return move.name in heads and self._live.checked_out().get(move.name) in (None, record.git)

    def _lock(self, move: RefMove) -> None:
        path = self._path(move.name)
        lock = path + b".lock"
        content = b"ref: " + move.after if move.name == HEAD else move.after
        self._writer.create_lock(move.name, lock, content + b"\n", again=self._again)
        self._locks.append(lock)

    def _commit(self, move: RefMove) -> None:
        path = self._path(move.name)
        if not move.after:
            self._remove(move)
            return
        if move.entries:
            self._log_stashes(move)
        elif move.name != HEAD:
            self._writer.log(move.name, move.before, move.after, self._record.message)
            if move.name == self._live.head_target():
                self._writer.log(HEAD, move.before, move.after, self._record.message, self._record.git)
        elif self._record.checkout is not None:
            self._writer.log(HEAD, *self._record.checkout, self._record.message, self._record.git)
        _rename_ref(move.name, path)
        self._locks.remove(path + b".lock")
        sync_directory(os.path.dirname(path))

    def _remove(self, move: RefMove) -> None:
        if move.entries:
            self._unlog_stashes(move)
        try:
            done = self._live.refs.remove_if_equals(Ref(move.name), ObjectID(move.before))
        except FileLocked as error:
            raise MudroomError(
                "another git command is at work in the repository",
                f"if not, remove {show(os.fsencode(error.lockfilename))}",
            ) from None
        if done:
            self._writer.remove_log(move.name)

    # --- stashes: each is an entry of the log of refs/stash ---

    def _log_stashes(self, move: RefMove) -> None:
        if self._back:
            self._unlog_stashes(move)
            return
        old = move.before
        for commit, message in move.entries:
            self._writer.log(STASH, old, commit, message, always=True)
            old = commit

    def _unlog_stashes(self, move: RefMove) -> None:
        self._writer.unlog(STASH, [commit for commit, _message in move.entries], again=self._again)

    def _path(self, name: bytes) -> bytes:
        return os.path.join(self._record.git if name == HEAD else self._record.common, name)


def _rename_ref(name: bytes, path: bytes) -> None:
    """Let a lock file become its ref, in place of an empty directory that deleted refs have left."""
    try:
        if os.path.isdir(path):
            os.rmdir(path)
        os.rename(path + b".lock", path)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST):
            raise UsageError(f"{show(name)} cannot be written: {error.strerror}") from None
        raise
