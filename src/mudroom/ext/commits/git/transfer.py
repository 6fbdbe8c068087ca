"""Bring a fork's changes to a repository into the user's: objects first, then refs. Decision 30.

1. ``open_transfer`` reads the refs that the fork changed, and checks every object that they need (``walk.py``). A
   damaged, hostile or emptied object refuses the whole transfer, before anything is written.
2. ``Transfer.add_objects`` adds one pack. Objects without a ref are harmless: git collects them.
3. ``Transfer.plan`` decides about each ref (``core/ref_plan.py``) when it is known whether the work tree has landed;
   ``perform_moves`` (``ref_transaction.py``) moves them.

The fork's repository was written by an agent: git itself never runs on it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mudroom.core.git.outcome import Commit, RefOutcome, TransferResult
from mudroom.core.tree.change import Change
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.commits.core.emptied import Emptied
from mudroom.ext.commits.core.ref_plan import (
    HEAD,
    HEADS,
    NOTES,
    STASH,
    TAGS,
    HeadSides,
    RefLookup,
    RefMove,
    RefPlanOptions,
    RefSides,
    RepositoryMoves,
    name_conflicts,
    plan_refs,
)
from mudroom.ext.commits.git.check import CommitText
from mudroom.ext.commits.git.commits import checked_objects, describe
from mudroom.ext.commits.git.fork_refs import (
    ChangedRefs,
    ForkFiles,
    SideFiles,
    SideRefs,
    UnknownOriginal,
    changed_refs,
)
from mudroom.ext.commits.git.history import History
from mudroom.ext.commits.git.index_file import holds, index_obstacle, staged_already, tree_difference
from mudroom.ext.commits.git.objects import ForkObjects
from mudroom.ext.commits.git.read import refusal
from mudroom.ext.commits.git.repository import Repository
from mudroom.ext.commits.git.signing import CommitSigner
from mudroom.ext.commits.git.user_settings import UserFiles, user_git_files
from mudroom.ext.commits.git.walk import NewObjects, Walk
from mudroom.ext.commits.git.write import RepositoryWriter
from mudroom.stage.source import OpenSource, Source
from mudroom.typing import NamedTuple
from mudroom.vault.git.place import RepositoryPlace


class RepositorySides(NamedTuple):
    """A repository in the project and in a fork's view."""

    label: bytes
    """Path of the git directory in the project, for display."""
    place: RepositoryPlace
    git: bytes
    """The directory with HEAD in the view."""
    common: bytes
    """The directory with objects and branches in the view."""
    work_tree: bytes
    """Absolute path of the project's work tree, or b""."""


class ForkSide(NamedTuple):
    """A fork as a transfer reads it; no command may be running in it."""

    name: str
    view: Source
    """The whole fork, as a command sees it."""
    original: SideFiles
    """The files as they were when the fork began."""
    changes: Sequence[Change]
    """The changes in its record."""


class Commits(NamedTuple):
    """The outcome of ``apply --commits``."""

    branch: str
    """Full name of the branch for the fork's HEAD in the project's repository: refs/heads/mudroom/agent-1."""
    head: str
    """The fork's HEAD."""
    before: str
    """The branch's commit before; empty if it is new."""
    result: TransferResult
    name: str
    """The apply, for undo; empty if the repository already had everything."""

    @property
    def commits(self) -> tuple[Commit, ...]:
        return self.result.commits

    @property
    def objects(self) -> int:
        return self.result.objects


