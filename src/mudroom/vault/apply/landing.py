"""Land a fork's changes in the project: plan against the present project, apply, update the fork's records.

``land`` expects the caller to hold the vault's lock. Undo, redo and recovery are in ``turn.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from mudroom.core.git.outcome import MadeCommit, TransferResult
from mudroom.core.merge.made_directories import remarks_on
from mudroom.core.merge.merge import Conflict, PartialChoice
from mudroom.core.merge.operations import Landing, Op, plan_landing
from mudroom.core.tree.change import Change, Changeset, Remark
from mudroom.core.tree.choice import select_below, select_exactly
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import WORK_TREE, git_directory, is_left_out, is_protected, repositories
from mudroom.core.tree.path import ancestors, is_below, name
from mudroom.core.tree.windows_name import fold
from mudroom.errors import MudroomError, UsageError
from mudroom.stage.layers.union import OneLayer, Union
from mudroom.stage.originals.collection import MASKED
from mudroom.stage.source import Source
from mudroom.typing import NamedTuple
from mudroom.vault.apply.discarded_side import save_for_undo
from mudroom.vault.apply.execution import Progress
from mudroom.vault.apply.joint import Joint
from mudroom.vault.apply.remainder import keep_remainder
from mudroom.vault.apply.repositories import (
    RefLanding,
    existing_units,
    open_refs,
    require_unemptied_repositories,
    staying_commits,
)
from mudroom.vault.apply.transaction import (
    ApplyDirectory,
    ApplyResult,
    apply,
    new_record,
    trees_of,
)
from mudroom.vault.conflict.reconciliation import BACKUP, Reconciler
from mudroom.vault.conflict.resolution import answers
from mudroom.vault.forks.damage import require_files
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.ties import Tie
from mudroom.vault.moment import earliest_since
from mudroom.vault.record import FORK_FORMAT, ForkRecord, load
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

# --- ``NAME.bak`` beside each file that an apply replaces or removes, on request ---
# Backups are operations in the same landing: made in the same transaction, reported with it, and removed by undo. Files
# in a directory that is removed as a whole are not copied, because undo has them.


_LONGEST = 255  # NAME_MAX in linux/limits.h, which every common file system has


def with_backups(landing: Landing, reconciler: Reconciler) -> Landing:
    """Return the landing with a backup operation before each operation that replaces or removes a file. Raise OSError
    if a file cannot be read."""
    remarks: list[Remark] = []
    ops = list(_ops(landing, reconciler, remarks))
    return landing._replace(ops=tuple(ops), remarks=(*landing.remarks, *remarks))


def _ops(landing: Landing, reconciler: Reconciler, remarks: list[Remark]) -> Iterator[Op]:
    slot = max((op.slot for op in landing.ops), default=0)
    taken = {op.path for op in landing.ops}
    for op in landing.ops:
        if op.kind in ("swap", "remove") and op.old is not None and op.old.kind != "directory":
            slot += 1
            reason = _refusal(op, taken, reconciler)
            if reason:
                remarks.append(Remark(op.path, f"has no {BACKUP.decode()} beside it: {reason}"))
            else:
                yield _backup(op, slot, reconciler)
        elif op.kind in ("swap", "remove") and op.whole:
            remarks.append(Remark(op.path, "went as a whole, without a backup; mudroom undo restores it"))
        yield op


def _refusal(op: Op, taken: set[bytes], reconciler: Reconciler) -> str:
    at = op.path + BACKUP
    current = reconciler.look(at)
    if op.old is None or op.old.kind != "file":
        return "it is not a regular file"
    if len(name(at)) > _LONGEST:
        return "the name would be too long"
    if at in taken or (current is not None and current.kind != "file"):
        return "the name is taken"
    return ""


def _backup(op: Op, slot: int, reconciler: Reconciler) -> Op:
    """Return the backup operation. It replaces an older backup."""
    at = op.path + BACKUP
    current = reconciler.look(at)
    assert op.old is not None
    kept = reconciler.keep_copy(at, reconciler, op.path, op.old)
    return Op("swap" if current is not None else "place", at, slot, current, kept.entry, merged=kept.name)


# --- the landing ---


def removed_first(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Return the operations, reordered: the old name is removed before the new name is placed, because both cannot
    exist at once. Meanwhile the removed file is in its slot: recovery and undo bring it back."""
    ops = tuple(ops)
    placed = {fold(op.path) for op in ops if op.old is None and op.new is not None}
    former = tuple(op for op in ops if op.kind == "remove" and fold(op.path) in placed)
    # ``after`` would delay the removal until the new name is placed
    return (*(op._replace(after=b"") for op in former), *(op for op in ops if op not in former))


