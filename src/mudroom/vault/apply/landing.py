"""Land a fork's changes in the project: plan against the project as it is now, apply, update the fork's records.

``land``, ``undo_apply``, ``redo_apply`` and ``recover_all`` expect the caller to hold the vault's lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.merge.made_directories import remarks_on
from mudroom.core.merge.merge import Conflict, PartialChoice
from mudroom.core.merge.operations import Landing, Op, plan_landing
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.choice import select_below, select_exactly
from mudroom.core.tree.flag import git_directory, is_left_out, is_protected, repositories
from mudroom.core.tree.path import ancestors, is_below
from mudroom.errors import MudroomError, UsageError
from mudroom.stage.layers.union import Union
from mudroom.stage.originals.collection import MASKED
from mudroom.stage.source import Source
from mudroom.vault.apply.backup import with_backups
from mudroom.vault.apply.discarded_side import find_holder, is_reset, restore_dropped, save_for_undo
from mudroom.vault.apply.execution import Progress
from mudroom.vault.apply.git_landing import (
    NOT_WHOLE,
    GitLanding,
    RefTurn,
    bring_refs,
    committed_files,
    existing_units,
    is_complete,
    load_refs,
    move_refs,
    open_git_landing,
    ref_remarks,
)
from mudroom.vault.apply.made_landing import require_unemptied_repositories
from mudroom.vault.apply.remainder import keep_remainder
from mudroom.vault.apply.transaction import (
    ApplyDirectory,
    ApplyResult,
    Recovery,
    apply,
    new_record,
    recover,
    redo,
    trees_of,
    undo,
)
from mudroom.vault.conflict.reconciliation import Reconciler
from mudroom.vault.conflict.resolution import answers
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.stacking import is_standing_on
from mudroom.vault.record import ApplyRecord, ForkRecord, load
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.vault.git.transfer import TransferResult

_TRIES = 3
LACKING = "is missing from the fork, so the rest of its change is lost"
MARKED = "conflict markers were written into it, as requested"


class LandingResult(NamedTuple):
    applied: ApplyResult
    withheld: tuple[bytes, ...]
    """Protected paths that stay in the fork because they were not named."""
    remaining: int
    """Number of changes still in the fork. With 0, the fork was removed or stands on the project as it is now."""
    verified: Verification | None = None
    """Result of the policy's ``verify`` command, or None if it did not run. If it failed, no change was applied."""
    merged: tuple[bytes, ...] = ()
    """Paths whose new content in the project differs from the fork's, because both sides had changed them."""
    kept: tuple[bytes, ...] = ()
    """Paths where the project's version was kept, as decided. The fork no longer has its version; undo returns it."""
    repositories: tuple[TransferResult, ...] = ()
    """What has come of the branches, tags and stashes of the fork's repositories, if they were to be brought."""
    told: frozenset[bytes] = frozenset()
    """Withheld paths about whose directory a remark tells."""

    @property
    def untold(self) -> list[bytes]:
        """The withheld paths about which no remark tells."""
        return [path for path in self.withheld if path not in self.told]

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        return self.applied.conflicts

    @property
    def refs_moved(self) -> int:
        """Number of refs of git that moved or are new."""
        return sum(result.moved for result in self.repositories)


