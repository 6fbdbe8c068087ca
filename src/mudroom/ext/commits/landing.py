"""The repositories of a fork, as part of an apply: objects before the files, refs after them.

The refs that an apply moves are kept in ``applies/uN/refs``, written before the first of them moves. Undo and redo
move them by compare-and-swap, all of a repository or none; recovery repeats what was begun. Objects are never removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from mudroom.ext.commits.core.ref_plan import HEADS, NOTES, TAGS, RefPlanOptions, RepositoryMoves
from mudroom.core.merge.merge import Conflict
from mudroom.core.merge.operations import Landing
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import git_directory, is_protected
from mudroom.core.tree.path import is_below, show
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import disk, safe_open
from mudroom.stage.originals.collection import MASKED
from mudroom.stage.source import Source
from mudroom.vault.apply.transaction import ApplyDirectory, ApplyResult, new_record
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.record import ForkRecord
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.masked_secrets import masked_of
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_directory

if TYPE_CHECKING:
    from mudroom.ext.commits.core.emptied import Emptied
    from mudroom.ext.commits.git.ref_transaction import RefFailure
    from mudroom.ext.commits.git.transfer import Commits, ForkSide, RepositorySides, Transfer, TransferResult

_REFS = b"/refs"
NOT_WHOLE = "not all files of the fork were applied"


# --- which repositories ---


def existing_units(look: Callable[[bytes], Entry | None], changes: Iterable[Change]) -> set[bytes]:
    """Return the ``.git`` directories with changes that are repositories of the project: their files never land.
    ``look``: of the project. A ``.git`` that is a file there has changes below it if the fork has a private repository
    (``vault/git/private_directory.py``)."""
    units: dict[bytes, bool] = {}
    for change in changes:
        unit = git_directory(change.path)
        if unit is not None:
            units[unit] = units.get(unit, False) or change.path != unit
    return {unit for unit, has_files in units.items() if _is_repository(look, unit, has_files=has_files)}


def _is_repository(look: Callable[[bytes], Entry | None], unit: bytes, *, has_files: bool) -> bool:
    if look(unit + b"/HEAD") is not None:
        return True
    entry = look(unit) if has_files else None
    return entry is not None and entry.kind != "directory"


def git_directories(project: bytes, changes: Iterable[Change]) -> list[bytes]:
    """Return the git directories of the project whose HEAD or refs the fork changed, those of submodules included."""
    directories: set[bytes] = set()
    for change in changes:
        unit = git_directory(change.path)
        if unit is None or is_protected(change.path):
            continue
        directory = _module(project, unit, change.path)
        within = change.path[len(directory) + 1 :]
        if within in (b"HEAD", b"packed-refs") or within.startswith((b"refs/", b"worktrees/")):
            directories.add(directory)
    return sorted(path for path in directories if _leads_to_repository(os.path.join(project, path)))


def _leads_to_repository(path: bytes) -> bool:
    return os.path.lexists(path + b"/HEAD") or (os.path.lexists(path) and not os.path.isdir(path))


def _module(project: bytes, unit: bytes, path: bytes) -> bytes:
    """Return the git directory that a path below ``unit`` belongs to: a submodule's, or ``unit`` itself.
    gitrepository-layout(5), modules."""
    found, parts = unit, path[len(unit) + 1 :].split(b"/")
    if parts[0] != b"modules":
        return found
    for end in range(2, len(parts)):
        candidate = b"/".join((unit, *parts[:end]))
        if all(os.path.lexists(os.path.join(project, candidate, name)) for name in (b"HEAD", b"objects")):
            found = candidate
    return found


def _sides(project: bytes, directory: bytes, view: Source) -> RepositorySides:
    from mudroom.ext.commits.git.commits import directories_in_view
    from mudroom.ext.commits.git.repository import Repository, find_repository
    from mudroom.ext.commits.git.transfer import RepositorySides

    place = find_repository(project, directory)
    root = disk.real_path(project)
    git, common = directories_in_view(project, directory, view, place)
    with Repository(place) as live:
        work_tree = live.work_tree()
    inside = work_tree if work_tree and is_below(work_tree, root) else b""
    return RepositorySides(directory, place, git, common, inside)


# --- on the way ---


class GitLanding:
    """The transfers of an apply. Empty if no repository is to be brought."""

    def __init__(self, transfers: Sequence[Transfer], fork: str, project: bytes) -> None:
        self._transfers, self._fork, self._project = transfers, fork, disk.real_path(project)

    def __bool__(self) -> bool:
        return bool(self._transfers)

    def add_objects(self) -> None:
        for transfer in self._transfers:
            transfer.add_objects()

    def left_behind(self, lands: Collection[bytes]) -> str:
        """Return why the files would not be those of the commits, as the end of a sentence; empty if they would.
        ``lands``: paths of the project which become as in the fork."""
        for transfer in self._transfers:
            folder = os.path.relpath(transfer.sides.work_tree or self._project, self._project)
            prefix = b"" if folder == b"." else folder + b"/"
            below = {path[len(prefix) :] for path in lands if path.startswith(prefix)}
            path = transfer.left_behind(RefPlanOptions(os.fsencode(self._fork)), below)
            if path:
                return f"{show(prefix + path)} would not be as in the commit: the fork has taken its change back"
        return ""

    def held_back(self, not_whole: str, left_behind: str = "") -> list[Conflict]:
        """Return the checked-out branches of the fork that cannot arrive under their own names, as conflicts.

        No file is applied then: the files of the commits would be in the way of the ``git merge`` that takes them.
        ``not_whole``: why not all files can be applied; empty if they can."""
        conflicts = []
        for transfer in self._transfers:
            _moves, result = transfer.plan(RefPlanOptions(os.fsencode(self._fork), not_whole or left_behind))
            for outcome in result.refs:
                target = outcome.target if outcome.result in ("beside", "there", "kept") else b""
                if left_behind and outcome.ref == b"HEAD" and outcome.result == "kept":
                    target = target or transfer.head_ref
                if target and outcome.ref in (b"HEAD", transfer.head_ref):
                    branch = show(target.removeprefix(HEADS))
                    first = f"finish {transfer.operation} (git status), then " if transfer.operation else ""
                    way = f"{first}git merge {branch}, then mudroom apply {self._fork}"
                    reason = f"{outcome.reason}; its commits are in {branch}, and no file was applied: {way}"
                    conflicts.append(Conflict(transfer.sides.label + b"/" + outcome.ref, reason.removeprefix("; ")))
        return conflicts

    def bring(self, save: Callable[[Sequence[RepositoryMoves]], None], not_whole: str) -> list[TransferResult]:
        """Move the refs. ``save``: keeps the moves durably; called before the first move."""
        options = RefPlanOptions(os.fsencode(self._fork), not_whole)
        planned = [transfer.plan(options) for transfer in self._transfers]
        records = [record for record, _result in planned if record.moves]
        if records:
            save(records)
        failures = move_refs(records)
        if failures:
            failed = {failure.label for failure in failures}
            save([record for record in records if record.label not in failed])
        return [_told(result, failures) for _record, result in planned]


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


def is_complete(results: Iterable[TransferResult]) -> bool:
    """Whether each branch, tag and note of the fork has come over, so that the fork need not keep its repository."""
    refs = (outcome for result in results for outcome in result.refs)
    return not any(outcome.result == "left" and outcome.ref.startswith((HEADS, TAGS, NOTES)) for outcome in refs)


@contextmanager
def open_git_landing(
    vault: Vault, fork: Fork, record: ForkRecord, units: Collection[bytes] | None = None
) -> Iterator[GitLanding]:
    """Yield the transfers of a fork's repositories, with all objects checked. Hold the fork's lock.

    ``units``: only of these ``.git`` directories. Raise UsageError if a repository is refused; nothing has been
    written then.
    """
    changes = record.changeset.changes
    directories = git_directories(vault.source, changes)
    if units is not None:
        directories = [path for path in directories if git_directory(path) in units]
    if not directories:
        yield GitLanding((), fork.name, vault.source)
        return
    with _fork_side(vault, fork, record) as (side, emptied), ExitStack() as stack:
        from mudroom.ext.commits.git.transfer import open_transfer

        transfers = [
            stack.enter_context(open_transfer(_sides(vault.source, directory, side.view), side, emptied))
            for directory in directories
        ]
        yield GitLanding(transfers, fork.name, vault.source)


def require_unemptied_commits(vault: Vault, fork: Fork) -> None:
    """Raise UsageError with the path if a commit that the fork made holds a masked file as an empty one. Hold the
    fork's lock. A repository that cannot be read is no reason to refuse: where it is brought, that is checked."""
    record = fork.record
    if record is None or not git_directories(vault.source, record.changeset.changes):
        return
    from mudroom.ext.commits.git.commits import require_dulwich

    require_dulwich()
    from mudroom.ext.commits.git.walk import EmptiedFile

    try:
        with open_git_landing(vault, fork, record):
            return
    except EmptiedFile:
        raise
    except UsageError:
        return