_TRIES = 3
MARKED = "conflict markers were written into it, as requested"
_NOT_WHOLE = "not all files of the fork were applied"


class LandingResult(NamedTuple):
    applied: ApplyResult
    withheld: tuple[bytes, ...]
    """Protected paths that stay in the fork because they were not named."""
    remaining: int
    """Number of changes still in the fork. With 0, the fork was removed or stands on the present project."""
    verified: Verification | None = None
    """Result of the policy's ``verify`` command, or None if it did not run. If it failed, no change was applied."""
    merged: tuple[bytes, ...] = ()
    """Paths whose new content in the project differs from the fork's, because both sides had changed them."""
    kept: tuple[bytes, ...] = ()
    """Paths where the project's version was kept, as decided. The fork no longer has its version; undo returns it."""
    repositories: tuple[TransferResult, ...] = ()
    """Results for the branches, tags and stashes in the fork's repositories, if they were requested."""
    told: frozenset[bytes] = frozenset()
    """Withheld paths whose directory has a remark."""
    commit: MadeCommit | None = None
    """The commit with the applied files, if requested."""
    commit_problem: str = ""
    """Why the commit was not made; the applied files stay."""
    roots: tuple[RootLanding, ...] = ()
    """What was applied in other projects, together with this."""

    @property
    def untold(self) -> list[bytes]:
        """The withheld paths without a remark."""
        return [path for path in self.withheld if path not in self.told]

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        return self.applied.conflicts

    @property
    def refs_moved(self) -> int:
        """Number of git refs that moved or are new."""
        return sum(result.moved for result in self.repositories)


class RootLanding(NamedTuple):
    tied: Tie
    landed: LandingResult