class Verification(NamedTuple):
    """Result of the policy's ``verify`` command, run on the result of an apply before the project is written."""

    command: tuple[bytes, ...]
    exit_code: int
    output: bytes
    timed_out: bool = False

    @property
    def passed(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


Check = Callable[[Landing, Source, bytes], Verification | None]
"""Try a landing. Arguments: the landing, the fork's staged files, the directory of merged content."""


class LandingOptions(NamedTuple):
    """``verify_fork``: compare the fork with the reviewed changes. ``time``: nanoseconds since 1970, for the record."""

    time: int
    verify_fork: bool
    progress: Progress | None


class LandingRequest(NamedTuple):
    """Which changes of a fork to apply, and how."""

    paths: tuple[bytes, ...] = ()
    """Select changes at and below these paths. Empty selects all changes."""
    parts: Mapping[bytes, PartialChoice] = MappingProxyType({})
    """Files of which only a part is to be applied."""
    git: bool = False
    """Bring the commits of git repositories, too (``git_landing.py``), and repositories that the fork made. Otherwise a
    repository is left out unless its ``.git`` is among ``paths``."""
    backups: bool = False
    """Keep each replaced or removed file beside its path as ``NAME.bak``."""
    markers: bool = False
    """Write conflict markers into the project's files that cannot be merged."""
    exact: bool = False
    """Select only the changes at the paths, not below them (``core/tree/choice.py``)."""


class LandingPlan(NamedTuple):
    """A landing that can be performed."""

    record: ForkRecord
    chosen: tuple[Change, ...]
    landing: Landing


def prepare(fork: Fork, request: LandingRequest, reconciler: Reconciler, record: ForkRecord) -> LandingPlan:
    """Return the plan of the landing without performing it. Raise UsageError for a path that has no change."""
    changes = record.changeset.changes
    chosen = _select(changes, request)
    blocked = {remark.path for remark in record.changeset.remarks}
    masked = {remark.path for remark in record.changeset.remarks if remark.text == MASKED}
    # unselected changes must not land with a directory
    blocked |= {change.path for change in changes} - {change.path for change in chosen}
    live = reconciler.live()
    named = {*request.paths, *(repositories(chosen) if request.git else ())}
    removed = {change.path for change in chosen if change.staged is None} & {*request.paths}
    named -= existing_units(live.look, chosen) - removed
    landing = plan_landing(chosen, live, named, blocked, masked)
    # the original of a merged file is the fork's own, so it must stay in the fork (remainder.py)
    staying = landing.differing.union(above for path in landing.differing for above in ancestors(path))
    ops = (
        op._replace(copy=not op.merged) if _must_copy(fork, op, request.parts) or _stays(op, staying) else op
        for op in landing.ops
    )
    landing = landing._replace(ops=tuple(ops))
    told = remarks_on(landing.withheld, record.changeset.remarks)
    landing = landing._replace(remarks=(*landing.remarks, *told))
    return LandingPlan(record, tuple(chosen), landing)


def _stays(op: Op, staying: Collection[bytes]) -> bool:
    """Whether the operation takes a file of ``staying`` or a directory that holds one."""
    return op.path in staying or op.origin in staying


def _must_copy(fork: Fork, op: Op, parts: Collection[bytes]) -> bool:
    """Whether the slot must be filled by copying, so that the fork keeps the file. Sealed layers are never changed, and
    the rest of a partly applied file stays in the fork.
    """
    return bool(fork.state.layers) or any(
        part in (op.path, op.origin) or (op.whole and is_below(part, op.path)) for part in parts
    )


@contextmanager
def reconciling(
    vault: Vault, fork: Fork, request: LandingRequest, record: ForkRecord, *, answered: bool = True
) -> Iterator[Reconciler]:
    """Yield a reconciler of the fork with the project as it is now. Hold the fork's lock.

    ``answered``: use the decisions that were recorded about conflicts.
    """
    with OpenFork(vault, fork) as opened, Union(fork.layered, None) as staged:
        reconciler = Reconciler(
            vault.project,
            staged,
            opened.ground(record.changeset),
            since=record.started,
            place=vault.merged,
            partial=request.parts,
            answer=answers(fork, staged) if answered else None,
            markers=request.markers,
            label=fork.name.encode(),
            is_committed=committed_files(vault.project, opened, record),
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
) -> LandingResult:
    """Apply a fork's changes, or the requested part of them. Changes that cannot be applied stay in the fork.

    ``record``: the collected changes, if the fork has been locked since they were collected; otherwise the record is
    read and the fork is compared with it. ``check``: called before the project is written; if it fails, no change is
    applied.

    Raise ForkMoved if the fork is not what was reviewed (no change was made), OSError if the disk fails (``recover``
    continues), and UsageError for a path that has no change.
    """
    verify_fork = record is None
    if fork.has_copy:
        from mudroom.vault.forks.copy_layer import seal_copy

        seal_copy(vault, fork, as_reviewed=True)
        record = None
    record = record or read_record(fork)
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
            options = LandingOptions(time, verify_fork, progress)
            with open_git_landing(vault, fork, record, _units(request, plan.chosen)) as git:
                if git and _is_whole(plan, request):
                    plan = _without_files_if_held_back(plan, git)
                landed = perform(vault, fork, request, plan, reconciler, git, options)
            return landed._replace(verified=verified)
    raise MudroomError("the project changed each time while the result was being verified", "try again")


def _is_whole(plan: LandingPlan, request: LandingRequest) -> bool:
    """Return whether all files of the fork were selected."""
    chosen = {change.path for change in plan.chosen}
    files = (change.path for change in plan.record.changeset.changes if git_directory(change.path) is None)
    return not request.parts and chosen.issuperset(files)


def _without_files_if_held_back(plan: LandingPlan, git: GitLanding) -> LandingPlan:
    """Return a plan without files if the fork's branch cannot move with them."""
    held_back = git.held_back(NOT_WHOLE if plan.landing.conflicts else "")
    if not held_back:
        return plan
    conflicts = tuple(sorted({*plan.landing.conflicts, *held_back}))
    return plan._replace(chosen=(), landing=Landing((), conflicts))


def _units(request: LandingRequest, chosen: Sequence[Change]) -> set[bytes]:
    """Return the ``.git`` directories whose commits are to be brought."""
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
    git: GitLanding,
    options: LandingOptions,
) -> LandingResult:
    landing, applied, place = plan.landing, ApplyResult(""), None
    git.add_objects()
    if landing.ops or landing.dropped:
        place = ApplyDirectory(vault.new_apply())
        point = save_for_undo(vault, fork, place.path, options.time) if landing.dropped else None
        if point is not None:  # sealed layers are never changed
            landing = landing._replace(ops=tuple(op._replace(copy=not op.merged) for op in landing.ops))
        trees = trees_of(landing)
        new = new_record(place, fork.name, options.time, vault.project, fork.layered, landing, trees)
        new = new._replace(differing=tuple(sorted(landing.differing)), parts=tuple(request.parts.items()))
        new = new._replace(dropped=tuple(sorted(landing.dropped)), checkpoint=point)
        applied = apply(
            place, new, merged=reconciler.merged, verify_fork=options.verify_fork, progress=options.progress
        )
    failed = {conflict.path for conflict in applied.conflicts}
    stayed = [op.path for op in landing.ops if op.whole and op.path in failed]  # with everything below them
    applied = applied._replace(
        conflicts=tuple(sorted({*landing.conflicts, *applied.conflicts})),
        remarks=(*landing.remarks, *applied.remarks),
    )
    kept = {conflict.path for conflict in applied.conflicts} | set(landing.withheld)
    marked = [Conflict(path, MARKED) for path in reconciler.marked if path not in kept]
    applied = applied._replace(conflicts=tuple(sorted({*applied.conflicts, *marked})))
    landed = {change.path for change in plan.chosen} - kept
    landed -= {path for path in landed for top in stayed if is_below(path, top)}
    parts = {path: part for path, part in request.parts.items() if path in landed}
    transferred: list[TransferResult] = []
    if git:
        rest = {change.path for change in plan.record.changeset.changes if not is_left_out(change)} - landed
        has_rest = any(git_directory(path) is None for path in rest)
        not_whole = NOT_WHOLE if has_rest or parts else ""
        place, applied, transferred = bring_refs(vault, fork, place, applied, git, not_whole, options.time)
        landed |= _transferred(plan, transferred)
    remaining = keep_remainder(vault, fork, plan.record, landed, landing.differing, parts)
    if place is not None:
        place.end()
    merged = (landing.differing & landed) - landing.dropped - landing.unmoved
    kept_ours = tuple(sorted(landing.dropped & landed))
    withheld = tuple(path for path in landing.withheld if path not in landed)
    return LandingResult(
        applied,
        withheld,
        remaining,
        merged=tuple(sorted(merged)),
        kept=kept_ours,
        repositories=tuple(transferred),
        told=frozenset(change.path for change in plan.chosen if is_left_out(change)),
    )