@contextmanager
def _fork_side(vault: Vault, fork: Fork, record: ForkRecord) -> Iterator[tuple[ForkSide, Emptied]]:
    """Yield the fork as a transfer reads it, and its masked files."""
    from mudroom.ext.commits.core.emptied import Emptied
    from mudroom.ext.commits.git.commits import require_dulwich

    require_dulwich()
    from mudroom.ext.commits.git.fork_refs import OriginalFiles
    from mudroom.ext.commits.git.transfer import ForkSide

    changes = record.changeset.changes
    masked = {*vault.mask.paths, *(remark.path for remark in record.changeset.remarks if remark.text == MASKED)}
    with OpenFork(vault, fork) as opened:
        original = OriginalFiles(opened.ground(record.changeset), {change.path: change for change in changes})
        yield ForkSide(fork.name, opened.merged(), original, changes), Emptied(masked | masked_of(fork.path).names)


# --- moving refs ---


def bring_refs(
    vault: Vault,
    fork: Fork,
    place: ApplyDirectory | None,
    applied: ApplyResult,
    git: GitLanding,
    not_whole: str,
    time: int,
) -> tuple[ApplyDirectory | None, ApplyResult, list[TransferResult]]:
    """Move the refs of an apply. Return the apply's directory, made now if there was none and a ref moves."""
    made = [place] if place is not None else []

    def save(records: Sequence[RepositoryMoves]) -> None:
        if made:
            save_refs(made[0].path, records)
        else:
            made.append(_begin_without_files(vault, fork, time, records))

    transferred = git.bring(save, not_whole)
    if not made:
        return None, applied, transferred
    return made[0], applied._replace(name=made[0].name), transferred


