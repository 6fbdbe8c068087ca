"""Stamps of a vault or a project that was copied: moved to another disk, restored from a backup.

``cp -a``, ``rsync -a`` and ``tar`` keep a file's name, mode, size and mtime, and give it another inode and ctime, by
which records, originals, plans and imprints know it. The first verb that finds a copy (``directory_identity.py``)
renews them all, once:

1. The copy of a file is at its path, with its kind, mode, size, target and mtime; tar's usual format drops the fraction
   of the second. Where its content was kept, that must be the same, too. Any other file keeps its old stamp: it is
   "not what was reviewed", or "changed in the project", as without a copy.
2. The last review goes along if it was one of the record, so of the files that the copy has. A command or a mount that
   has not ended has no such record.
3. A deletion that the copy lost is made again: an ordinary user's rsync leaves out whiteouts, and tar the attributes of
   opaque directories.
4. All of this may be repeated after a crash. A fork in use is left for the next verb.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import msgspec

from mudroom.core.merge.operations import Op
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry, in_copy
from mudroom.core.tree.path import ancestors
from mudroom.core.tree.stack import ForkState
from mudroom.errors import MudroomError
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import open_layer
from mudroom.stage.copy import clone, listed
from mudroom.stage.layers.landed import LANDED, load_landed
from mudroom.stage.layers.layer import LayerWriter
from mudroom.stage.layers.shown import with_shown
from mudroom.stage.layers.union import Union, staged_source
from mudroom.stage.originals.original import Originals, read_rows, replace_rows
from mudroom.stage.originals.snapshot import read_manifest, save_manifest
from mudroom.stage.source import DirectorySource, OpenSource, Source, same_as
from mudroom.stage.stamp import as_recorded
from mudroom.stage.views.copy_view import CopyView
from mudroom.vault.apply import imprint
from mudroom.vault.apply.slot_directory import make_slots, open_slots
from mudroom.vault.apply.transaction import ApplyDirectory, State, slots_for
from mudroom.vault.apply.tree import discard
from mudroom.vault.forks import crash, review
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.record import ApplyRecord, save
from mudroom.vault.store.directory_identity import note_directory
from mudroom.vault.store.fork import Fork, load_record, mount_note
from mudroom.vault.store.store import Vault


def renew_stamps(vault: Vault) -> None:
    """Renew all stamps; those of a fork in use at a later verb. Hold the vault's lock."""
    layers = set[str]()
    with OpenSource(vault.source) as project:
        done = [_is_done(partial(_renew_snapshot, vault.base(name.decode()), project)) for name in _snapshots(vault)]
        done += [_is_done(partial(_renew_fork, vault, fork, layers)) for fork in vault.forks()]
        done += [_is_done(partial(_renew_apply, ApplyDirectory(path), project)) for path in vault.applies()]
    if all(done):
        note_directory(vault.path, vault.project)


def _is_done(renew: Callable[[], bool]) -> bool:
    """Return whether this part is renewed. On a full disk undo and discard work, and the next verb renews it; a damaged
    file keeps its stamps, and the verb that reads it says so."""
    try:
        return renew()
    except OSError:
        return False
    except (MudroomError, ValueError):
        return True


def _snapshots(vault: Vault) -> list[bytes]:
    bases = vault.path + b"/bases/"
    return [name for name in os.listdir(bases) if os.path.exists(bases + name + b"/manifest")]


def _renew_snapshot(place: bytes, project: Source) -> bool:
    base = _Base(project, None)
    save_manifest(place, {path: base.entry(path, entry) for path, entry in read_manifest(place).items()})
    return True


def _found(source: Source, path: bytes) -> Entry | None:
    try:
        return source.look(path)
    except OSError:
        return None  # a closed directory: the entry keeps its stamp