def _transferred(plan: LandingPlan, results: Sequence[TransferResult]) -> set[bytes]:
    """Return the changes in repositories that the fork need not keep, because all its commits have come over."""
    if not is_complete(results):
        return set()
    done = {unit for result in results if (unit := git_directory(result.label)) is not None}
    return {
        change.path for change in plan.chosen if git_directory(change.path) in done and not is_protected(change.path)
    }


Resting = Callable[[str], AbstractContextManager[Fork]]
"""Open a fork by name, with its lock held and no command running in it."""


def undo_apply(
    vault: Vault, name: str | None, progress: Progress | None = None, resting: Resting | None = None
) -> ApplyResult:
    """Undo the named apply, or the last that was not undone. Changes it discarded from the fork are restored there."""
    place = _find_apply(vault, name, "done", "undo")
    record = place.load() if place.state() == "done" else None
    refs = RefTurn(place, back=True)
    if record is None or not record.dropped:
        return refs.added_to(undo(place, progress, refs.settle))
    with _locked_holder(vault, record, resting) as fork:
        applied = undo(
            place, progress, lambda done: (*refs.settle(done), *restore_dropped(vault, fork, record, place.path))
        )
        return refs.added_to(_with_restored(applied, record, fork))


def redo_apply(
    vault: Vault, name: str | None, progress: Progress | None = None, resting: Resting | None = None
) -> ApplyResult:
    """Redo the named apply, or the one undone last. Changes it discarded from the fork are discarded again, unless the
    fork has changed since.
    """
    place = _find_apply(vault, name, "undone", "redo")
    record = place.load() if place.state() == "undone" else None
    refs = RefTurn(place, back=False)
    if record is None or not record.dropped:
        return refs.added_to(redo(place, progress, refs.settle))
    with _locked_holder(vault, record, resting) as fork:
        unchanged = fork if fork is not None and not _has_changed_since(fork, record) else None
        applied = redo(
            place, progress, lambda done: (*refs.settle(done), *_drop_again(vault, fork, place.load(), done))
        )
        return refs.added_to(_with_restored(applied, record, unchanged))


