"""Files of a fork that a crash of the machine has cut off.

A file system with delayed allocation keeps the names of new files and loses their content: they are empty afterwards.
No command has done that, so such a file does not land unless it is named (``with_losses``). It is found once in each
boot: it is shorter than the fork's record says, or it is empty and the machine crashed while the command ran, or it is
a text that ends with zeros: ext4 journals a size when a write is submitted, or at once if a block has room for it
(``mpage_map_and_submit_extent``, ``ext4_da_write_end``, fs/ext4/inode.c). A name may be lost, too: a file is gone, or
one that the command removed is there again. That is told, as is the crash itself.

    forks/<name>/lost       by path: the recorded size or _ZEROS, and inode, size and mtime as they were found; of a
                            name that is lost _GONE or _AGAIN, and zeros; by the empty path: a command was cut off
    forks/<name>/examined   empty: its mtime is when the files were compared with the record
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from mudroom.core.clock import CommandStart
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Change, Changeset, Remark
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import PROTECTED
from mudroom.core.tree.path import ancestors
from mudroom.core.tree.quote import show_words
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.union import Union, staged_source
from mudroom.stage.source import DirectorySource, Source
from mudroom.vault.moment import is_of_earlier_boot, running
from mudroom.vault.store.fork import Fork, mount_note

LOST, _EXAMINED = b"/lost", b"/examined"
SHORT = "was cut off by a crash of the machine ({left:,} of {size:,} bytes are left): it lands only if it is named"
EMPTY = "is empty after a crash of the machine that cut its command off: it lands only if it is named"
GONE = "was taken by a crash of the machine: it is not among the changes any more"
AGAIN = "was removed by the command, and is there again after a crash of the machine"
ZEROS = "ends with zeros after a crash of the machine: it lands only if it is named"
CUT = "a crash of the machine cut a command of this fork off: what it wrote last can be missing"
BACK = "; mudroom rollback goes back to a checkpoint"
_UNKNOWN = -1
"""In place of a recorded size."""
_GONE, _AGAIN, _ZEROS = -2, -3, -4
_UNSYNCED = 60 * 10**9
"""Nanoseconds after which the kernel has written a file (``dirty_expire_centisecs``, twice)."""
_HEAD = 8000
"""Bytes at the beginning, by which git tells a text from a binary file."""
_Row = tuple[int, int, int, int]


def find_losses(fork: Fork) -> None:
    """Compare the files with a record of an earlier boot. If some are shorter, the fork counts as interrupted, so that
    they are collected as lost. Hold the fork's lock; no command may be running."""
    if is_of_earlier_boot(fork.path + _EXAMINED) is False:
        return
    _empty_zeros(fork)
    record = fork.record
    if record is not None and fork.contents and fork.interrupted is None and mount_note(fork) is None:
        apart = fork.shown_at((fork.state.upper, *fork.state.layers))

        def is_apart(path: bytes, row: _Row) -> bool:
            """Shown secrets are not in the fork's own layers, nor is their removal."""
            if not apart or row[0] == _AGAIN:
                return bool(apart)
            return any(os.path.lexists(apart + b"/tree/" + each) for each in (path, *ancestors(path)))

        since = record.started - _UNSYNCED
        with _shown(fork) as shown:
            rows = ((change.path, _lost(change, shown, since)) for change in record.changeset.changes)
            lost = {path: row for path, row in rows if row is not None and not is_apart(path, row)}
        if lost:
            _add(fork, lost)
            fork.begin(CommandStart(record.started))
    os.close(disk.open_path(fork.path + _EXAMINED, os.O_WRONLY | os.O_CREAT | disk.O_CLOEXEC, 0o600))
    os.utime(fork.path + _EXAMINED)


class _Everything(DirectorySource):
    """A tree in which each name is there: below layers, a name that these do not hide is found in it."""

    ENTRY = Entry("device", 0, 0, b"", 0, 0, 1, 0, 0, 0, 0)

    def __init__(self) -> None:
        super().__init__(-1)

    def look(self, _path: bytes) -> Entry | None:
        return self.ENTRY


@contextmanager
def _shown(fork: Fork) -> Iterator[Source]:
    """Yield what a fork says of a path: its entry, None if it is removed, or ``_Everything.ENTRY`` if the fork does not
    say anything."""
    with staged_source(fork.contents) if fork.has_copy else Union(fork.contents, _Everything()) as shown:
        yield shown


def _empty_zeros(fork: Fork) -> None:
    """Empty the records that have their size, but only zeros (``Fork.has_lost_record``)."""
    for path in (fork.record_path, *(fork.layer(name) + b"/record" for name in fork.state.layers)):
        with suppress(FileNotFoundError), open(safe_open.open_regular(path, os.O_RDWR), "r+b") as stream:
            if stream.read(1) == b"\0":
                stream.truncate(0)


