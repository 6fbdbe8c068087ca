"""Undo, redo and recovery of applies, with the fork's records and git refs.

``turn_apply`` and ``recover_all`` expect the caller to hold the vault's lock.

Undos and redos are counted: ``applies/uN/turn`` has the number of the apply's last undo or redo. The apply with the
highest number was undone last, whatever the clock showed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager

from mudroom.core.tree.change import Remark
from mudroom.core.tree.path import is_below
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import safe_open
from mudroom.stage.layers.union import Union
from mudroom.typing import Literal, NamedTuple
from mudroom.vault.apply.discarded_side import find_holder, is_reset, restore_dropped
from mudroom.vault.apply.execution import Progress
from mudroom.vault.apply.given_back import GivenBack, find_origin, give_back, take_out
from mudroom.vault.apply.joint import Joint
from mudroom.vault.apply.landing import read_record
from mudroom.vault.apply.remainder import keep_remainder
from mudroom.vault.apply.repositories import moved_again, require_recoverable, turned_refs
from mudroom.vault.apply.transaction import (
    ApplyDirectory,
    ApplyResult,
    Recovery,
    Settle,
    State,
    recover,
    redo,
    require_undone,
    undo,
)
from mudroom.vault.forks.damage import reason_of
from mudroom.vault.forks.stacking import is_standing_on
from mudroom.vault.record import ApplyRecord, ForkRecord
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

NOT_GIVEN = "has not got the changes again: {reason}; mudroom redo {apply} applies them again"
NOT_TAKEN = "keeps the changes: {reason}"
PATIENCE = 2.0
"""Seconds that a recovery waits for a fork's reader."""
LACKING = "is missing from the fork, so the rest of its change is lost"

Resting = Callable[[str], AbstractContextManager[Fork]]
"""Open a fork by name, with its lock held and no command running in it."""


def turn_apply(
    vault: Vault,
    verb: Literal["undo", "redo"],
    name: str | None,
    progress: Progress | None = None,
    resting: Resting | None = None,
    origin_resting: Resting | None = None,
    joint: Joint | None = None,
) -> ApplyResult:
    """Undo the named apply, or the last that was not undone; or redo it, or the last that was undone.

    An undo gives its changes back to the fork that they came from (``given_back.py``); a redo takes them out of it. If
    the apply discarded others there, an undo restores the fork to its state before the apply; a redo discards them
    again, unless the fork has changed since. ``joint``: as for ``undo``."""
    turn = _TURNS[verb]
    place = find_apply(vault, name, verb)
    record = place.load() if place.state() == turn.before else None
    refs = turned_refs(place, back=verb == "undo")
    if record is None:
        return refs.added_to(turn.perform(place, progress, refs.settle, joint))
    _count_turn(vault, place)
    if not record.dropped:
        with _origin_at_rest(vault, record, origin_resting) as origin:
            returned = _Returned(vault, place, origin, turn)
            applied = turn.perform(place, progress, lambda done: (*refs.settle(done), *returned.by(done)), joint)
            return refs.added_to(returned.added_to(applied))
    with _locked_holder(vault, record, resting) as fork:
        keeps = verb == "redo" and fork is not None and _has_changed_since(fork, record)
        applied = turn.perform(
            place, progress, lambda done: (*refs.settle(done), *turn.settle_dropped(vault, fork, place, done)), joint
        )
        return refs.added_to(_with_restored(applied, record, None if keeps else fork))


def undone_apply(vault: Vault, name: str | None) -> ApplyRecord:
    """Return the record of the named apply, or of the last that was undone. Raise UsageError if it is not undone."""
    place = find_apply(vault, name, "redo")
    require_undone(place)
    return place.load()


class _Origin(NamedTuple):
    """The fork that an apply came from."""

    fork: Fork | None
    """None: it is gone, or in use."""
    name: str = ""
    """Its name, if it is in use."""
    reason: str = ""
    """Why it cannot be changed now."""


@contextmanager
def _origin_at_rest(vault: Vault, record: ApplyRecord, resting: Resting | None) -> Iterator[_Origin]:
    """Yield the fork that an apply came from, at rest. A fork in use does not stop an undo or redo of the project."""
    fork = find_origin(vault, record)
    with ExitStack() as stack:
        origin = _Origin(fork)
        if fork is not None and resting is not None:
            try:
                origin = _Origin(stack.enter_context(resting(fork.name)))
            except MudroomError as error:
                origin = _Origin(None, fork.name, error.message)
        yield origin


