"""Files of a fork that a crash of the machine has cut off.

A file system with delayed allocation keeps the names of new files and loses their content: they are empty afterwards.
No command has done that, so such a file does not land unless it is named (``with_losses``). It is found once in each
boot: it is shorter than the fork's record says, or it is empty and the machine crashed while the command ran.

    forks/<name>/lost       by path: the recorded size, and inode, size and mtime as they were found
    forks/<name>/examined   empty: its mtime is when the files were compared with the record
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from mudroom.core.clock import CommandStart
from mudroom.core.tree.change import Change, Changeset, Remark
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import PROTECTED
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.union import staged_source
from mudroom.vault.moment import is_of_earlier_boot, running
from mudroom.vault.store.fork import Fork, mount_note

LOST, _EXAMINED = b"/lost", b"/examined"
SHORT = "was cut off by a crash of the machine ({left:,} of {size:,} bytes are left): it lands only if it is named"
EMPTY = "is empty after a crash of the machine that cut its command off: it lands only if it is named"
BACK = "; mudroom rollback goes back to a checkpoint"
_UNKNOWN = -1
"""In place of a recorded size."""
_Row = tuple[int, int, int, int]


def find_losses(fork: Fork) -> None:
    """Compare the files with a record of an earlier boot. If some are shorter, the fork counts as interrupted, so that
    they are collected as lost. Hold the fork's lock; no command may be running."""
    if is_of_earlier_boot(fork.path + _EXAMINED) is False:
        return
    record = fork.record
    if record is not None and fork.contents and fork.interrupted is None and mount_note(fork) is None:
        lost: dict[bytes, _Row] = {}
        with staged_source(fork.contents) as staged:
            for change in record.changeset.changes:
                if change.staged is not None and change.staged.kind == "file" and change.staged.size:
                    entry = staged.look(change.path)
                    if entry is not None and entry.kind == "file" and entry.size < change.staged.size:
                        lost[change.path] = (change.staged.size, *_stamp(entry))
        if lost:
            _add(fork, lost)
            fork.begin(CommandStart(record.started))
    os.close(disk.open_path(fork.path + _EXAMINED, os.O_WRONLY | os.O_CREAT | disk.O_CLOEXEC, 0o600))
    os.utime(fork.path + _EXAMINED)


def is_cut_off_by_crash(started: CommandStart) -> bool:
    """Return whether the machine was started after this command, by the wall clock."""
    return 0 < started.boot < started.time < time.time_ns() - running()


def add_empty(fork: Fork, changes: Iterable[Change]) -> None:
    """Note the empty files of a command that a crash of the machine has cut off."""
    found = ((change.path, change.staged, change.base) for change in changes)
    empty = {
        path: (_UNKNOWN, *_stamp(staged))
        for path, staged, base in found
        if staged is not None and staged.kind == "file" and not staged.size and (base is None or base.size)
    }
    if empty:
        _add(fork, empty)


def with_losses(fork: Fork, changeset: Changeset) -> Changeset:
    """Return the changeset with the lost files protected and told. One that was written again is not lost."""
    lost = _load(fork)
    still = {
        change.path
        for change in changeset.changes
        if change.path in lost and change.staged is not None and _stamp(change.staged) == lost[change.path][1:]
    }
    if not still:
        return changeset
    changes = tuple(
        change._replace(flags=(*change.flags, PROTECTED))
        if change.path in still and PROTECTED not in change.flags
        else change
        for change in changeset.changes
    )
    remarks = (Remark(path, _told(lost[path], bool(fork.state.checkpoints))) for path in sorted(still))
    return changeset._replace(changes=changes, remarks=(*changeset.remarks, *remarks))


def _told(row: _Row, has_checkpoints: bool) -> str:
    text = EMPTY if row[0] == _UNKNOWN else SHORT.format(left=row[2], size=row[0])
    return text + (BACK if has_checkpoints else "")


def _stamp(entry: Entry) -> tuple[int, int, int]:
    return entry.inode, entry.size, entry.mtime


def _load(fork: Fork) -> dict[bytes, _Row]:
    try:
        with open(fork.path + LOST, "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        return {}
    import msgspec

    try:
        return msgspec.msgpack.decode(data, type=dict[bytes, _Row])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        hint = f"{show_words([b'rm', fork.path + LOST])} makes files that a crash cut off land as they are"
        raise MudroomError(f"{os.fsdecode(fork.path + LOST)} is damaged: {error}", hint) from error


def _add(fork: Fork, rows: dict[bytes, _Row]) -> None:
    import msgspec

    safe_open.replace(fork.path + LOST, msgspec.msgpack.encode({**_load(fork), **rows}))