def _lost(change: Change, shown: Source, since: int) -> _Row | None:
    recorded, entry = change.staged, shown.look(change.path)
    if recorded is None:
        return (_AGAIN, 0, 0, 0) if entry is not None else None
    if entry is None or entry is _Everything.ENTRY:
        return _GONE, 0, 0, 0
    if not recorded.kind == entry.kind == "file":
        return None
    if entry.size < recorded.size:
        return recorded.size, *_stamp(entry)
    has_zeros = entry.size and entry.ctime > since and _ends_with_zeros(shown.open(change.path), entry.size)
    return (_ZEROS, *_stamp(entry)) if has_zeros else None


def _ends_with_zeros(descriptor: int, size: int) -> bool:
    """Return whether a text ends with zeros. A binary file has others. Close the descriptor."""
    with Descriptor(descriptor):
        is_zero = disk.pread(descriptor, 1, size - 1) == b"\0"
        return is_zero and b"\0" not in disk.pread(descriptor, _HEAD, 0).rstrip(b"\0")


def is_cut_off_by_crash(fork: Fork, started: CommandStart) -> bool:
    """Return whether the machine was started after this command, by the wall clock, or has lost the fork's record or
    the note of the command's start, which were not on disk."""
    if started.boot:
        return started.boot < started.time < time.time_ns() - running()
    return fork.has_lost_record or (not started.time and is_of_earlier_boot(fork.path + b"/running") is True)


def add_empty(fork: Fork, changes: Iterable[Change]) -> None:
    """Note that a crash of the machine has cut a command off, and its empty files."""
    found = ((change.path, change.staged, change.base) for change in changes)
    empty = {
        path: (_UNKNOWN, *_stamp(staged))
        for path, staged, base in found
        if staged is not None and staged.kind == "file" and not staged.size and (base is None or base.size)
    }
    _add(fork, {b"": (_UNKNOWN, 0, 0, 0), **empty})


def with_losses(fork: Fork, changeset: Changeset) -> Changeset:
    """Return the changeset with the lost files protected and told. One that was written again is not lost."""
    lost, found = _load(fork), {change.path for change in changeset.changes}
    still = {
        change.path
        for change in changeset.changes
        if change.path in lost and change.staged is not None and _stamp(change.staged) == lost[change.path][1:]
    }
    if (
        lost and os.stat(fork.path + b"/state").st_mtime_ns < os.stat(fork.path + LOST).st_mtime_ns
    ):  # no checkpoint since
        still |= {path for path, row in lost.items() if not path or (row[0] in (_GONE, _AGAIN) and path not in found)}
    if not still:
        return changeset
    changes = tuple(
        change._replace(flags=(*change.flags, PROTECTED))
        if change.path in still and change.staged is not None and PROTECTED not in change.flags
        else change
        for change in changeset.changes
    )
    remarks = (Remark(path, _told(lost[path], bool(fork.state.checkpoints))) for path in sorted(still))
    return changeset._replace(changes=changes, remarks=(*changeset.remarks, *remarks))


def _told(row: _Row, has_checkpoints: bool) -> str:
    words = {_UNKNOWN: EMPTY if row[1] else CUT, _GONE: GONE, _AGAIN: AGAIN, _ZEROS: ZEROS}
    text = words.get(row[0]) or SHORT.format(left=row[2], size=row[0])
    return text + (BACK if has_checkpoints else "")


def renew(fork: Fork, look: Callable[[bytes], Entry | None]) -> None:
    """Let the cut off files be known by the inodes that they have in a copy of the fork. ``look``: its files."""
    rows = {}
    for path, row in _load(fork).items():
        entry = look(path) if row[1] else None
        is_same = entry is not None and (entry.size, entry.mtime) == row[2:]
        rows[path] = (row[0], *_stamp(entry)) if is_same and entry is not None else row
    if rows:
        _add(fork, rows)


def _stamp(entry: Entry) -> tuple[int, int, int]:
    return entry.inode, entry.size, entry.mtime


def _load(fork: Fork) -> dict[bytes, _Row]:
    hint = f"{show_words([b'rm', fork.path + LOST])} makes files that a crash cut off land as they are"
    return safe_open.read_rows(fork.path + LOST, dict[bytes, _Row], hint)


def _add(fork: Fork, rows: dict[bytes, _Row]) -> None:
    import msgspec

    safe_open.replace(fork.path + LOST, msgspec.msgpack.encode({**_load(fork), **rows}))