class _Returned:
    """What an undo gives back to a fork, or a redo takes out of it.

    The project has been restored by then. So a failure is told, and raises no error: it would make the next command
    recover an operation that is complete. Owner: the caller.
    """

    def __init__(self, vault: Vault, place: ApplyDirectory, origin: _Origin, turn: _Turn) -> None:
        self._vault, self._place, self._origin, self._turn = vault, place, origin, turn
        self._paths: tuple[bytes, ...] = ()

    def by(self, done: ApplyResult) -> tuple[Remark, ...]:
        """Change the fork. Return the remarks."""
        del done
        fork, name, reason = self._origin
        if fork is not None:
            try:
                self._paths, remarks = self._turn.settle_origin(self._vault, fork, self._place.load())
            except (MudroomError, OSError) as error:
                name, reason = fork.name, reason_of(error)
            else:
                return remarks
        if not reason:
            return ()
        return (Remark(os.fsencode(name), self._turn.failed.format(reason=reason, apply=self._place.name)),)

    def added_to(self, applied: ApplyResult) -> ApplyResult:
        fork = self._origin.fork
        return applied._replace(again=self._paths, holder=fork.name) if fork is not None and self._paths else applied


def _given(vault: Vault, fork: Fork, record: ApplyRecord) -> GivenBack:
    return give_back(vault, fork, record, time.time_ns)


def _taken(vault: Vault, fork: Fork, record: ApplyRecord) -> GivenBack:
    return GivenBack(take_out(vault, fork, record))


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


def _restore(vault: Vault, fork: Fork | None, place: ApplyDirectory, applied: ApplyResult) -> tuple[Remark, ...]:
    del applied
    return restore_dropped(vault, fork, place.load(), place.path)


def _drop_again(vault: Vault, fork: Fork | None, place: ApplyDirectory, applied: ApplyResult) -> tuple[Remark, ...]:
    record = place.load()
    if fork is None or record.checkpoint is None:
        return ()
    if _has_changed_since(fork, record):
        return tuple(Remark(path, f"stays in {fork.name}, which has changed since") for path in record.dropped)
    return _settle_fork(vault, record._replace(fork=fork.name), {conflict.path for conflict in applied.conflicts})


class _Turn(NamedTuple):
    """An undo or a redo."""

    before: State
    """The state of an apply to which it can be done."""
    perform: Callable[[ApplyDirectory, Progress | None, Settle, Joint | None], ApplyResult]
    settle_origin: Callable[[Vault, Fork, ApplyRecord], GivenBack]
    """Change the fork that the apply came from."""
    failed: str
    """Remark where that fails."""
    settle_dropped: Callable[[Vault, Fork | None, ApplyDirectory, ApplyResult], tuple[Remark, ...]]
    """Restore in the fork the changes that the apply discarded there, or discard them again."""


_TURNS: Mapping[str, _Turn] = {
    "undo": _Turn("done", undo, _given, NOT_GIVEN, _restore),
    "redo": _Turn("undone", redo, _taken, NOT_TAKEN, _drop_again),
}


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


def find_apply(vault: Vault, name: str | None, verb: Literal["undo", "redo"]) -> ApplyDirectory:
    """Return the named apply, or the last that can be undone, or redone. Raise UsageError if it does not exist."""
    state = _TURNS[verb].before
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
    safe_open.replace(place.path + b"/turn", b"%d" % number, durable=False)


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
        applying, turning = place.has_begun("apply"), place.has_begun("turn")
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
            remarks = _settle_turn(vault, place)
            place.end()
            if remarks and outcome is not None:
                recoveries[-1] = outcome._replace(applied=outcome.applied._replace(remarks=remarks))
            elif remarks:
                ended: Literal["finished", "undone"] = "undone" if place.state() == "undone" else "finished"
                done = ApplyResult(place.name, remarks=remarks)
                recoveries.append(Recovery(place.name, place.load().fork, ended, done))
    for path in vault.applies()[-1:]:
        ApplyDirectory(path).end()  # killed between leaving the mark and writing the plan: the apply had not begun
    return recoveries


def _settle_turn(vault: Vault, place: ApplyDirectory) -> tuple[Remark, ...]:
    """Settle the fork after an interrupted undo or redo. Repeatable; does nothing if the operation had not begun."""
    state, done = place.state(), ApplyResult(place.name)
    if state not in ("done", "undone"):
        return ()
    record, turn = place.load(), _TURNS["undo" if state == "undone" else "redo"]
    moved_again(place, back=state == "undone")
    if record.dropped:
        return turn.settle_dropped(vault, find_holder(vault, record), place, done)
    fork = find_origin(vault, record)
    if fork is None:
        return ()
    with fork.lock_if_free("mudroom", PATIENCE) as free:
        is_at_rest = free and fork.interrupted is None
        origin = _Origin(fork) if is_at_rest else _Origin(None, fork.name, "a command runs in it, or was cut off there")
        return _Returned(vault, place, origin, turn).by(done)


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
    with fork.moving():
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