class _Base:
    """The project's files, or those of a snapshot."""

    def __init__(self, source: Source, originals: Originals | None) -> None:
        self._source, self._originals = source, originals

    def entry(self, path: bytes, entry: Entry) -> Entry:
        copy = in_copy(entry, _found(self._source, path))
        if copy is None or copy is entry or not self._has_kept_content(path, copy):
            return entry
        return as_recorded(copy) if entry.ctime else copy._replace(ctime=0)

    def _has_kept_content(self, path: bytes, copy: Entry) -> bool:
        kept = self._originals.content(path) if self._originals is not None and copy.kind == "file" else None
        if kept is None:
            return True
        try:
            return same_as(kept, self._source, path)
        except OSError:
            return False


def _renew_fork(vault: Vault, fork: Fork, layers: set[str]) -> bool:
    """Renew a fork's stamps. Return False if it is in use. ``layers``: those that are renewed."""
    with fork.lock_if_free("reading a copied state") as is_free:
        if is_free and mount_note(fork) is None and fork.state_or_none is not None:
            for stack in _stacks(fork.state):
                if layers.isdisjoint(stack[-1:]):
                    layers.add(stack[-1])
                    _renew_layer(vault, fork, stack)
            _renew_top(vault, fork)
    return is_free


def _stacks(state: ForkState) -> Iterator[tuple[str, ...]]:
    """Yield the sealed layers of a fork and its checkpoints, each with those below it."""
    for layers in (state.layers, *(point.layers for point in state.checkpoints)):
        yield from (layers[: number + 1] for number in range(len(layers)))


def _renew_layer(vault: Vault, fork: Fork, stack: tuple[str, ...]) -> None:
    trees = tuple(fork.layer(name) + b"/tree" for name in reversed(stack))
    path = fork.layer(stack[-1]) + b"/record"
    record, shown = load_record(path), fork.shown_at(stack)
    if record is None or not all(map(os.path.isdir, trees)):
        return
    with OpenFork(vault, fork) as opened:
        base = _Base(opened.base, Originals([fork.layer(name) for name in stack]))
        with closing(staged_source(with_shown(trees, b"", shown, ()) if shown else trees)) as staged:
            renewed = _renewed(record.changeset, base, staged)
        below = load_record(fork.layer(stack[-2]) + b"/record") if stack[1:] else None
        with Union(trees[1:], opened.base) as lower, Union(trees, opened.base) as union:
            _remove_again(trees[0], lower, union, renewed, below.changeset if below is not None else Changeset())
    _renew_originals(fork.layer(stack[-1]), base)
    save(path, record._replace(changeset=renewed), durable=False)


def _renew_top(vault: Vault, fork: Fork) -> None:
    record, landed = fork.record, load_landed(fork.path + LANDED)
    if record is None:
        return
    with OpenFork(vault, fork) as opened:
        originals = Originals([fork.layer(name) for name in (*fork.state.layers, fork.state.upper)])
        base, staged = _Base(opened.base, originals), opened.staged()
        renewed = record._replace(changeset=_renewed(record.changeset, base, staged))
        if fork.has_copy:
            CopyView(fork.copy_place, opened.visible).renew(base.entry)
        elif os.path.isdir(fork.upper):
            _remove_again(fork.upper, opened.lower, opened.merged(), renewed.changeset, fork.sealed_changes)
        _renew_originals(fork.layer(fork.state.upper), base)
        rows = {
            path: row._replace(
                project=row.project and base.entry(path, row.project),
                staged=row.staged and _in_layer(row.staged, _found(staged, path)),
            )
            for path, row in landed.items()
        }
        crash.renew(fork, lambda path: _found(staged, path))
    if landed:
        safe_open.replace(fork.path + LANDED, msgspec.msgpack.encode(rows))
    seen, before = review.reviewed(fork), review.fingerprint(record.changeset)
    if fork.interrupted is None and seen in (before, review.of_look(before)):
        review.remember(fork, review.ForkLook(renewed, "" if seen == before else review.LOOK))
    save(fork.record_path, renewed, durable=False)


def _renewed(changeset: Changeset, base: _Base, staged: Source) -> Changeset:
    changes = tuple(
        change._replace(
            base=change.base and base.entry(change.source or change.path, change.base),
            staged=change.staged and _in_layer(change.staged, _found(staged, change.path)),
        )
        for change in changeset.changes
    )
    return changeset._replace(changes=changes)


