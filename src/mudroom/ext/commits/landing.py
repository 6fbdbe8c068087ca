"""A fork's repositories as part of an apply: objects before the files, refs after them.

An apply keeps its ref moves in ``applies/uN/refs``, written before the first ref moves. Undo and redo move the refs by
compare-and-swap, all in a repository or none; recovery repeats moves that had begun. Objects are never removed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec

from mudroom.core.git.outcome import TransferResult
from mudroom.core.merge.merge import Conflict
from mudroom.core.merge.operations import Landing
from mudroom.core.tree.change import Remark
from mudroom.core.tree.path import is_below, show
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.commits.core.emptied import Emptied
from mudroom.ext.commits.core.ref_plan import HEADS, RefPlanOptions, RepositoryMoves
from mudroom.ext.commits.git.commits import branch_name, directories_in_view, require_dulwich, require_free
from mudroom.stage import disk, safe_open
from mudroom.stage.originals.collection import MASKED
from mudroom.stage.source import Source
from mudroom.vault.apply.repositories import REFS
from mudroom.vault.apply.transaction import ApplyDirectory, ApplyResult, new_record
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.git.place import find_repository
from mudroom.vault.record import ForkRecord, write
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.masked_secrets import masked_of
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.ext.commits.git.ref_transaction import RefFailure
    from mudroom.ext.commits.git.transfer import Commits, ForkSide, RepositorySides, Transfer


def _sides(project: bytes, directory: bytes, view: Source) -> RepositorySides:
    from mudroom.ext.commits.git.repository import Repository
    from mudroom.ext.commits.git.transfer import RepositorySides

    place = find_repository(project, directory)
    root = disk.real_path(project)
    git, common = directories_in_view(project, directory, view, place)
    with Repository(place) as live:
        work_tree = live.work_tree()
    inside = work_tree if work_tree and is_below(work_tree, root) else b""
    return RepositorySides(directory, place, git, common, inside)


# --- during the apply ---


class GitLanding:
    """An apply's transfers (``vault/apply/repositories.py:RefLanding``). Hold the fork's lock."""

    def __init__(self, transfers: Sequence[Transfer], vault: Vault, fork: Fork) -> None:
        self._transfers, self._vault, self._fork = transfers, vault, fork
        self._project = disk.real_path(vault.source)

    def _options(self, not_whole: str = "") -> RefPlanOptions:
        return RefPlanOptions(os.fsencode(self._fork.name), not_whole)

    def add_objects(self) -> None:
        for transfer in self._transfers:
            transfer.add_objects()

    def left_behind(self, lands: Collection[bytes]) -> str:
        """Return why the files would differ from the commits, as the end of a sentence; empty if they would not.
        ``lands``: project paths that become as in the fork."""
        for transfer in self._transfers:
            folder = os.path.relpath(transfer.sides.work_tree or self._project, self._project)
            prefix = b"" if folder == b"." else folder + b"/"
            below = {path[len(prefix) :] for path in lands if path.startswith(prefix)}
            path = transfer.left_behind(self._options(), below)
            if path:
                return f"{show(prefix + path)} would not be as in the commit: the fork has taken its change back"
        return ""

    def held_back(self, not_whole: str, left_behind: str) -> list[Conflict]:
        """Return the fork's checked-out branches that cannot arrive under their own names, as conflicts.

        No file is applied then: applied files would be in the way of the ``git merge`` that takes the commits.
        ``not_whole``: why not all files can be applied; empty if they can.
        """
        conflicts = []
        for transfer in self._transfers:
            _moves, result = transfer.plan(self._options(not_whole or left_behind))
            for outcome in result.refs:
                target = outcome.target if outcome.result in ("beside", "there", "kept") else b""
                if left_behind and outcome.ref == b"HEAD" and outcome.result == "kept":
                    target = target or transfer.head_ref
                if target and outcome.ref in (b"HEAD", transfer.head_ref):
                    branch = show(target.removeprefix(HEADS))
                    first = f"finish {transfer.operation} (git status), then " if transfer.operation else ""
                    way = f"{first}git merge {branch}, then mudroom apply {self._fork.name}"
                    reason = f"{outcome.reason}; its commits are in {branch}, and no file was applied: {way}"
                    conflicts.append(Conflict(transfer.sides.label + b"/" + outcome.ref, reason.removeprefix("; ")))
        return conflicts

    def bring(
        self, place: ApplyDirectory | None, applied: ApplyResult, not_whole: str, time: int
    ) -> tuple[ApplyDirectory | None, ApplyResult, list[TransferResult]]:
        """Move the refs. Return the apply's directory, which is created if there was none and a ref moves. The moves
        are saved durably before the first ref moves."""
        planned = [transfer.plan(self._options(not_whole)) for transfer in self._transfers]
        records = [record for record, _result in planned if record.moves]
        if records and place is not None:
            save_refs(place.path, records)
        elif records:
            place = _begin_without_files(self._vault, self._fork, time, records)
        failures = move_refs(records)
        if failures and place is not None:
            failed = {failure.label for failure in failures}
            save_refs(place.path, [record for record in records if record.label not in failed])
        results = [_told(result, failures) for _record, result in planned]
        return place, applied if place is None else applied._replace(name=place.name), results


def _told(result: TransferResult, failures: Sequence[RefFailure]) -> TransferResult:
    """Return the result with the refs that could not be moved."""
    own = {failure.ref: failure.reason for failure in failures if failure.label == result.label}
    if not own:
        return result
    reason = "; ".join(f"{show(ref)} {text}" for ref, text in own.items())
    refs = (
        outcome._replace(result="left", target=b"", reason=reason) if outcome.result in ("moved", "beside") else outcome
        for outcome in result.refs
    )
    return result._replace(refs=tuple(refs))


@contextmanager
def open_git_landing(
    vault: Vault,
    fork: Fork,
    record: ForkRecord,
    directories: Sequence[bytes],
    signing: Mapping[bytes, bytes] | None = None,
) -> Iterator[GitLanding]:
    """Yield the transfers for these git directories in the project, with all objects checked. Hold the fork's lock. If
    a repository is refused or a commit not signed, raise UsageError before anything is written. ``signing``: the user's
    variables for git, if it signs."""
    with _fork_side(vault, fork, record) as (side, emptied), ExitStack() as stack:
        from mudroom.ext.commits.git.transfer import open_transfer

        transfers = [
            stack.enter_context(open_transfer(_sides(vault.source, directory, side.view), side, emptied, signing))
            for directory in directories
        ]
        yield GitLanding(transfers, vault, fork)


def require_unemptied_repositories(vault: Vault, fork: Fork, tops: Iterable[bytes]) -> None:
    """Raise UsageError with the path if one of these repositories, made in the fork, holds a masked file as empty."""
    require_dulwich()
    from mudroom.ext.commits.git.made import require_unemptied

    with OpenFork(vault, fork) as opened:
        view = opened.merged()
        for top in sorted(tops):
            require_unemptied(view, top, vault.mask.paths)


def require_unemptied_commits(vault: Vault, fork: Fork, record: ForkRecord, directories: Sequence[bytes]) -> None:
    """Raise UsageError with the path if a commit made in the fork holds a masked file as empty."""
    require_dulwich()
    from mudroom.ext.commits.git.walk import EmptiedFile

    try:
        with open_git_landing(vault, fork, record, directories):
            return
    except EmptiedFile:
        raise
    except UsageError:
        return


@contextmanager
def _fork_side(vault: Vault, fork: Fork, record: ForkRecord) -> Iterator[tuple[ForkSide, Emptied]]:
    """Yield the fork as a transfer reads it, and its masked files."""
    require_dulwich()
    from mudroom.ext.commits.git.fork_refs import OriginalFiles
    from mudroom.ext.commits.git.transfer import ForkSide

    changes = record.changeset.changes
    masked = {*vault.mask.paths, *(remark.path for remark in record.changeset.remarks if remark.text == MASKED)}
    with OpenFork(vault, fork) as opened:
        original = OriginalFiles(opened.ground(record.changeset), {change.path: change for change in changes})
        yield ForkSide(fork.name, opened.merged(), original, changes), Emptied(masked | masked_of(fork.path).names)


# --- moving refs ---


def _begin_without_files(vault: Vault, fork: Fork, time: int, records: Sequence[RepositoryMoves]) -> ApplyDirectory:
    """Begin an apply that changes no project file. The caller ends it."""
    place = ApplyDirectory(vault.new_apply())
    place.begin("apply")
    save_refs(place.path, records)
    place.write("done", new_record(place, fork.name, time, vault.source, fork.layered, Landing(()), {}))
    return place


def bring_commits(
    vault: Vault,
    fork: Fork,
    record: ForkRecord,
    branch: str | None,
    repository: bytes,
    time: int,
    signing: Mapping[bytes, bytes] | None,
) -> Commits:
    """Bring a fork's commits, but no files, to the project's repository: its HEAD arrives at ``branch``, by default
    ``mudroom/FORK``; its other branches, tags, notes and stashes as in an apply. Hold the vault's and the fork's
    lock. ``signing``: as for ``open_git_landing``.

    Raise UsageError, with nothing changed: if the fork has no commits that the repository lacks; if the branch cannot
    be moved forward to them; if an object is refused, or a commit not signed.
    """
    require_dulwich()
    from mudroom.ext.commits.git.transfer import Commits, open_transfer

    name = branch_name(branch, fork.name)
    with (
        _fork_side(vault, fork, record) as (side, emptied),
        open_transfer(_sides(vault.source, repository, side.view), side, emptied, signing) as transfer,
    ):
        before = require_free(transfer.live, name)
        transfer.require_forward(before, name)
        options = RefPlanOptions(os.fsencode(fork.name), "no files are applied", name)
        result = transfer.plan(options)[1]
        transfer.require_refs(result)
        applied = ApplyResult("")
        if result.moved:
            transfer.add_objects()
            records = [transfer.plan(options)[0]]
            place = _begin_without_files(vault, fork, time, records)
            failures = move_refs(records)
            place.end()
            if failures:
                place.drop("done")
                raise UsageError(f"{show(failures[0].ref)} {failures[0].reason}", "try again")
            applied = ApplyResult(place.name)
        return Commits(os.fsdecode(name), transfer.head.decode(), before.decode(), result, applied.name)


# --- undo, redo, recovery ---


def save_refs(place: bytes, records: Sequence[RepositoryMoves]) -> None:
    """Save an apply's moves, durably. ``place``: the apply's directory."""
    write(place + REFS, msgspec.msgpack.encode(records), durable=True)


def load_refs(place: bytes) -> list[RepositoryMoves]:
    """Return an apply's moves; empty if it moved no refs."""
    try:
        data = safe_open.read(place + REFS)
    except FileNotFoundError:
        return []
    return msgspec.msgpack.decode(data, type=list[RepositoryMoves])


