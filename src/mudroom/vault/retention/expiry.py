"""Removal of expired applies, in an order that survives a crash at any point.

1. The tombstone is written (``vault/retention/tombstone.py``).
2. ``plan.done`` becomes ``plan.removed``: the apply cannot be undone any more, and the next sweep continues here.
3. Slots that had to be kept in the project are removed.
4. The directory goes to the trash.
"""

from __future__ import annotations

import os
from contextlib import suppress

from mudroom.core.clock import VaultClock, horizon
from mudroom.core.retention import ApplyFact, Expired, RetentionLimits, expired_applies
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.layer import remove_at
from mudroom.stage.originals import moved_files
from mudroom.stage.source import is_absence
from mudroom.vault.apply.slot_directory import is_mark, open_slots, remove_empty_slots
from mudroom.vault.apply.transaction import ApplyDirectory
from mudroom.vault.disk_usage import measure
from mudroom.vault.record import ApplyRecord, load
from mudroom.vault.retention.tombstone import remember
from mudroom.vault.retention.usage import slots_in_project
from mudroom.vault.store.store import Vault

_REMOVED = b"/plan.removed"


def sweep_applies(
    vault: Vault, kept: RetentionLimits, clock: VaultClock, now: int, *, dry_run: bool = False
) -> list[Expired]:
    """Remove the applies that exceed the limits. Return them, oldest first.

    Hold the vault's lock; no apply may be unfinished. ``now``: the wall clock time, for the tombstones.
    """
    places = {place.name: place for place in map(ApplyDirectory, vault.applies())}
    facts = [_fact(vault, place, note=not dry_run) for place in places.values() if place.state() is not None]
    going = expired_applies(facts, kept, horizon(clock, kept.age))
    if dry_run:
        return going
    remember(vault, going, now)
    for apply in going:
        disk.rename_path(_plan(places[apply.name]), places[apply.name].path + _REMOVED)
    for place in places.values():
        if os.path.exists(place.path + _REMOVED):
            _remove(vault, place)
    states = (fork.state_or_none for fork in vault.forks())
    gone = {apply.name for apply in going}
    started = [*(state.created for state in states if state), *(fact.time for fact in facts if fact.name not in gone)]
    moved_files.forget(vault.path + b"/applies", min(started, default=now))
    if going:
        vault.empty_trash()
    return going


def _fact(vault: Vault, place: ApplyDirectory, *, note: bool) -> ApplyFact:
    state = place.state()
    if state not in ("done", "undone"):
        return ApplyFact(place.name, 0, 0, finished=False)
    return ApplyFact(place.name, os.stat(_plan(place)).st_mtime_ns, _size(vault, place, state, note=note))


def _plan(place: ApplyDirectory) -> bytes:
    return place.path + b"/plan." + (place.state() or "none").encode()


def _size(vault: Vault, place: ApplyDirectory, state: str, *, note: bool) -> int:
    """Return the bytes on disk. A finished apply does not change, so its size is measured once and kept in ``size``."""
    path = place.path + b"/size"
    with suppress(FileNotFoundError):  # not measured yet
        with open(path, "rb") as stream:
            words = stream.read(64).decode("ascii", "replace").split()
        if len(words) == 2 and words[0] == state and words[1].isdecimal():
            return int(words[1])
    size = measure(place.path)
    if not os.path.isdir(place.path + b"/slots"):
        size += measure(slots_in_project(vault, os.fsencode(place.name)))
    if note:
        safe_open.replace(path, f"{state} {size}\n".encode("ascii"), durable=False)
    return size


def _remove(vault: Vault, place: ApplyDirectory) -> None:
    record = load(place.path + _REMOVED, ApplyRecord)
    if record.slots != place.path + b"/slots":
        _remove_slots(vault, place, record)
    vault.throw_away(place.path)


def _remove_slots(vault: Vault, place: ApplyDirectory, record: ApplyRecord) -> None:
    """Remove slots in the project, only at the path that an apply in this vault uses, and only if they belong to this
    user."""
    if record.slots != slots_in_project(vault, os.fsencode(place.name)):
        raise MudroomError(f"{place.name} has its slots at {show(record.slots)}: not a path that mudroom uses")
    record = record._replace(project=vault.source)
    try:
        opened = open_slots(record)
    except MudroomError:
        return  # owned by another user: it stays
    except OSError as error:
        if is_absence(error):
            return  # the slots are gone, or the project is
        raise
    with Descriptor(opened):
        for name in disk.names(opened):
            if not is_mark(name):  # the mark goes last, so that a removal that is killed is continued
                remove_at(opened, name)
    remove_empty_slots(record)
