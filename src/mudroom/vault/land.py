"""From a fork to the project: plan the landing against the project as it is now, perform it, keep the books.

``land`` and its siblings expect the caller to hold the vault's lock.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from mudroom.core.change import Change
from mudroom.core.entry import Entry, same_shape, same_stamp
from mudroom.core.flag import repositories
from mudroom.core.judge import Live
from mudroom.core.landing import Landing, plan_landing
from mudroom.core.merge import Conflict
from mudroom.core.path import is_below
from mudroom.errors import UsageError
from mudroom.stage.beneath import directory, entries, look_beneath
from mudroom.stage.collect import MASKED
from mudroom.stage.source import OpenSource, Source, same_bytes
from mudroom.stage.union import Union
from mudroom.vault.apply import Applied, ApplyDirectory, Recovered, apply, new_record, recover, trees_of, undo
from mudroom.vault.execute import Progress
from mudroom.vault.fork import Fork
from mudroom.vault.record import ForkRecord, load
from mudroom.vault.remain import keep_the_rest
from mudroom.vault.store import Vault

_OVERLAYFS_MAGIC = 0x794C7630  # statfs(2)
_GIT_HEADS = (b"HEAD", b"index", b"packed-refs", b"logs/HEAD")


class Landed(NamedTuple):
    applied: Applied
    withheld: tuple[bytes, ...]
    """Protected paths that were left in the fork because nobody named them."""
    remaining: int
    """Changes that are still in the fork; 0 and the fork is gone."""

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        return self.applied.conflicts


def land(
    vault: Vault,
    fork: Fork,
    *,
    time: int,
    paths: Sequence[bytes] = (),
    git: bool = False,
    record: ForkRecord | None = None,
    progress: Progress | None = None,
) -> Landed:
    """Apply a fork's changes, or those at and below ``paths``. What cannot be applied stays in the fork.

    ``git``: repositories, too, each as a whole; without it they are left out unless they are among the ``paths``.
    ``record``: what was collected, if the fork was locked ever since; else it is read, and the fork is compared
    with it. Raises ForkMoved (nothing happened), OSError (``recover`` will go on), UsageError for a path that has no
    change.
    """
    verify_fork = record is None
    if fork.has_copy:
        from mudroom.vault.copied import seal_copy

        seal_copy(vault, fork, as_reviewed=True)
        record = None
    record = record or read_record(fork)
    changes = record.changeset.changes
    chosen = _chosen(changes, paths)
    blocked = {remark.path for remark in record.changeset.remarks}
    masked = {remark.path for remark in record.changeset.remarks if remark.text == MASKED}
    blocked |= {change.path for change in changes} - {change.path for change in chosen}  # it must not come along
    named = {*paths, *(repositories(chosen) if git else ())}
    landing = plan(
        vault.project, fork.layered, chosen, since=record.started, named=named, blocked=blocked, masked=masked
    )
    if fork.state.layers:  # a sealed layer is never changed
        landing = landing._replace(ops=tuple(op._replace(copy=True) for op in landing.ops))
    applied = Applied("")
    if landing.ops:
        place = ApplyDirectory(vault.new_apply())
        trees = trees_of(landing, {change.path: change for change in chosen})
        new = new_record(place, fork.name, time, vault.project, fork.layered, landing, trees)
        applied = apply(place, new, verify_fork=verify_fork, progress=progress)
    applied = applied._replace(
        conflicts=tuple(sorted({*landing.conflicts, *applied.conflicts})),
        remarks=(*landing.remarks, *applied.remarks),
    )
    kept = {conflict.path for conflict in applied.conflicts} | set(landing.withheld)
    remaining = keep_the_rest(vault, fork, record, {change.path for change in chosen} - kept)
    return Landed(applied, landing.withheld, remaining)


def plan(
    project: bytes,
    contents: Sequence[bytes],
    changes: Sequence[Change],
    *,
    since: int,
    named: Collection[bytes],
    blocked: Collection[bytes],
    masked: Collection[bytes] = (),
) -> Landing:
    """What would happen, without doing any of it."""
    with OpenSource(project) as live, Union(contents, None) as staged:
        return plan_landing(changes, _live(project, live, staged, since), named, blocked, masked)


def take_back(vault: Vault, name: str | None, progress: Progress | None = None) -> Applied:
    """Undo an apply: the one named, or the last that has not been undone."""
    places = [ApplyDirectory(path) for path in vault.applies()]
    if name is None:
        done = [place for place in places if place.state() == "done"]
        if not done:
            raise UsageError("there is nothing to undo in this project", "mudroom log shows what has happened")
        return undo(done[-1], progress)
    place = next((place for place in places if place.name == name), None)
    if place is None:
        known = ", ".join(place.name for place in places[-5:]) or "none"
        raise UsageError(f"there is no apply named {name}", f"the last ones: {known}")
    return undo(place, progress)


def recover_all(vault: Vault) -> list[Recovered]:
    """Deal with the applies that a killed mudroom left unfinished."""
    found = []
    for path in vault.applies():
        place = ApplyDirectory(path)
        outcome = recover(place)
        if outcome is not None:
            found.append(outcome)
            _settle_fork(vault, outcome, place)
    for path in vault.applies()[-1:]:
        ApplyDirectory(path).end()  # killed between leaving the mark and writing the plan: nothing had begun
    return found


def _settle_fork(vault: Vault, outcome: Recovered, place: ApplyDirectory) -> None:
    """After a finished apply the fork keeps only what did not land."""
    if outcome.outcome != "finished":
        return
    try:
        fork = vault.fork(outcome.fork)
        record = read_record(fork)
    except (UsageError, FileNotFoundError):
        return  # it is gone already: the crash came after that
    landed = {op.path for op in place.load().ops}
    whole = tuple(op.path for op in place.load().ops if op.whole)
    kept = {conflict.path for conflict in outcome.applied.conflicts}
    paths = {
        change.path
        for change in record.changeset.changes
        if change.path in landed or any(is_below(change.path, top) for top in whole)
    }
    keep_the_rest(vault, fork, record, paths - kept)


def read_record(fork: Fork) -> ForkRecord:
    """Raises UsageError if the fork holds no changes (yet)."""
    try:
        return load(fork.record_path, ForkRecord)
    except FileNotFoundError:
        raise UsageError(f"the fork {fork.name} holds no changes") from None


def _chosen(changes: Sequence[Change], paths: Sequence[bytes]) -> list[Change]:
    if not paths:
        return list(changes)
    for path in paths:
        if not any(is_below(change.path, path) for change in changes):
            raise UsageError(f"the fork has no change at {os.fsdecode(path)}", "mudroom diff shows what it has")
    wanted = [change for change in changes if any(is_below(change.path, path) for path in paths)]
    needed = {change.path for change in wanted}
    return [change for change in changes if change.path in needed or _holds_wanted(change, needed)]


def _holds_wanted(change: Change, needed: Collection[bytes]) -> bool:
    """A new directory comes along with what is wanted in it."""
    is_new = change.base is None and change.entry.kind == "directory"
    return is_new and any(path.startswith(change.path + b"/") for path in needed)


def _live(project: bytes, live: OpenSource, staged: Source, since: int) -> Live:
    root = live.root
    renames_directories = _filesystem_magic(project) != _OVERLAYFS_MAGIC

    def same_as_staged(change: Change, ours: Entry) -> bool:
        return same_shape(change.staged, ours) and (ours.kind != "file" or _same_content(live, staged, change, ours))

    def same_tree(path: bytes, expected: dict[bytes, Entry]) -> bool:
        # EXDEV: an overlay (a container's own root) cannot rename a directory that is in its lower layers
        return renames_directories and _tree_is(root, path, expected)

    def git_moved(git: bytes) -> bool:
        found = (look_beneath(root, git + b"/" + name) for name in _GIT_HEADS)
        return any(entry is not None and entry.ctime > since for entry in found)

    return Live(live.look, same_as_staged, same_tree, git_moved)


def _same_content(live: Source, staged: Source, change: Change, ours: Entry) -> bool:
    assert change.staged is not None
    if ours.size != change.staged.size:
        return False
    try:
        theirs = staged.open(change.path)
    except OSError:
        return False
    try:
        mine = live.open(change.path)
    except OSError:
        os.close(theirs)
        return False
    try:
        return same_bytes(mine, theirs)
    finally:
        os.close(mine)
        os.close(theirs)


def _tree_is(root: int, path: bytes, expected: Mapping[bytes, Entry]) -> bool:
    pending, seen = [path], 0
    while pending:
        current = pending.pop()
        with directory(root, current) as opened:
            found = entries(opened)
        for name, entry in found.items():
            at = current + b"/" + name
            if not same_stamp(expected.get(at), entry):
                return False
            seen += 1
            if entry.kind == "directory":
                pending.append(at)
    return seen == len(expected)


def _filesystem_magic(path: bytes) -> int:
    """f_type of statfs(2): its first word. Python's os.statvfs has no such field."""
    import ctypes

    buffer = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None, use_errno=True).statfs(path, buffer) < 0:
        return 0
    return int.from_bytes(buffer.raw[:8], "little")