def move_refs(records: Sequence[RepositoryMoves], *, back: bool = False, again: bool = False) -> list[RefFailure]:
    """Move refs forward, or back. Return those that could not be moved; in their repositories no ref has moved.
    ``again``: they were begun before, and may have been cut off."""
    if not records:
        return []
    require_dulwich()
    from mudroom.ext.commits.git.ref_transaction import RefFailure, perform_moves, reversed_moves

    failures: list[RefFailure] = []
    for record in records:
        try:
            failures += perform_moves(reversed_moves(record) if back else record, back=back, again=again)
        except MudroomError as error:
            failures.append(RefFailure(record.label, b"HEAD", str(error)))
    return failures


def moved_again(place: bytes, *, back: bool) -> tuple[Remark, ...]:
    """Move an interrupted apply's refs, forward or back. Return a remark for each that could not be moved."""
    failures = move_refs(load_refs(place), back=back, again=True)
    return tuple(Remark(failure.label + b"/" + failure.ref, failure.reason) for failure in failures)


def _conflicts(failures: Iterable[RefFailure], *, back: bool) -> list[Conflict]:
    """Return the refs that an undo or redo could not move, as conflicts in git's words."""
    taken_back = "the files that were taken back" if back else "the files that were applied"
    return [
        Conflict(failure.label + b"/" + failure.ref, f"{failure.reason}, and stays; git status shows {taken_back}")
        for failure in failures
    ]