class Transfer:
    """The refs and objects in one repository of one fork."""

    def __init__(self, sides: RepositorySides, fork: ForkSide, live: Repository, objects: ForkObjects) -> None:
        self.sides, self._fork, self.live, self._objects = sides, fork, live, objects
        self._history = History(live, objects)
        length = live.format.hex_length
        self._staged = SideRefs(ForkFiles(fork.view), sides.git, sides.common, length)
        self._base = SideRefs(fork.original, sides.git, sides.common, length)
        changed = changed_refs(fork.changes, sides.git, sides.common, self._base, self._staged)
        self._refs, self._unread = self._sides_of(changed)
        self._head = self._sides_of_head()
        self._stashes = self._new_stashes() if changed.stash else []
        self._walk = Walk(live, self._history)
        self._new = NewObjects((), {}, frozenset())
        self._listed: tuple[tuple[bytes, CommitText], ...] = ()
        """The new commits, except stashes'."""
        self._has_objects = False
        """Whether the project's repository has the new objects."""
        self._signed: int | None = None

    # --- reading ---

    def _sides_of(self, changed: ChangedRefs) -> tuple[dict[bytes, RefSides], list[RefOutcome]]:
        refs: dict[bytes, RefSides] = {}
        unread: list[RefOutcome] = []
        for name in changed.names:
            try:
                base: bytes | None = self._base.value(name)
            except UnknownOriginal:
                base = None
            value = self._staged.value(name)
            if value == base:
                continue
            if value and name.startswith((HEADS, TAGS, NOTES)) and not self._is_brought(name, value):
                unread.append(RefOutcome(name, "left", reason="names an object that is no commit"))
                continue
            refs[name] = RefSides(base, value, self.live.ref(name))
        return refs, unread

    def _is_brought(self, name: bytes, value: bytes) -> bool:
        """Return whether a ref names a commit; a tag may do so through annotated tags."""
        return self._history.is_commit(self._history.peel(value) if name.startswith(TAGS) else value)

    def _sides_of_head(self) -> HeadSides:
        try:
            base = self._base.head()
        except UnknownOriginal:
            base = b""
        head, value = self._staged.head(), self._staged.value(HEAD)
        if not head:
            raise refusal("HEAD does not name an object")
        live = self.live.head_target()
        commit = self._history.peel(value) if value else b""
        return HeadSides(base, head, live, commit, self._base.kept_commit(), self._live_value(live))

    def _live_value(self, head: bytes) -> bytes:
        """Return the commit at a branch in the project, or a detached HEAD's."""
        return self.live.ref(head) if head.startswith(b"refs/") else head

    def _new_stashes(self) -> list[tuple[bytes, bytes]]:
        """Return the stashes that the fork made and still has, and that the project lacks."""
        try:
            known = {commit for commit, _message in self._base.stashes()}
        except UnknownOriginal:
            known = set()
        known |= set(self._live_stashes())
        stashes = [(commit, message) for commit, message in self._staged.stashes() if commit not in known]
        return [(commit, message) for commit, message in stashes if self._is_stash(commit)]

    def _live_stashes(self) -> list[bytes]:
        try:
            with open(self.live.place.common + b"/logs/" + STASH, "rb") as stream:
                return [line.split(b" ", 2)[1] for line in stream if line.count(b" ") > 1]
        except FileNotFoundError:
            return []

    def _is_stash(self, commit: bytes) -> bool:
        return self._history.is_commit(commit) and len(self._history.commit(commit).parents) in (2, 3)

    @property
    def head(self) -> bytes:
        """The commit at the fork's HEAD; b"" before the first commit."""
        return self._head.fork_commit

    @property
    def head_ref(self) -> bytes:
        """The fork's branch, or a detached HEAD's commit."""
        return self._head.fork

    @property
    def operation(self) -> str:
        """Git's unfinished operation in the project, such as ``a rebase``, or empty."""
        return self.live.operation()

    def require_refs(self, result: TransferResult) -> None:
        """Raise UsageError if the fork has nothing to bring."""
        if result.refs:
            return
        if not self.head:
            raise UsageError(f"{show(self._head.fork)}, to which HEAD of the fork leads, has no commit yet")
        raise UsageError(
            f"the fork {self._fork.name} has no commits that the repository does not have",
            "files that are not committed come with mudroom apply, without --commits",
        )

    def require_forward(self, before: bytes, branch: bytes) -> None:
        """Raise UsageError if a branch at ``before`` cannot move forward to the fork's HEAD."""
        if before and self.head and not self._history.reaches(self.head, before):
            raise UsageError(
                f"the branch {show(branch[11:])} has commits that the fork's does not have",
                "it is never overwritten: choose another with --branch",
            )

    # --- objects ---

    def check(self, emptied: Emptied) -> None:
        """Find and check all new objects. Raise UsageError if one is missing, damaged, refused, or emptied."""
        named = [
            sides.fork
            for name, sides in self._refs.items()
            if sides.fork and sides.fork != sides.live and name.startswith((HEADS, TAGS, NOTES))
        ]
        named += [self._head.fork_commit] if self._head.fork_commit else []
        stashes = [commit for commit, _message in self._stashes]
        self._walk = Walk(self.live, self._history, emptied)
        self._new = self._walk.new(*dict.fromkeys((*named, *stashes)))
        listed = {*self._history.new_commits(*dict.fromkeys(map(self._history.peel, named)))} if stashes else None
        self._listed = tuple(pair for pair in self._new.commits if listed is None or pair[0] in listed)

    def sign(self, user: UserFiles) -> None:
        """Let signed copies of the user's new commits stand for them, in the refs and among the new objects. Raise
        UsageError if a commit cannot be signed."""
        history, new = self._history, self._new
        refs = {name: sides.fork for name, sides in self._refs.items() if sides.fork}
        tags = [value for name, value in refs.items() if name.startswith(TAGS)]
        tips = [value for name, value in refs.items() if name.startswith(HEADS)]
        tips += [self._head.fork_commit] if self._head.fork_commit else []
        remote = [value for name, value in refs.items() if name.startswith(b"refs/remotes/")]
        staying = [value for name, value in refs.items() if name.startswith(NOTES)]
        staying += [commit for commit, _message in self._stashes]
        own = history.new_commits(*dict.fromkeys((*tips, *map(history.peel, tags))))
        fetched = {*history.new_commits(*filter(history.is_commit, map(history.peel, remote)))}
        signer = CommitSigner(self.live, history, user)
        signer.sign(own, fetched, tags)
        self._signed, self._objects.made, names = signer.total, signer.objects, signer.names
        gone = names.keys() - history.new_commits(*dict.fromkeys(staying))
        missing = {name: kind for name, kind in new.missing.items() if name not in gone}
        missing |= {name: kind for name, (kind, _data) in signer.objects.items()}
        copies = tuple((names[name], history.commit(names[name])) for name in own if names.get(name) in signer.objects)
        self._new = new._replace(commits=(*new.commits, *copies), missing=missing)
        landed = {name for name in names if names[name] not in signer.objects}
        self._listed = tuple((names.get(name, name), text) for name, text in self._listed if name not in landed)
        self._refs = {
            name: sides._replace(fork=names.get(sides.fork, sides.fork)) if name.startswith((HEADS, TAGS)) else sides
            for name, sides in self._refs.items()
        }
        head = self._head
        self._head = head._replace(
            fork=names.get(head.fork, head.fork), fork_commit=names.get(head.fork_commit, head.fork_commit)
        )

    def add_objects(self) -> int:
        """Add the new objects to the project's repository, durably. Return their number."""
        if self._new.missing and not self._has_objects:
            writer = RepositoryWriter(self.live)
            writer.add_objects(len(self._new.missing), checked_objects(self._objects, self._new))
        self._has_objects = True
        return len(self._new.missing)

    # --- refs ---

    def plan(self, options: RefPlanOptions) -> tuple[RepositoryMoves, TransferResult]:
        """Return the moves, and the outcome for each ref in the fork. Obstacles in the project's repository are added
        to ``options.not_whole``."""
        options = options._replace(not_whole=options.not_whole or self._obstacle())
        plan = plan_refs(self._refs, self._head, self._lookup(), options)
        moves, outcomes = [*plan.moves], [*plan.outcomes, *self._unread]
        if self._stashes:
            moves.append(RefMove(STASH, self.live.ref(STASH), self._stashes[-1][0], tuple(self._stashes)))
            count = len(self._stashes)
            outcomes.append(RefOutcome(STASH, "moved", STASH, f"has {count} more entr{'ies' if count > 1 else 'y'}"))
        checkout = self._checkout(moves)
        if checkout is not None:
            self._walk.require_few_paths(*checkout)
        message = b"mudroom: apply of " + os.fsencode(self._fork.name)
        record = RepositoryMoves(
            self.sides.label,
            self.sides.place.git,
            self.sides.place.common,
            tuple(moves),
            message,
            checkout,
            self.sides.work_tree,
            self._staged_already(*checkout) if checkout is not None and self._has_objects else (),
        )
        commits = tuple(describe(name, text) for name, text in self._listed)
        objects = len(self._new.missing)
        return record, TransferResult(self.sides.label, tuple(outcomes), commits, objects, self._signed)

    def left_behind(self, options: RefPlanOptions, lands: Collection[bytes]) -> bytes:
        """Return a file that would stay as in the present commit although the next one changes it, or b"". ``lands``:
        work tree paths that become as in the fork.

        A fork's changes are relative to its beginning. Since then the user may have merged its commits, and the fork
        may
        have reverted their changes: its files then show no change. Adds the objects if it has to compare commits.
        """
        if not self.sides.work_tree or self._head.live_commit == self._head.base_commit:
            return b""
        checkout = self.plan(options)[0].checkout
        if checkout is None:
            return b""
        self.add_objects()
        old, _new = tree_difference(self.live, *checkout)
        length = self.live.format.oid_length
        with OpenSource(self.sides.work_tree) as files:
            return next((path for path in sorted(old.keys() - lands) if holds(files, path, old[path], length)), b"")

    def _lookup(self) -> RefLookup:
        live, operation = self.live, self.live.operation()
        new = {name for name, _text in self._new.commits}
        checked_out = {
            name: directory == live.place.git and not operation for name, directory in live.checked_out().items()
        }
        if not self.sides.work_tree:
            checked_out = dict.fromkeys(checked_out, False)
        return RefLookup(
            live.ref,
            checked_out,
            lambda one, other: self._history.reaches(self._history.peel(other), self._history.peel(one)),
            lambda commit: commit not in new,
            name_conflicts(live.refs.allkeys()),
        )

    def _obstacle(self) -> str:
        """Return why the checked-out branch cannot move, as the end of a sentence; empty if it can."""
        operation = self.live.operation()
        if operation:
            return f"{operation} is not finished"
        if os.path.lexists(self.sides.place.git + b"/HEAD.lock"):
            return "another git command has locked HEAD"
        return index_obstacle(self.sides.place.git + b"/index", self.live.format.oid_length)

    def _staged_already(self, before: bytes, after: bytes) -> tuple[bytes, ...]:
        difference = tree_difference(self.live, before, after)
        return staged_already(self.live, self.sides.place.git + b"/index", *difference)

    def _checkout(self, moves: list[RefMove]) -> tuple[bytes, bytes] | None:
        """Return the checked-out commit before and after the moves, or None if it stays."""
        values = {move.name: move for move in moves}
        after = self._head.live
        if HEAD in values:
            after = values[HEAD].after
        old = self._head.live_commit
        new = values[after].after if after in values else self._live_value(after)
        return (old, new) if old != new else None


@contextmanager
def open_transfer(
    sides: RepositorySides, fork: ForkSide, emptied: Emptied, signing: Mapping[bytes, bytes] | None = None
) -> Iterator[Transfer]:
    """Yield the transfer for one repository, with all its objects checked, and its commits signed with the user's
    variables ``signing``. Raise UsageError if it is refused, or cannot be signed."""
    with Repository(sides.place) as live:
        known = live.packs()
        with ForkObjects(fork.view, sides.common + b"/objects", live.format.name, known) as objects:
            transfer = Transfer(sides, fork, live, objects)
            transfer.check(emptied)
            if signing is not None:
                transfer.sign(user_git_files(signing))
            yield transfer
