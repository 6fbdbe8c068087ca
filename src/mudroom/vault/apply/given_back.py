"""Give the changes of an undone apply back to the fork that they came from; take those of a redone apply out again.

1. A path that the fork has changed since the apply keeps the fork's version, which was made from the applied one. Only
   its original is set anew: the change is compared with the project as it is now.
2. Every other path gets the version that a redo would place. It is in the slots, and is copied: a redo moves it.
3. Secrets and files in repositories are left out, and told.
4. All of this may be repeated, so after a crash it is done again (``turn.py``).

The caller holds the vault's lock and the fork's lock; no command runs in the fork.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import closing

from mudroom.core.merge.operations import Op, inverse
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.path import is_below
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.layers.landed import LANDED, LandedPaths, add_landed, elsewhere, keep_original
from mudroom.stage.originals.original import Originals
from mudroom.stage.source import DirectorySource, OpenSource, Source, same_as
from mudroom.stage.source import walk as walk_source
from mudroom.typing import NamedTuple
from mudroom.vault.apply.remainder import keep_remainder
from mudroom.vault.apply.slot_content import slots_of
from mudroom.vault.forks.collection import CollectedCommand, collect_again
from mudroom.vault.forks.editor import Editor
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.review import forget
from mudroom.vault.record import ApplyRecord
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

SECRET = "is a secret, and is not in {fork} again; mudroom redo {apply} brings it"
REPOSITORY = "is in a repository, and is not in {fork} again; mudroom redo {apply} brings it"
TOP = "the mode of the project's own directory is not changed in {fork} again; mudroom redo {apply} changes it"
FAILED = "is not in {fork} again: {reason}; mudroom redo {apply} brings it"
NEVER = Entry("file", 0, 0, b"", 0, 0, 0, 0, 0, 0, 0)
"""An entry that no fork has."""


class Version(NamedTuple):
    """One path as an apply leaves it."""

    path: bytes
    entry: Entry | None
    """None: the path is removed."""
    slot: bytes
    """The path of the content below the slots; empty for a directory, a removal, or a change of the mode alone."""


class GivenBack(NamedTuple):
    paths: tuple[bytes, ...] = ()
    """The files that are in the fork again."""
    remarks: tuple[Remark, ...] = ()


def find_origin(vault: Vault, record: ApplyRecord) -> Fork | None:
    """Return the fork that an apply came from, under its current name; None if it is gone. Another fork may have got
    its name."""
    forks = sorted(vault.forks(), key=lambda fork: fork.name != record.fork)
    for fork in forks:
        state = fork.state_or_none
        if state is None:
            continue
        if record.fork_created:
            if state.created == record.fork_created:
                return vault.fork(fork.name)
        elif fork.name == record.fork and state.created <= record.started:  # an older mudroom did not record it
            return vault.fork(fork.name)
    return None


def give_back(vault: Vault, fork: Fork, record: ApplyRecord, clock: Callable[[], int]) -> GivenBack:
    """Give the changes of an undone apply back to a fork. ``record``: the apply's, in the state ``undone``."""
    if not record.ops:  # it has sent pushes alone
        return GivenBack()
    with slots_of(record) as slots:
        wanted = list(versions(record, slots))
        with OpenFork(vault, fork) as opened:
            ground = opened.ground()
            changed = {change.path for change in ground.before.changes}
            known = changed.union(ground.landed, ground.originals.paths()).intersection(one.path for one in wanted)
        if known:
            add_landed(fork.path + LANDED, _present_originals(vault.source, fork, known))
        return stage(vault, fork, record.name, wanted, slots, clock, changed)


def versions(record: ApplyRecord, slots: int) -> Iterator[Version]:
    """Yield the versions that a redo would place, parents first. ``record``: in the state ``undone``."""
    source = DirectorySource(slots)
    for op in map(inverse, reversed(record.ops)):
        yield from _versions_of(op, source)


def _versions_of(op: Op, source: Source) -> Iterator[Version]:
    slot = b"%d" % op.slot
    if op.kind not in ("place", "swap"):
        yield Version(op.path, op.new if op.kind in ("mkdir", "chmod") else None, b"")
        return
    if op.new is None or op.new.kind != "directory":
        yield Version(op.path, op.new, slot)
        return
    yield Version(op.path, op.new, b"")
    for path, entry in walk_source(source, slot):
        yield Version(op.path + path[len(slot) :], entry, path if entry.kind != "directory" else b"")


