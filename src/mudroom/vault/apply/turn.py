"""Undo, redo and recovery of applies, with the fork's records and git refs.

``undo_apply``, ``redo_apply`` and ``recover_all`` expect the caller to hold the vault's lock.

Undos and redos are counted: ``applies/uN/turn`` has the number of the apply's last undo or redo. The apply with the
highest number was undone last, whatever the clock showed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

from mudroom.core.tree.change import Remark
from mudroom.core.tree.path import is_below
from mudroom.errors import UsageError
from mudroom.stage import disk
from mudroom.stage.layers.union import Union
from mudroom.vault.apply.discarded_side import find_holder, is_reset, restore_dropped
from mudroom.vault.apply.execution import Progress
from mudroom.vault.apply.landing import read_record
from mudroom.vault.apply.remainder import keep_remainder
from mudroom.vault.apply.repositories import moved_again, require_recoverable, turned_refs
from mudroom.vault.apply.transaction import ApplyDirectory, ApplyResult, Recovery, recover, redo, undo
from mudroom.vault.forks.stacking import is_standing_on
from mudroom.vault.record import ApplyRecord, ForkRecord
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

LACKING = "is missing from the fork, so the rest of its change is lost"

Resting = Callable[[str], AbstractContextManager[Fork]]
"""Open a fork by name, with its lock held and no command running in it."""


def undo_apply(
    vault: Vault, name: str | None, progress: Progress | None = None, resting: Resting | None = None
) -> ApplyResult:
    """Undo the named apply, or the last that was not undone. Changes it discarded from the fork are restored there."""
    place = _find_apply(vault, name, "done", "undo")
    record = place.load() if place.state() == "done" else None
    refs = turned_refs(place, back=True)
    if record is not None:
        _count_turn(vault, place)
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
    """Redo the named apply, or the last that was undone. Changes it discarded from the fork are discarded again, unless
    the fork has changed since."""
    place = _find_apply(vault, name, "undone", "redo")
    record = place.load() if place.state() == "undone" else None
    refs = turned_refs(place, back=False)
    if record is not None:
        _count_turn(vault, place)
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


def _instead(vault: Vault, verb: str) -> str:
    """Return a hint for when no apply can be undone or redone: changes may have been kept in a fork instead."""
    forks = vault.forks() if verb == "undo" and not vault.applies() else []
    if not forks:
        return "mudroom log shows what has happened"
    name = forks[-1].name
    return f"{name} is not applied yet: mudroom diff {name}, mudroom apply {name}, mudroom discard {name}"


def _find_apply(vault: Vault, name: str | None, state: str, verb: str) -> ApplyDirectory:
    """Return the named apply, or the last in this state. Raise UsageError if it does not exist."""
    places = [ApplyDirectory(path) for path in vault.applies()]
    if name is None:
        candidates = [place for place in places if place.state() == state]
        if not candidates:
            raise UsageError(f"there is nothing to {verb} in this project", _instead(vault, verb))
        return candidates[-1] if verb == "undo" else max(candidates, key=_turn_of)
    place = next((place for place in places if place.name == name), None)
    if place is None:
        names = ", ".join(place.name for place in places[-5:])
        hint = f"the last ones: {names}" if names else _instead(vault, verb)
        raise UsageError(f"there is no apply named {name or repr(name)}", hint)
    return place


def _count_turn(vault: Vault, place: ApplyDirectory) -> None:
    """Give an apply the next number. The number only orders applies, so it need not survive a power cut."""
    number = 1 + max(_turn_of(ApplyDirectory(path)) for path in vault.applies())
    with open(place.path + b"/turn.new", "wb") as stream:
        stream.write(b"%d" % number)
    disk.rename_path(place.path + b"/turn.new", place.path + b"/turn")


def _turn_of(place: ApplyDirectory) -> int:
    """Return the number of an apply's last undo or redo; 0 without one or if it cannot be read."""
    try:
        with open(place.path + b"/turn", "rb") as stream:
            return int(stream.read(32))
    except (FileNotFoundError, ValueError):
        return 0


def recover_all(vault: Vault) -> list[Recovery]:
    """Finish or take back the applies that a killed mudroom left unfinished. Return the recoveries. Raise NotInstalled
    if an apply moves refs and this installation cannot; that apply is then left as it was."""
    recoveries = []
    for path in vault.applies():
        place = ApplyDirectory(path)
        applying, turning = place.is_applying(), place.is_turning()
        if applying or turning:
            require_recoverable(place)
        outcome = recover(place)
        if outcome is not None:
            recoveries.append(outcome)
        if applying and place.state() == "done":
            conflicts = outcome.applied.conflicts if outcome is not None else ()
            record = place.load()
            remarks = _settle_fork(vault, record, {conflict.path for conflict in conflicts})
            remarks += moved_again(place)
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
        moved_again(place, back=state == "undone")
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
    must not delay recovery for other forks in the vault.
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