def _in_layer(entry: Entry, found: Entry | None) -> Entry:
    """Return a fork's entry in the copy. A file's mode in a layer may have more bits than that which was reviewed."""
    return in_copy(entry, found and found._replace(mode=entry.mode)) or entry


def _remove_again(layer: bytes, lower: Source, merged: Source, changeset: Changeset, below: Changeset) -> None:
    """Write the whiteouts that the copy of a layer has lost. ``below``: the changes of the layers below it, of which
    some are only there."""
    gone = [change.path for change in changeset.changes if change.staged is None and change.path]
    known = {change.path for change in changeset.changes}
    gone += [change.path for change in below.changes if change.base is None and change.path not in known]
    back = [path for path in sorted(gone) if _found(merged, path) is not None]
    if not back:
        return
    opened, removed = open_layer(layer), set[bytes]()
    with Descriptor(opened):
        writer = LayerWriter(opened, lower)
        try:
            for path in back:
                if removed.isdisjoint(ancestors(path)):
                    writer.whiteout(path)
                    removed.add(path)
        finally:
            writer.finish()


def _renew_originals(layer: bytes, base: _Base) -> None:
    place = layer + b"/originals"
    try:
        rows, damage = read_rows(safe_open.read(place + b"/index"), place + b"/index")
    except FileNotFoundError:
        return
    renewed = [
        (path, row._replace(entry=base.entry(path, row.entry)) if row.entry is not None else row) for path, row in rows
    ]
    if renewed != rows and not damage:
        with Descriptor(safe_open.open_directory(place)) as opened:
            replace_rows(opened, renewed)


# --- applies ---


def _renew_apply(place: ApplyDirectory, project: Source) -> bool:
    state = place.state()
    if state is None:
        return True
    record = place.load()
    if not os.path.isdir(record.slots):
        _renew_plan(place, state, record, project, None)
        return True
    if state in ("done", "undone"):
        record = _with_slots_near(place, record)
    with Descriptor(open_slots(record)) as slots:
        _renew_plan(place, state, record, project, DirectorySource(slots))
    return True


def _renew_plan(
    place: ApplyDirectory, state: State, record: ApplyRecord, project: Source, slots: Source | None
) -> None:
    mark = imprint.load(place.path, state)
    known = dict(mark.files) if mark is not None else {}

    def entry(old: Entry | None, path: bytes, slot: bytes) -> Entry | None:
        if old is None:
            return None
        live = _found(project, path)
        copy = in_copy(old, live)
        if copy is None:
            return (in_copy(old, _found(slots, slot)) if slots is not None and slot else None) or old
        if copy is not old and path in known and not known[path].digest and known[path].ctime > 0:
            known[path] = known[path]._replace(ctime=copy.ctime)
        return copy

    ops, trees = list[Op](), dict(record.trees)
    for op in record.ops:
        slot = b"%d" % op.slot if op.slot else b""
        ops.append(op._replace(old=entry(op.old, op.path, slot), new=entry(op.new, op.path, slot)))
        if op.slot in trees:
            below = {
                path: entry(each, op.path + b"/" + path, slot + b"/" + path) for path, each in trees[op.slot].items()
            }
            trees[op.slot] = {path: each for path, each in below.items() if each is not None}
    place.write(state, record._replace(ops=tuple(ops), trees=trees))
    if mark is not None and known != mark.files:
        imprint.write(place.path, mark._replace(files=known))


def _with_slots_near(place: ApplyDirectory, record: ApplyRecord) -> ApplyRecord:
    """Return the record with slots on the project's file system: an undo moves files."""
    near = slots_for(place, record.project)
    if near == record.slots or not record.slots.startswith(place.path + b"/"):
        return record
    moved = record._replace(slots=near)
    make_slots(moved)
    source, target = open_slots(record), open_slots(moved)
    with Descriptor(target), Descriptor(source):
        for name in disk.names(target):
            if name.isdigit():
                discard((target, name))  # of an earlier attempt
        items = listed(DirectorySource(source))
        clone(DirectorySource(source), target, items)
        disk.sync_filesystem(target)
    return moved
