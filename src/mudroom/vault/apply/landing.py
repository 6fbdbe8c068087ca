"""From a fork to the project: plan the landing against the project as it is now, perform it, keep the books.

``land`` and its siblings expect the caller to hold the vault's lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import NamedTuple

from mudroom.core.merge.merge import Conflict, PartialChoice
from mudroom.core.merge.operations import Landing, Op, plan_landing
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.choice import select_below, select_exactly
from mudroom.core.tree.flag import repositories
from mudroom.core.tree.path import ancestors, is_below
from mudroom.errors import MudroomError, UsageError
from mudroom.stage.layers.union import Union
from mudroom.stage.originals.collection import MASKED
from mudroom.stage.source import Source
from mudroom.vault.apply.backup import with_backups
from mudroom.vault.apply.discarded_side import has_begun_anew, holder_of, lay_aside, return_dropped
from mudroom.vault.apply.execution import Progress
from mudroom.vault.apply.remainder import keep_the_rest
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

_TRIES = 3
LACKING = "is missing from the fork: what was left of its change is gone"
MARKED = "conflict markers were written into it, as was asked for"


class LandingResult(NamedTuple):
    applied: ApplyResult
    withheld: tuple[bytes, ...]
    """Protected paths that were left in the fork because nobody named them."""
    remaining: int
    """Changes that are still in the fork; 0 and the fork is gone, or stands on the project as it is now."""
    verified: Verification | None = None
    """What the command said that the policy wants to succeed first (``verify``); None: it was not asked. If it failed,
    nothing was applied."""
    merged: tuple[bytes, ...] = ()
    """Paths at which the project got something else than the fork has: both sides had changed them."""
    kept: tuple[bytes, ...] = ()
    """Paths at which the project's was kept, as was decided: the fork has nothing there any more. Undo brings it back
    into the fork."""

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        return self.applied.conflicts


class Verification(NamedTuple):
    """The verdict of the policy's ``verify`` command on the result of an apply, before anything was written."""

    command: tuple[bytes, ...]
    exit_code: int
    output: bytes
    timed_out: bool = False

    @property
    def passed(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


Check = Callable[[Landing, Source, bytes], Verification | None]
"""Tries a landing out: it is given what the fork has staged, and the directory of what was merged."""


class How(NamedTuple):
    """``verify_fork``: compare the fork with what was reviewed. ``time``: nanoseconds since 1970, for the record."""

    time: int
    verify_fork: bool
    progress: Progress | None


class LandingRequest(NamedTuple):
    """What of a fork is to be applied, and how."""

    paths: tuple[bytes, ...] = ()
    """What is at and below these; none: all."""
    parts: Mapping[bytes, PartialChoice] = MappingProxyType({})
    """Files of which only a part is wanted."""
    git: bool = False
    """Repositories, too, each as a whole; without it they are left out unless they are among the ``paths``."""
    backups: bool = False
    """Leave what is replaced or removed beside it as ``NAME.bak``."""
    markers: bool = False
    """Write conflict markers into the files of the project that cannot be merged."""
    exact: bool = False
    """Only what is at the paths, nothing below them (``core/tree/choice.py``)."""


class LandingPlan(NamedTuple):
    """A landing that can be performed."""

    record: ForkRecord
    chosen: tuple[Change, ...]
    landing: Landing


def prepare(fork: Fork, wanted: LandingRequest, reconciler: Reconciler, record: ForkRecord) -> LandingPlan:
    """What would happen, without doing any of it. Raises UsageError for a path that has no change."""
    changes = record.changeset.changes
    chosen = _chosen(changes, wanted)
    blocked = {remark.path for remark in record.changeset.remarks}
    masked = {remark.path for remark in record.changeset.remarks if remark.text == MASKED}
    blocked |= {change.path for change in changes} - {change.path for change in chosen}  # it must not come along
    named = {*wanted.paths, *(repositories(chosen) if wanted.git else ())}
    landing = plan_landing(chosen, reconciler.live(), named, blocked, masked)
    ops = (op._replace(copy=not op.merged) if _stays(fork, op, wanted.parts) else op for op in landing.ops)
    landing = landing._replace(ops=tuple(ops))
    return LandingPlan(record, tuple(chosen), landing)


def _stays(fork: Fork, op: Op, parts: Collection[bytes]) -> bool:
    """Whether the fork has to keep what is placed: a sealed layer is never changed, and of a file of which only a part
    was wanted the rest stays."""
    return bool(fork.state.layers) or any(
        part in (op.path, op.origin) or (op.whole and is_below(part, op.path)) for part in parts
    )


@contextmanager
def reconciling(
    vault: Vault, fork: Fork, wanted: LandingRequest, record: ForkRecord, *, answered: bool = True
) -> Iterator[Reconciler]:
    """A fork beside the project as it is now. Hold the fork's lock. ``answered``: what was decided about conflicts
    counts."""
    with OpenFork(vault, fork) as opened, Union(fork.layered, None) as staged:
        reconciler = Reconciler(
            vault.project,
            staged,
            opened.ground(record.changeset),
            since=record.started,
            place=vault.merged,
            partial=wanted.parts,
            answer=answers(fork, staged) if answered else None,
            markers=wanted.markers,
            label=fork.name.encode(),
        )
        with reconciler:
            yield reconciler


def land(
    vault: Vault,
    fork: Fork,
    wanted: LandingRequest,
    *,
    time: int,
    record: ForkRecord | None = None,
    check: Check | None = None,
    progress: Progress | None = None,
) -> LandingResult:
    """Apply a fork's changes, or what is wanted of them. What cannot be applied stays in the fork.

    ``record``: what was collected, if the fork was locked ever since; else it is read, and the fork is compared
    with it. Raises ForkMoved (nothing happened), OSError (``recover`` will go on), UsageError for a path that has no
    change. ``check``: asked before anything is written; what it refuses is not applied.
    """
    verify_fork = record is None
    if fork.has_copy:
        from mudroom.vault.forks.copy_layer import seal_copy

        seal_copy(vault, fork, as_reviewed=True)
        record = None
    record = record or read_record(fork)
    verified = None
    for _try in range(_TRIES):
        with reconciling(vault, fork, wanted, record) as reconciler:
            plan = prepare(fork, wanted, reconciler, record)
            if check is not None and plan.landing.ops:
                with Union(fork.layered, None) as staged:
                    verified = check(plan.landing, staged, reconciler.merged)
                if verified is not None and not verified.passed:
                    return LandingResult(
                        ApplyResult(""), plan.landing.withheld, len(record.changeset.changes), verified
                    )
                if verified is not None and not _still(plan, fork, wanted, reconciler, record):
                    continue  # that took a while, and the project is another one now
            if wanted.backups:
                plan = plan._replace(landing=with_backups(plan.landing, reconciler))
            landed = perform(vault, fork, wanted, plan, reconciler, How(time, verify_fork, progress))
            return landed._replace(verified=verified)
    raise MudroomError("the project changed each time while the result was being verified", "try again")


def _still(plan: LandingPlan, fork: Fork, wanted: LandingRequest, reconciler: Reconciler, record: ForkRecord) -> bool:
    """Whether the same landing would be planned now."""
    again = prepare(fork, wanted, reconciler, record).landing
    return [op[:4] for op in again.ops if op.old] == [op[:4] for op in plan.landing.ops if op.old] and (
        again.conflicts == plan.landing.conflicts
    )


def perform(
    vault: Vault,
    fork: Fork,
    wanted: LandingRequest,
    plan: LandingPlan,
    reconciler: Reconciler,
    how: How,
) -> LandingResult:
    landing, applied, place = plan.landing, ApplyResult(""), None
    if landing.ops or landing.dropped:
        place = ApplyDirectory(vault.new_apply())
        point = lay_aside(vault, fork, place.path, how.time) if landing.dropped else None
        if point is not None:  # what is sealed is never changed
            landing = landing._replace(ops=tuple(op._replace(copy=not op.merged) for op in landing.ops))
        trees = trees_of(landing)
        new = new_record(place, fork.name, how.time, vault.project, fork.layered, landing, trees)
        new = new._replace(differing=tuple(sorted(landing.differing)), parts=tuple(wanted.parts.items()))
        new = new._replace(dropped=tuple(sorted(landing.dropped)), checkpoint=point)
        applied = apply(place, new, merged=reconciler.merged, verify_fork=how.verify_fork, progress=how.progress)
    failed = {conflict.path for conflict in applied.conflicts}
    stayed = [op.path for op in landing.ops if op.whole and op.path in failed]  # with all that is in them
    applied = applied._replace(
        conflicts=tuple(sorted({*landing.conflicts, *applied.conflicts})),
        remarks=(*landing.remarks, *applied.remarks),
    )
    kept = {conflict.path for conflict in applied.conflicts} | set(landing.withheld)
    marked = [Conflict(path, MARKED) for path in reconciler.marked if path not in kept]
    applied = applied._replace(conflicts=tuple(sorted({*applied.conflicts, *marked})))
    landed = {change.path for change in plan.chosen} - kept
    landed -= {path for path in landed for top in stayed if is_below(path, top)}
    parts = {path: part for path, part in wanted.parts.items() if path in landed}
    remaining = keep_the_rest(vault, fork, plan.record, landed, landing.differing, parts)
    if place is not None:
        place.end()
    merged = (landing.differing & landed) - landing.dropped - landing.unmoved
    kept_ours = tuple(sorted(landing.dropped & landed))
    return LandingResult(applied, landing.withheld, remaining, merged=tuple(sorted(merged)), kept=kept_ours)


Resting = Callable[[str], AbstractContextManager[Fork]]
"""A fork by its name, with its lock held and nothing running in it."""


def take_back(
    vault: Vault, name: str | None, progress: Progress | None = None, resting: Resting | None = None
) -> ApplyResult:
    """Undo an apply: the one named, or the last that has not been undone. What it dropped is in the fork again."""
    place = _apply_named(vault, name, "done", "undo")
    record = place.load() if place.state() == "done" else None
    if record is None or not record.dropped:
        return undo(place, progress)
    with _holder(vault, record, resting) as fork:
        applied = undo(place, progress, lambda _applied: return_dropped(vault, fork, record, place.path))
        return _again(applied, record, fork)


def bring_back(
    vault: Vault, name: str | None, progress: Progress | None = None, resting: Resting | None = None
) -> ApplyResult:
    """Redo an apply that was undone: the one named, or the one that was undone last. What it dropped is dropped
    again, unless the fork has gone on."""
    place = _apply_named(vault, name, "undone", "redo")
    record = place.load() if place.state() == "undone" else None
    if record is None or not record.dropped:
        return redo(place, progress)
    with _holder(vault, record, resting) as fork:
        still = fork if fork is not None and not _has_gone_on(fork, record) else None
        applied = redo(place, progress, lambda applied: _drop_again(vault, fork, place.load(), applied))
        return _again(applied, record, still)


def _again(applied: ApplyResult, record: ApplyRecord, fork: Fork | None) -> ApplyResult:
    """``fork``: in which there is again what was dropped, or out of which it is; None: nothing has become of it."""
    if fork is None or record.checkpoint is None:
        return applied
    return applied._replace(again=record.dropped, holder=fork.name)


@contextmanager
def _holder(vault: Vault, record: ApplyRecord, resting: Resting | None) -> Iterator[Fork | None]:
    """The fork that still has what an apply dropped; None: it is gone."""
    fork = holder_of(vault, record)
    if fork is None or resting is None:
        yield fork
        return
    with resting(fork.name) as held:
        yield held


def _drop_again(vault: Vault, fork: Fork | None, record: ApplyRecord, applied: ApplyResult) -> tuple[Remark, ...]:
    if fork is None or record.checkpoint is None:
        return ()
    if _has_gone_on(fork, record):
        return tuple(Remark(path, f"stays in {fork.name}, which has gone on") for path in record.dropped)
    return _settle_fork(vault, record._replace(fork=fork.name), {one.path for one in applied.conflicts})


def _has_gone_on(fork: Fork, record: ApplyRecord) -> bool:
    """Since what was dropped came back into it."""
    if record.checkpoint is not None and is_standing_on(fork, record.checkpoint):
        return False
    return not has_begun_anew(fork)  # it was cut off while it was dropped


def _apply_named(vault: Vault, name: str | None, state: str, verb: str) -> ApplyDirectory:
    """The one named, or the last that is in this state."""
    places = [ApplyDirectory(path) for path in vault.applies()]
    if name is None:
        found = [place for place in places if place.state() == state]
        if not found:
            raise UsageError(f"there is nothing to {verb} in this project", "mudroom log shows what has happened")
        return found[-1] if verb == "undo" else max(found, key=lambda place: place.since())
    place = next((place for place in places if place.name == name), None)
    if place is None:
        known = ", ".join(place.name for place in places[-5:]) or "none"
        raise UsageError(f"there is no apply named {name}", f"the last ones: {known}")
    return place


def recover_all(vault: Vault) -> list[Recovery]:
    """Deal with the applies that a killed mudroom left unfinished."""
    found = []
    for path in vault.applies():
        place = ApplyDirectory(path)
        applying, turning = place.is_applying(), place.is_turning()
        outcome = recover(place)
        if outcome is not None:
            found.append(outcome)
        if applying and place.state() == "done":
            conflicts = outcome.applied.conflicts if outcome is not None else ()
            record = place.load()
            remarks = _settle_fork(vault, record, {conflict.path for conflict in conflicts})
            if remarks:
                found.append(Recovery(place.name, record.fork, "finished", ApplyResult(place.name, remarks=remarks)))
        elif turning:
            _settle_turned(vault, place)
            place.end()
    for path in vault.applies()[-1:]:
        ApplyDirectory(path).end()  # killed between leaving the mark and writing the plan: nothing had begun
    return found


def _settle_turned(vault: Vault, place: ApplyDirectory) -> None:
    """The same after an undo or redo. Repeatable, and nothing if it had not begun."""
    state = place.state()
    record = place.load() if state in ("done", "undone") else None
    if record is None or not record.dropped:
        return
    fork = holder_of(vault, record)
    if state == "undone":
        return_dropped(vault, fork, record, place.path)
    else:
        _drop_again(vault, fork, record, ApplyResult(place.name))


def _settle_fork(vault: Vault, done: ApplyRecord, kept: Collection[bytes]) -> tuple[Remark, ...]:
    """After a finished apply the fork keeps only what did not land. Repeatable. Returns what it no longer has of what
    was to stay: nothing can stay of that, and the other forks of the vault are not to wait for it."""
    try:
        fork = vault.fork(done.fork)
        record = read_record(fork)
    except UsageError:
        return ()  # it is gone, or has begun anew, already: the crash came after that
    landed = {*(op.origin or op.path for op in done.ops), *done.dropped}
    whole = tuple(op.path for op in done.ops if op.whole)
    paths = {
        change.path
        for change in record.changeset.changes
        if change.path in landed or any(is_below(change.path, top) for top in whole)
    }
    paths -= set(kept)
    parts = {path: part for path, part in done.parts if path in paths}
    lacking = _lacking(fork, record, paths & {*parts, *done.differing})
    parts = {path: part for path, part in parts.items() if path not in lacking}
    keep_the_rest(vault, fork, record, paths, {*done.differing} - lacking, parts)
    return tuple(Remark(path, LACKING) for path in sorted(lacking))


def _lacking(fork: Fork, record: ForkRecord, paths: Collection[bytes]) -> set[bytes]:
    """Those of the paths at which the fork should have a file and has nothing."""
    if not paths:
        return set()
    with Union(fork.layered, None) as layers:
        return {
            change.path
            for change in record.changeset.changes
            if change.path in paths and change.staged is not None and layers.look(change.path) is None
        }


def read_record(fork: Fork) -> ForkRecord:
    """Raises UsageError if the fork holds no changes (yet)."""
    try:
        return load(fork.record_path, ForkRecord)
    except FileNotFoundError:
        raise UsageError(f"the fork {fork.name} holds no changes") from None


def _chosen(changes: Sequence[Change], wanted: LandingRequest) -> list[Change]:
    if not wanted.paths:
        return list(changes)
    known = {change.path for change in changes}
    known |= {above for path in known for above in ancestors(path)} if not wanted.exact else set()
    for path in wanted.paths:
        if path not in known:
            raise UsageError(f"the fork has no change at {os.fsdecode(path)}", "mudroom diff shows what it has")
    return (select_exactly if wanted.exact else select_below)(changes, wanted.paths)