def _with_restored(applied: ApplyResult, record: ApplyRecord, fork: Fork | None) -> ApplyResult:
    """Add the discarded paths and the fork's name to the result. ``fork`` is None if the fork was not changed."""
    if fork is None or record.checkpoint is None:
        return applied
    return applied._replace(again=record.dropped, holder=fork.name)


@contextmanager
def _locked_holder(vault: Vault, record: ApplyRecord, resting: Resting | None) -> Iterator[Fork | None]:
    """Yield the fork that holds the changes discarded by an apply, or None if it is gone."""
    fork = find_holder(vault, record)
    if fork is None or resting is None:
        yield fork
        return
    with resting(fork.name) as held:
        yield held


def _drop_again(vault: Vault, fork: Fork | None, record: ApplyRecord, applied: ApplyResult) -> tuple[Remark, ...]:
    if fork is None or record.checkpoint is None:
        return ()
    if _has_changed_since(fork, record):
        return tuple(Remark(path, f"stays in {fork.name}, which has changed since") for path in record.dropped)
    return _settle_fork(vault, record._replace(fork=fork.name), {conflict.path for conflict in applied.conflicts})


def _has_changed_since(fork: Fork, record: ApplyRecord) -> bool:
    """Whether the fork has changed since its discarded changes were restored."""
    if record.checkpoint is not None and is_standing_on(fork, record.checkpoint):
        return False
    return not is_reset(fork)  # discarding them was interrupted


def _find_apply(vault: Vault, name: str | None, state: str, verb: str) -> ApplyDirectory:
    """Return the named apply, or the last in this state. Raise UsageError if there is none."""
    places = [ApplyDirectory(path) for path in vault.applies()]
    if name is None:
        candidates = [place for place in places if place.state() == state]
        if not candidates:
            raise UsageError(f"there is nothing to {verb} in this project", "mudroom log shows what has happened")
        return candidates[-1] if verb == "undo" else max(candidates, key=lambda place: place.since())
    place = next((place for place in places if place.name == name), None)
    if place is None:
        names = ", ".join(place.name for place in places[-5:]) or "none"
        raise UsageError(f"there is no apply named {name}", f"the last ones: {names}")
    return place


