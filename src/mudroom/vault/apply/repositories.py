"""Repositories in an apply: the ``.git`` directories whose files never land, and the interface to the part that lands
refs.

A fork's commits land as objects and refs (``ext/commits/landing.py``). Without that part they stay in the fork, a
repository that may hold masked files does not land, and an apply that has moved refs cannot be undone, redone or
recovered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from mudroom.core.git.outcome import STAYING, TransferResult
from mudroom.core.merge.merge import Conflict
from mudroom.core.registry import is_installed, part
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import git_directory, is_protected, repository_of_each
from mudroom.typing import Any, Protocol
from mudroom.vault.apply.transaction import ApplyDirectory, ApplyResult
from mudroom.vault.record import ForkRecord
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

REFS = b"/refs"
"""File in an apply's directory with the refs that it moves; written before the first ref moves."""


class RefLanding(Protocol):
    """The refs in a fork's repositories during an apply: objects land before the files, refs after them."""

    def add_objects(self) -> None:
        """Add the new objects. Objects that no ref names are harmless."""

    def left_behind(self, lands: Collection[bytes]) -> str:
        """Return why the landed files would differ from the commits, as the end of a sentence; empty if they would not.
        ``lands``: project paths that become as in the fork."""

    def held_back(self, not_whole: str, left_behind: str) -> list[Conflict]:
        """Return the fork's checked-out branches that cannot land under their own names, as conflicts."""

    def bring(
        self, place: ApplyDirectory | None, applied: ApplyResult, not_whole: str, time: int
    ) -> tuple[ApplyDirectory | None, ApplyResult, list[TransferResult]]:
        """Move the refs. Return the apply's directory, made now if there was none and a ref moves. ``not_whole``: why
        not all files were applied; empty if they were."""


class RefTurn(Protocol):
    """The refs in an apply that is undone or redone."""

    def settle(self, applied: ApplyResult) -> tuple[Remark, ...]:
        """Move the refs. Called before the undo or redo counts as finished."""

    def added_to(self, applied: ApplyResult) -> ApplyResult:
        """Return the result with the refs that moved, and with those that did not as conflicts."""


class _NoRefs:
    def settle(self, _applied: ApplyResult) -> tuple[Remark, ...]:
        return ()

    def added_to(self, applied: ApplyResult) -> ApplyResult:
        return applied


# --- which repositories ---


def existing_units(look: Callable[[bytes], Entry | None], changes: Iterable[Change]) -> set[bytes]:
    """Return the changed ``.git`` directories that are repositories in the project: their files never land.

    ``look``: reads the project. If the fork has a private repository (``vault/git/private_directory.py``), a ``.git``
    that is a file in the project has changes below it.
    """
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
    """Return the project's git directories whose HEAD or refs the fork changed, including submodules'."""
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
    """Return the git directory that holds a path below ``unit``: a submodule's, or ``unit`` itself
    (gitrepository-layout(5), modules)."""
    found, parts = unit, path[len(unit) + 1 :].split(b"/")
    if parts[0] != b"modules":
        return found
    for end in range(2, len(parts)):
        candidate = b"/".join((unit, *parts[:end]))
        if all(os.path.lexists(os.path.join(project, candidate, name)) for name in (b"HEAD", b"objects")):
            found = candidate
    return found


def staying_commits(project: bytes, left_out: Iterable[Change]) -> tuple[Remark, ...]:
    """Return a remark for each repository whose refs are left out by an apply, if this installation cannot land
    commits."""
    units = {git_directory(path) or path for path in git_directories(project, left_out)}
    return tuple(Remark(unit, STAYING) for unit in sorted(units)) if units and not is_installed("commits") else ()


# --- the part that lands refs ---


def open_refs(
    vault: Vault, fork: Fork, record: ForkRecord, units: Collection[bytes], signing: Mapping[bytes, bytes] | None
) -> AbstractContextManager[RefLanding | None]:
    """Open the fork's refs in these ``.git`` directories, with all objects checked; None if it has changed none. Hold
    the fork's lock. ``signing``: as in ``LandingRequest``.

    Raise UsageError if a repository is refused, NotInstalled if this installation cannot land commits; then nothing has
    been written.
    """
    directories = git_directories(vault.source, record.changeset.changes) if units else []
    directories = [path for path in directories if git_directory(path) in units]
    if not directories:
        return nullcontext()
    landing: AbstractContextManager[RefLanding] = _commits("bringing a fork's commits").open_git_landing(
        vault, fork, record, directories, signing
    )
    return landing


def require_unemptied_repositories(vault: Vault, fork: Fork, taken: Sequence[Change]) -> None:
    """Raise UsageError with the path if a repository that the fork made holds a masked file as an empty file;
    NotInstalled if that cannot be checked. ``taken``: the changes to apply, in walking order."""
    tops = {change.path for change in taken if change.entry.kind == "directory"} & {*repository_of_each(taken).values()}
    if tops and vault.mask.paths:
        _commits("checking a new repository for masked files").require_unemptied_repositories(vault, fork, tops)


def require_unemptied_commits(vault: Vault, fork: Fork) -> None:
    """Raise UsageError with the path if a commit holds a masked file as an empty file, in a fork that leaves this
    machine; NotInstalled if that cannot be checked. Hold the fork's lock.

    An unreadable repository is no reason to refuse: it is checked again where it lands.
    """
    record = fork.record
    directories = git_directories(vault.source, record.changeset.changes) if record is not None else []
    if directories:
        commits = _commits("checking the commits of a fork for masked files")
        commits.require_unemptied_commits(vault, fork, record, directories)


def turned_refs(place: ApplyDirectory, *, back: bool) -> RefTurn:
    """Return the refs that an undo (``back``) or redo moves. Raise UsageError if another git command is at work in a
    repository, NotInstalled if this installation cannot move refs; then nothing has been changed."""
    if not moves_refs(place):
        return _NoRefs()
    commits = _commits(f"{'undo' if back else 'redo'} of {place.name}, which has moved refs of git,")
    turn: RefTurn = commits.GitTurn(place, back=back)
    return turn


def require_recoverable(place: ApplyDirectory) -> None:
    """Raise NotInstalled if the apply has planned to move refs, and this installation cannot."""
    if place.state() is not None and moves_refs(place):
        _commits(f"recovery of {place.name}, which was cut off and moves refs of git,")


def moved_again(place: ApplyDirectory, *, back: bool = False) -> tuple[Remark, ...]:
    """Move the refs in an apply that was cut off. Return a remark for each ref that could not be moved."""
    if not moves_refs(place):
        return ()
    remarks: tuple[Remark, ...] = _commits("recovery of refs of git").moved_again(place.path, back=back)
    return remarks


def moves_refs(place: ApplyDirectory) -> bool:
    return os.path.lexists(place.path + REFS)


def _commits(what: str) -> Any:
    return part("commits", "landing", what)