def _begin_without_files(vault: Vault, fork: Fork, time: int, records: Sequence[RepositoryMoves]) -> ApplyDirectory:
    """Begin an apply that changes no file of the project. The caller ends it."""
    place = ApplyDirectory(vault.new_apply())
    place.begin("apply")
    save_refs(place.path, records)
    place.write("done", new_record(place, fork.name, time, vault.source, fork.layered, Landing(()), {}))
    return place


def bring_commits(
    vault: Vault, fork: Fork, record: ForkRecord, branch: str | None, repository: bytes, time: int
) -> Commits:
    """Bring the commits of a fork to the project's repository, no files: its HEAD arrives at ``branch``, by default
    ``mudroom/FORK``; its other branches, tags, notes and stashes as in an apply. Hold the vault's and the fork's lock.

    Raise UsageError, with nothing changed: if the fork has no commits that the repository does not have; if the branch
    cannot be moved forward to them; if an object is refused.
    """
    from mudroom.ext.commits.git.commits import branch_name, require_dulwich, require_free

    require_dulwich()
    from mudroom.ext.commits.git.transfer import Commits, open_transfer

    name = branch_name(branch, fork.name)
    with (
        _fork_side(vault, fork, record) as (side, emptied),
        open_transfer(_sides(vault.source, repository, side.view), side, emptied) as transfer,
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
    """Keep the moves of an apply, durably. ``place``: the apply's directory."""
    beside = place + _REFS + b".new"
    with suppress(FileNotFoundError):
        os.unlink(beside)
    with os.fdopen(safe_open.open_regular(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as stream:
        stream.write(msgspec.msgpack.encode(records))
        stream.flush()
        os.fsync(stream.fileno())
    disk.rename_path(beside, place + _REFS)
    sync_directory(place)


def load_refs(place: bytes) -> list[RepositoryMoves]:
    """Return the moves of an apply; empty if it moved no refs."""
    try:
        data = safe_open.read(place + _REFS)
    except FileNotFoundError:
        return []
    return msgspec.msgpack.decode(data, type=list[RepositoryMoves])


def move_refs(records: Sequence[RepositoryMoves], *, back: bool = False, again: bool = False) -> list[RefFailure]:
    """Move refs forward, or back. Return those that could not be moved; of their repositories none has moved.
    ``again``: they were begun before, and may have been cut off."""
    if not records:
        return []
    from mudroom.ext.commits.git.commits import require_dulwich

    require_dulwich()
    from mudroom.ext.commits.git.ref_transaction import RefFailure, perform_moves, reversed_moves

    failures: list[RefFailure] = []
    for record in records:
        try:
            failures += perform_moves(reversed_moves(record) if back else record, back=back, again=again)
        except MudroomError as error:
            failures.append(RefFailure(record.label, b"HEAD", str(error)))
    return failures


def ref_remarks(failures: Iterable[RefFailure]) -> tuple[Remark, ...]:
    return tuple(Remark(failure.label + b"/" + failure.ref, failure.reason) for failure in failures)


def _conflicts(failures: Iterable[RefFailure], *, back: bool) -> list[Conflict]:
    """Return the refs that an undo or redo has left where they are, as conflicts in git's words."""
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


class RefTurn:
    """The refs of an apply, moved back or forward again when its files have been. Raise UsageError, before anything is
    changed, if another git command is at work in a repository."""

    def __init__(self, place: ApplyDirectory, *, back: bool) -> None:
        _require_unlocked(load_refs(place.path))
        self._place, self._back = place, back
        self._found: list[Conflict] = []
        self._moved: tuple[str, ...] = ()

    def settle(self, _applied: ApplyResult) -> tuple[Remark, ...]:
        """Move the refs. Called by the undo or redo before it counts as finished."""
        records = load_refs(self._place.path)
        failures = move_refs(records, back=self._back)
        failed = {failure.label for failure in failures}
        self._found = _conflicts(failures, back=self._back)
        moved = (move.name for record in records if record.label not in failed for move in record.moves)
        self._moved = tuple(map(show, moved))
        return ()

    def added_to(self, applied: ApplyResult) -> ApplyResult:
        return applied._replace(conflicts=(*applied.conflicts, *self._found), refs=self._moved)