class Verification(NamedTuple):
    """Result of the policy's ``verify`` command, which tests the result of an apply before the project is written."""

    command: tuple[bytes, ...]
    exit_code: int
    output: bytes
    timed_out: bool = False

    @property
    def passed(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


Check = Callable[[Landing, Source, bytes], Verification | None]
"""Test a landing. Arguments: the landing, the fork's staged files, the directory of merged content."""


class LandingOptions(NamedTuple):
    """Options for ``perform``.

    ``verify_fork``: compare the fork with the reviewed changes. ``time``: nanoseconds since 1970, for the record.
    ``joint``: the operation of which the landing is a part.
    """

    time: int
    verify_fork: bool
    progress: Progress | None
    joint: Joint | None


class LandingRequest(NamedTuple):
    """The changes to apply from a fork, and how."""

    paths: tuple[bytes, ...] = ()
    """Select changes at and below these paths. Empty selects all changes."""
    parts: Mapping[bytes, PartialChoice] = MappingProxyType({})
    """Files that are applied only in part."""
    git: bool = False
    """Also land the commits in git repositories (``repositories.py``), and repositories that the fork made. Otherwise a
    repository is left out unless its ``.git`` is among ``paths``."""
    backups: bool = False
    """Keep each replaced or removed file beside its path as ``NAME.bak``."""
    markers: bool = False
    """Write conflict markers into the project's files that cannot be merged."""
    exact: bool = False
    """Select only the changes at the paths, not below them (``core/tree/choice.py``)."""
    pushes: bool = False
    """Pushes of the fork are sent afterwards: record the apply even without files."""
    rules: bool = False
    """Take the text that a rule makes of a conflict (``ext/merging/rule.py``) unless another decision holds."""
    signing: Mapping[bytes, bytes] | None = None
    """The user's variables for git, which signs the commits that land. None: commits land as they are."""


class LandingPlan(NamedTuple):
    """A landing that can be performed."""

    record: ForkRecord
    chosen: tuple[Change, ...]
    landing: Landing
    not_whole: str = ""
    """Why the checked-out branch cannot move although all files were chosen, as the end of a sentence."""


def prepare(fork: Fork, request: LandingRequest, reconciler: Reconciler, record: ForkRecord) -> LandingPlan:
    """Plan the landing without performing it. Raise UsageError for a path without a change."""
    changes = record.changeset.changes
    chosen = _select(changes, request)
    blocked = {remark.path for remark in record.changeset.remarks}
    masked = {remark.path for remark in record.changeset.remarks if remark.text == MASKED}
    # unselected changes must not land with a directory
    blocked |= {change.path for change in changes} - {change.path for change in chosen}
    # nor unchanged files that the user has since removed together with their directory
    blocked |= reconciler.project_paths() - {change.path for change in chosen}
    live = reconciler.live()
    named = {*request.paths, *(repositories(chosen) if request.git else ())}
    removed = {change.path for change in chosen if change.staged is None} & {*request.paths}
    named -= existing_units(live.look, chosen) - removed
    landing = plan_landing(chosen, live, named, blocked, masked)
    # a merged file's original is the fork's own file, so it must stay in the fork (remainder.py)
    staying = landing.differing.union(above for path in landing.differing for above in ancestors(path))
    ops = (
        op._replace(copy=not op.merged) if _must_copy(fork, op, request.parts) or staying & {op.path, op.origin} else op
        for op in landing.ops
    )
    landing = landing._replace(ops=tuple(ops))
    if sys.platform == "win32":  # names that differ only in case are the same
        landing = landing._replace(ops=removed_first(landing.ops))
    told = remarks_on(landing.withheld, record.changeset.remarks)
    landing = landing._replace(remarks=(*landing.remarks, *told))
    return LandingPlan(record, tuple(chosen), landing)


def _must_copy(fork: Fork, op: Op, parts: Collection[bytes]) -> bool:
    """Whether the slot must be filled by copying, so that the fork keeps the file. Sealed layers are never changed, and
    the rest of a partly applied file stays in the fork."""
    return bool(fork.state.layers) or any(
        part in (op.path, op.origin) or (op.whole and is_below(part, op.path)) for part in parts
    )


class ReviewedContents:
    """The staged files in a fork that works in a copy.

    An apply seals the copy into layers; until then a reviewed file may be in either. It is in the layers if the entry
    there is the recorded entry, else in the copy.

    Owner: the caller, in one thread.
    """

    def __init__(self, layers: Source, copy: Source, record: ForkRecord) -> None:
        self._layers, self._copy = layers, copy
        self._staged = {change.path: change.staged for change in record.changeset.changes}

    def _holder(self, path: bytes) -> Source:
        staged, entry = self._staged.get(path), self._layers.look(path)
        if staged is not None and entry is not None and entry.inode == staged.inode:
            return self._layers
        return self._copy

    def look(self, path: bytes) -> Entry | None:
        return self._holder(path).look(path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        return self._copy.names(path)

    def open(self, path: bytes) -> int:
        return self._holder(path).open(path)


@contextmanager
def reviewed_contents(fork: Fork, record: ForkRecord) -> Iterator[Source]:
    """Yield a record's staged files. Nothing is written: listing conflicts leaves the fork unchanged."""
    with Union(fork.layered, None) as layers:
        if not fork.has_copy:
            yield layers
            return
        with OneLayer(fork.contents[0], is_layer=False) as copy:
            yield ReviewedContents(layers, copy, record)


@contextmanager
def reconciling(
    vault: Vault, fork: Fork, request: LandingRequest, record: ForkRecord, *, answered: bool = True
) -> Iterator[Reconciler]:
    """Yield a reconciler between the fork and the present project. Hold the fork's lock.

    ``answered``: use the recorded decisions about conflicts.
    """
    with OpenFork(vault, fork) as opened, reviewed_contents(fork, record) as staged:
        reconciler = Reconciler(
            vault.source,
            staged,
            opened.ground(record.changeset),
            since=earliest_since(vault.path, record.started),
            place=vault.merged,
            partial=request.parts,
            answer=answers(fork, staged) if answered else None,
            markers=request.markers,
            rules=request.rules,
            label=fork.name.encode(),
        )
        with reconciler:
            yield reconciler


def land(
    vault: Vault,
    fork: Fork,
    request: LandingRequest,
    *,
    time: int,
    record: ForkRecord | None = None,
    check: Check | None = None,
    progress: Progress | None = None,
    joint: Joint | None = None,
) -> LandingResult:
    """Apply a fork's changes, or the requested part. Changes that cannot be applied stay in the fork.

    ``record``: the collected changes, if the fork has been locked since they were collected; otherwise the record is
    read and the fork is compared with it. ``check``: called before the project is written; if it fails, no change is
    applied. ``joint``: as for ``LandingOptions``.

    Raise ForkMoved if the fork differs from the review (no change was made), OSError if the disk fails (``recover``
    continues), and UsageError for a path without a change.
    """
    require_files(fork)
    verify_fork = record is None
    if fork.has_copy:
        from mudroom.vault.forks.copy_layer import seal_copy

        seal_copy(vault, fork, as_reviewed=True)
        record = None
    record = record or read_record(fork, may_be_empty=joint is not None and joint.is_first)
    verified = None
    for _try in range(_TRIES):
        with reconciling(vault, fork, request, record) as reconciler:
            plan = prepare(fork, request, reconciler, record)
            require_unemptied_repositories(vault, fork, plan.landing.taken)
            if check is not None and plan.landing.ops:
                with Union(fork.layered, None) as staged:
                    verified = check(plan.landing, staged, reconciler.merged)
                if verified is not None and not verified.passed:
                    return LandingResult(
                        ApplyResult(""), plan.landing.withheld, len(record.changeset.changes), verified
                    )
                if verified is not None and not _is_unchanged(plan, fork, request, reconciler, record):
                    continue  # the check took time, and the project has changed
            if request.backups:
                plan = plan._replace(landing=with_backups(plan.landing, reconciler))
            options = LandingOptions(time, verify_fork, progress, joint)
            refs = open_refs(vault, fork, record, _units(request, plan.chosen), request.signing)
            with refs as git, fork.moving():
                if git is not None and _is_whole(plan, request):
                    plan = _without_files_if_held_back(plan, git)
                landed = perform(vault, fork, request, plan, reconciler, git, options)
            return landed._replace(verified=verified)
    raise MudroomError("the project changed each time while the result was being verified", "try again")


def _is_whole(plan: LandingPlan, request: LandingRequest) -> bool:
    """Return whether all the fork's files were selected."""
    chosen = {change.path for change in plan.chosen}
    files = (change.path for change in plan.record.changeset.changes if git_directory(change.path) is None)
    return not request.parts and chosen.issuperset(files)


def _without_files_if_held_back(plan: LandingPlan, git: RefLanding) -> LandingPlan:
    """Return the plan; without files if the fork's branch cannot move with them."""
    landing = plan.landing
    not_whole = _NOT_WHOLE if landing.conflicts else ""
    lands = {change.path for change in plan.chosen} - landing.differing - landing.dropped
    left_behind = "" if not_whole else git.left_behind(lands)
    held_back = git.held_back(not_whole, left_behind)
    if not held_back:
        return plan
    conflicts = tuple(sorted({*landing.conflicts, *held_back}))
    return plan._replace(chosen=(), landing=Landing((), conflicts), not_whole=left_behind)


def _units(request: LandingRequest, chosen: Sequence[Change]) -> set[bytes]:
    """Return the ``.git`` directories whose commits will land."""
    units = {unit for change in chosen if (unit := git_directory(change.path)) is not None}
    return units if request.git else units & {*request.paths}


def _is_unchanged(
    plan: LandingPlan, fork: Fork, request: LandingRequest, reconciler: Reconciler, record: ForkRecord
) -> bool:
    """Whether the same landing would be planned now."""
    again = prepare(fork, request, reconciler, record).landing
    return [op[:4] for op in again.ops if op.old] == [op[:4] for op in plan.landing.ops if op.old] and (
        again.conflicts == plan.landing.conflicts
    )


def perform(
    vault: Vault,
    fork: Fork,
    request: LandingRequest,
    plan: LandingPlan,
    reconciler: Reconciler,
    git: RefLanding | None,
    options: LandingOptions,
) -> LandingResult:
    landing, applied, place = plan.landing, ApplyResult(""), None
    if git is not None:
        git.add_objects()
    is_first = options.joint is not None and options.joint.is_first
    if landing.ops or landing.dropped or request.pushes or is_first:
        place = ApplyDirectory(vault.new_apply())
        point = save_for_undo(vault, fork, place.path, options.time) if landing.dropped else None
        if point is not None:  # sealed layers are never changed
            landing = landing._replace(ops=tuple(op._replace(copy=not op.merged) for op in landing.ops))
        trees = trees_of(landing)
        new = new_record(place, fork.name, options.time, vault.source, fork.layered, landing, trees)
        new = new._replace(differing=tuple(sorted(landing.differing)), parts=tuple(request.parts.items()))
        new = new._replace(dropped=tuple(sorted(landing.dropped)), checkpoint=point)
        new = new._replace(fork_created=fork.state.created)
        applied = apply(
            place,
            new,
            merged=reconciler.merged,
            sources=_sources(landing),
            verify_fork=options.verify_fork,
            progress=options.progress,
            is_empty=request.pushes or is_first,
            joint=options.joint,
        )
    failed = {conflict.path for conflict in applied.conflicts}
    stayed = [op.path for op in landing.ops if op.whole and op.path in failed]  # with everything below them
    left_out = set(landing.withheld)
    staying = staying_commits(vault.source, [change for change in plan.chosen if change.path in left_out])
    applied = applied._replace(
        conflicts=tuple(sorted({*landing.conflicts, *applied.conflicts})),
        remarks=(*landing.remarks, *(Remark(*row) for row in reconciler.ruled.items()), *applied.remarks, *staying),
    )
    kept = {conflict.path for conflict in applied.conflicts} | left_out
    marked = [Conflict(path, MARKED) for path in reconciler.marked if path not in kept]
    applied = applied._replace(conflicts=tuple(sorted({*applied.conflicts, *marked})))
    landed = {change.path for change in plan.chosen} - kept
    landed -= {path for path in landed for top in stayed if is_below(path, top)}
    parts = {path: part for path, part in request.parts.items() if path in landed}
    transferred: list[TransferResult] = []
    if git is not None:
        rest = {change.path for change in plan.record.changeset.changes if not is_left_out(change)} - landed
        has_rest = any(git_directory(path) is None for path in rest)
        not_whole = plan.not_whole or (_NOT_WHOLE if has_rest or parts else "")
        place, applied, transferred = git.bring(place, applied, not_whole, options.time)
        landed |= _transferred(plan, transferred)
    remaining = keep_remainder(vault, fork, plan.record, landed, landing.differing, parts)
    if place is not None:
        place.end()
    merged = (landing.differing & landed) - landing.dropped - landing.unmoved
    kept_ours = tuple(sorted(landing.dropped & landed))
    withheld = tuple(path for path in landing.withheld if path not in landed)
    units = {remark.path for remark in staying}
    return LandingResult(
        applied,
        withheld,
        remaining,
        merged=tuple(sorted(merged)),
        kept=kept_ours,
        repositories=tuple(transferred),
        told=frozenset(change.path for change in plan.chosen if is_left_out(change) or _is_of(change, units)),
    )


def _is_of(change: Change, units: Collection[bytes]) -> bool:
    """Whether a change is in one of these repositories, and is not a hook or setting, which is left out anyway."""
    return git_directory(change.path) in units and not is_protected(change.path)


def _sources(landing: Landing) -> dict[bytes, bytes]:
    """Return the project's path of each file that lands under another name: renamed, or a backup."""
    renamed = {change.path: change.source for change in landing.taken if change.source}
    replaced = {op.path for op in landing.ops if op.kind in ("swap", "remove")}
    backups = (op.path for op in landing.ops if op.path.endswith(BACKUP))
    return renamed | {path: made for path in backups if (made := path.removesuffix(BACKUP)) in replaced}


def _transferred(plan: LandingPlan, results: Sequence[TransferResult]) -> set[bytes]:
    """Return the changes in repositories that the fork need not keep, because all its commits have landed."""
    if not all(result.is_complete for result in results):
        return set()
    done = {unit for result in results if (unit := git_directory(result.label)) is not None}
    brought = (change for change in plan.chosen if git_directory(change.path) in done and WORK_TREE not in change.flags)
    return {change.path for change in brought if not is_protected(change.path)}


def read_record(fork: Fork, *, may_be_empty: bool = False) -> ForkRecord:
    """Return the fork's record; an empty one if it has only effects. Raise UsageError if it holds nothing (yet), unless
    it ``may_be_empty``."""
    try:
        return load(fork.record_path, ForkRecord)
    except FileNotFoundError:
        if fork.has_pushes or may_be_empty:
            kind = "copy" if fork.is_copy else "overlay"
            return ForkRecord(FORK_FORMAT, fork.name, kind, (), fork.created, 0, Changeset())
        raise UsageError(f"the fork {fork.name} holds no changes", f"mudroom discard {fork.name} removes it") from None


def _select(changes: Sequence[Change], request: LandingRequest) -> list[Change]:
    if not request.paths:
        return [] if request.exact and request.pushes and not request.parts else list(changes)
    changed = {change.path for change in changes}
    changed |= {above for path in changed for above in ancestors(path)} if not request.exact else set()
    for path in request.paths:
        if path not in changed:
            raise UsageError(f"the fork has no change at {os.fsdecode(path)}", "mudroom diff shows what it has")
    return (select_exactly if request.exact else select_below)(changes, request.paths)