def stage(
    vault: Vault,
    fork: Fork,
    apply: str,
    wanted: Collection[Version],
    slots: int,
    clock: Callable[[], int],
    keeps: Collection[bytes] = (),
) -> GivenBack:
    """Make an apply's versions a fork's changes, by the rules of this file. ``slots``: the directory with the contents.
    ``keeps``: the paths at which the fork keeps its own version. The originals of all are recorded."""
    told = {"fork": fork.name, "apply": apply}
    given, remarks = list[bytes](), list[Remark]()
    forget(fork)
    with closing(Editor(vault, fork, clock)) as editor:
        for version in wanted:
            if why := _why_left_out(vault, version.path):
                remarks.append(Remark(version.path, why.format(**told)))
                continue
            try:
                if version.path not in keeps:
                    _put(editor.buffer, version, DirectorySource(slots))
            except OSError as error:
                remarks.append(Remark(version.path, FAILED.format(reason=error.strerror or error, **told)))
                continue
            if version.entry is None or version.entry.kind != "directory":
                given.append(version.path)
        lost: list[bytes] = []
        if editor.buffer.changed:
            before = fork.record
            command = CollectedCommand((b"mudroom", b"undo", os.fsencode(apply)), 0, clock())
            if before is not None:
                command = command._replace(argv=before.command, exit_code=before.exit_code, level=before.level)
            lost = editor.flush(command)
        else:
            collect_again(vault, fork)
    remarks += [Remark(path, FAILED.format(reason="it could not be staged", **told)) for path in sorted(lost)]
    return GivenBack(tuple(path for path in given if path not in lost), tuple(remarks))


def stage_refused(vault: Vault, fork: Fork, record: ApplyRecord, place: bytes, clock: Callable[[], int]) -> GivenBack:
    """Make what an undo could not take back a new fork's changes, from the applied version to the earlier one: they
    conflict with the project where it has changed since. ``place``: the apply's directory."""
    with slots_of(record) as slots:
        source = DirectorySource(slots)
        wanted = [version for op in record.refused for version in _versions_of(op, source)]
        applied = {op.path: op.old for op in record.refused}
        rows: dict[bytes, LandedPaths] = {}
        kept = Originals([place])
        for version in wanted:
            entry, name = applied.get(version.path), ""
            content = kept.content(version.path) if entry is not None and entry.kind == "file" else None
            if content is not None:
                with Descriptor(content):
                    name = keep_original(fork.path, content)
            rows[version.path] = LandedPaths(elsewhere(entry) if entry is not None else None, NEVER, name)
        add_landed(fork.path + LANDED, rows)
        return stage(vault, fork, record.name, wanted, slots, clock)


def _why_left_out(vault: Vault, path: bytes) -> str:
    if not path:
        return TOP
    if git_directory(path) is not None:
        return REPOSITORY
    return "" if vault.mask.allows(path) else SECRET


def _put(buffer: Buffer, version: Version, contents: Source) -> None:
    path, entry, _slot = version
    current = buffer.look(path)
    if current is not None and (entry is None or entry.kind != current.kind or entry.kind == "symlink"):
        buffer.remove(path)
        current = None
    if entry is None:
        return
    if entry.kind == "symlink":
        buffer.symlink(path, entry.target)
    elif entry.kind == "directory" and current is None:
        buffer.mkdir(path, entry.mode)
    elif version.slot:
        with os.fdopen(contents.open(version.slot), "rb") as source, buffer.create(path, entry.mode) as target:
            shutil.copyfileobj(source, target)
        buffer.utime(path, entry.mtime)
    elif current is not None and current.mode != entry.mode:
        buffer.chmod(path, entry.mode)


def _present_originals(project: bytes, fork: Fork, paths: Collection[bytes]) -> dict[bytes, LandedPaths]:
    """Return rows that make the project's present entries the originals. Their contents are kept."""
    rows: dict[bytes, LandedPaths] = {}
    with OpenSource(project) as source:
        for path in paths:
            entry, name = source.look(path), ""
            if entry is not None and entry.kind == "file":
                with Descriptor(source.open(path)) as opened:
                    name = keep_original(fork.path, opened)
            rows[path] = LandedPaths(elsewhere(entry) if entry is not None else None, NEVER, name)
    return rows


def take_out(vault: Vault, fork: Fork, record: ApplyRecord) -> tuple[bytes, ...]:
    """Take the changes of a redone apply out of a fork, except where the fork has changed them since. Return the files
    that are out of it. ``record``: the apply's, in the state ``done``."""
    before = fork.record
    if before is None:
        return ()
    places = {op.path for op in record.ops}
    whole = [op.path for op in record.ops if op.whole]
    with OpenFork(vault, fork) as opened, OpenSource(vault.source) as project:
        staged = opened.staged()
        concerned = [
            change
            for change in before.changeset.changes
            if change.path in places or any(is_below(change.path, top) for top in whole)
        ]
        landed = {change.path for change in concerned if _is_same(change, staged, project)}
    others = [change.path for change in concerned if change.path not in landed]
    if others:
        add_landed(fork.path + LANDED, _present_originals(vault.source, fork, others))
        collect_again(vault, fork)
    record_now = fork.record
    if landed and record_now is not None:
        with fork.moving():
            keep_remainder(vault, fork, record_now, landed)
    return tuple(c.path for c in concerned if c.path in landed and c.entry.kind != "directory")


def _is_same(change: Change, staged: Source, project: Source) -> bool:
    """Return whether the project has the fork's version."""
    here, there = change.staged, project.look(change.path)
    if here is None or there is None:
        return here is there
    if (here.kind, here.mode, here.target) != (there.kind, there.mode, there.target):
        return False
    if here.kind != "file":
        return True
    if here.size != there.size:
        return False
    return same_as(staged.open(change.path), project, change.path)