def recover_all(vault: Vault) -> list[Recovery]:
    """Finish or take back the applies that a killed mudroom left unfinished. Return what was done."""
    recoveries = []
    for path in vault.applies():
        place = ApplyDirectory(path)
        applying, turning = place.is_applying(), place.is_turning()
        outcome = recover(place)
        if outcome is not None:
            recoveries.append(outcome)
        if applying and place.state() == "done":
            conflicts = outcome.applied.conflicts if outcome is not None else ()
            record = place.load()
            remarks = _settle_fork(vault, record, {conflict.path for conflict in conflicts})
            remarks += ref_remarks(move_refs(load_refs(place.path), again=True))
            if remarks:
                recoveries.append(
                    Recovery(place.name, record.fork, "finished", ApplyResult(place.name, remarks=remarks))
                )
        elif turning:
            _settle_turn(vault, place)
            place.end()
    for path in vault.applies()[-1:]:
        ApplyDirectory(path).end()  # killed between leaving the mark and writing the plan: the apply had not begun
    return recoveries


def _settle_turn(vault: Vault, place: ApplyDirectory) -> None:
    """Settle the fork after an interrupted undo or redo. Repeatable; does nothing if the operation had not begun."""
    state = place.state()
    record = place.load() if state in ("done", "undone") else None
    if record is not None:
        move_refs(load_refs(place.path), back=state == "undone", again=True)
    if record is None or not record.dropped:
        return
    fork = find_holder(vault, record)
    if state == "undone":
        restore_dropped(vault, fork, record, place.path)
    else:
        _drop_again(vault, fork, record, ApplyResult(place.name))


def _settle_fork(vault: Vault, done: ApplyRecord, kept: Collection[bytes]) -> tuple[Remark, ...]:
    """After a finished apply, keep in the fork only the changes that did not land. Repeatable.

    Return a remark for each file that should stay in the fork but is missing from it. Such a file cannot be kept, and
    other forks of the vault must not wait for it.
    """
    try:
        fork = vault.fork(done.fork)
        record = read_record(fork)
    except UsageError:
        return ()  # the fork was removed or reset before the crash
    landed = {*(op.origin or op.path for op in done.ops), *done.dropped}
    whole = tuple(op.path for op in done.ops if op.whole)
    paths = {
        change.path
        for change in record.changeset.changes
        if change.path in landed or any(is_below(change.path, top) for top in whole)
    }
    paths -= set(kept)
    parts = {path: part for path, part in done.parts if path in paths}
    missing = _missing(fork, record, paths & {*parts, *done.differing})
    parts = {path: part for path, part in parts.items() if path not in missing}
    keep_remainder(vault, fork, record, paths, {*done.differing} - missing, parts)
    return tuple(Remark(path, LACKING) for path in sorted(missing))


def _missing(fork: Fork, record: ForkRecord, paths: Collection[bytes]) -> set[bytes]:
    """Return the paths at which the record has a file but the fork has none."""
    if not paths:
        return set()
    with Union(fork.layered, None) as layers:
        return {
            change.path
            for change in record.changeset.changes
            if change.path in paths and change.staged is not None and layers.look(change.path) is None
        }


def read_record(fork: Fork) -> ForkRecord:
    """Return the fork's record. Raise UsageError if the fork holds no changes (yet)."""
    try:
        return load(fork.record_path, ForkRecord)
    except FileNotFoundError:
        raise UsageError(f"the fork {fork.name} holds no changes") from None


def _select(changes: Sequence[Change], request: LandingRequest) -> list[Change]:
    if not request.paths:
        return list(changes)
    changed = {change.path for change in changes}
    changed |= {above for path in changed for above in ancestors(path)} if not request.exact else set()
    for path in request.paths:
        if path not in changed:
            raise UsageError(f"the fork has no change at {os.fsdecode(path)}", "mudroom diff shows what it has")
    return (select_exactly if request.exact else select_below)(changes, request.paths)