def _require_unlocked(records: Iterable[RepositoryMoves]) -> None:
    for record in records:
        places = {b"index": record.git, b"HEAD": record.git} if record.checkout is not None else {}
        places |= {move.name: record.git if move.name == b"HEAD" else record.common for move in record.moves}
        locks = (os.path.join(directory, name) + b".lock" for name, directory in places.items())
        held = next((lock for lock in locks if os.path.lexists(lock)), None)
        if held is not None:
            raise UsageError(
                "another git command is at work in the repository, so nothing was changed",
                f"if not, remove {show(held)}",
            )


class GitTurn:
    """An apply's refs, moved back or forward again after its files (``vault/apply/repositories.py:RefTurn``). Raise
    UsageError, before anything is changed, if another git command is at work in a repository."""

    def __init__(self, place: ApplyDirectory, *, back: bool) -> None:
        _require_unlocked(load_refs(place.path))
        self._place, self._back = place, back
        self._found: list[Conflict] = []
        self._moved: tuple[str, ...] = ()

    def settle(self, _applied: ApplyResult) -> tuple[Remark, ...]:
        """Move the refs. The undo or redo calls this before it counts as finished."""
        records = load_refs(self._place.path)
        failures = move_refs(records, back=self._back)
        failed = {failure.label for failure in failures}
        self._found = _conflicts(failures, back=self._back)
        moved = (move.name for record in records if record.label not in failed for move in record.moves)
        self._moved = tuple(map(show, moved))
        return ()

    def added_to(self, applied: ApplyResult) -> ApplyResult:
        return applied._replace(conflicts=(*applied.conflicts, *self._found), refs=self._moved)
