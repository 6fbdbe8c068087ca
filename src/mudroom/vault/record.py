"""Records of forks and applies, written atomically.

A record is a named tuple below, encoded as MessagePack. The file is written under another name, fsynced and renamed.
``format`` is the first field; a file with a newer format is refused with both format numbers.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal, NamedTuple, TypeVar

import msgspec

from mudroom.core.merge.merge import PartialChoice
from mudroom.core.merge.operations import Op
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.stack import Checkpoint
from mudroom.errors import OUTDATED, UPGRADE, MudroomError
from mudroom.stage import disk, safe_open
from mudroom.vault.sync import sync_directory

FORMAT = 3
"""Format of ``ApplyRecord``."""
FORK_FORMAT = 3
"""Format of ``ForkRecord``."""


class ForkRecord(NamedTuple):
    """A fork after its last command. A fork without a record was cut off during its first command."""

    format: int
    name: str
    kind: str
    """``overlay`` or ``copy``."""
    command: tuple[bytes, ...]
    started: int
    """Nanoseconds since 1970."""
    exit_code: int
    """The command's own exit code, or 128 + signal if a signal ended it."""
    changeset: Changeset
    level: int | None = None
    """Level at which the command ran; None if it was not recorded."""


class JointNote(NamedTuple):
    """The operation of several vaults of which an apply is a part (vault/apply/joint.py)."""

    vault: bytes
    """Name of the first vault's directory, which is beside this vault's."""
    apply: str
    """The first vault's apply."""
    number: str
    """Identifies the operation."""
    following: Literal["ready", "done", "undoing", "undone", "redoing"]
    """State that the plan takes once the operation is decided."""


class ApplyRecord(NamedTuple):
    """An apply. The file's name tells its state: see vault/apply/transaction.py."""

    format: int
    name: str
    fork: str
    started: int
    project: bytes
    slots: bytes
    """Slot directory, on the project's file system."""
    contents: tuple[bytes, ...]
    """The fork's directories from which the slots are filled; the first that has a path counts. Files are moved from a
    single directory, but copied from several, because sealed layers are never changed."""
    ops: tuple[Op, ...]
    trees: dict[int, dict[bytes, Entry]]
    """For each slot with a whole directory: every entry below it, by its path in the project."""
    differing: tuple[bytes, ...] = ()
    """Paths whose landed content differs from the fork's (``Landing.differing``)."""
    parts: tuple[tuple[bytes, PartialChoice], ...] = ()
    """Files that land only in this part."""
    dropped: tuple[bytes, ...] = ()
    """Paths in the fork where the project's version was chosen (``Landing.dropped``)."""
    checkpoint: Checkpoint | None = None
    """The fork before the apply, if changes were dropped (vault/apply/discarded_side.py)."""
    fork_created: int = 0
    """When the fork was made, in nanoseconds since 1970: its name may be another's later. 0: not recorded."""
    refused: tuple[Op, ...] = ()
    """Operations of the last undo that were not done, because the project had changed since."""
    joint: JointNote | None = None
    """None: the apply is of this vault alone."""


_Record = TypeVar("_Record", ForkRecord, ApplyRecord)


def save(path: bytes, record: ForkRecord | ApplyRecord, *, durable: bool) -> None:
    """Write a record as ``write`` does. An unchanged record is not written, so that its watchers are not woken without
    need."""
    data = msgspec.msgpack.encode(record)
    if durable or not _holds(path, data):
        write(path, data, durable=durable)


def write(path: bytes, data: bytes, *, durable: bool) -> None:
    """Write a file atomically: a reader finds the old content or the new one. ``durable``: also after a power loss, and
    the new one as soon as this returns."""
    beside = path + b".new"
    with suppress(FileNotFoundError):
        os.unlink(beside)  # left by a crash, or a link made by a container's user: never write through it
    with os.fdopen(safe_open.open_regular(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as stream:
        stream.write(data)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
    disk.rename_path(beside, path)
    if durable:
        sync_directory(os.path.dirname(path))


def _holds(path: bytes, data: bytes) -> bool:
    try:
        return safe_open.read(path) == data
    except (OSError, MudroomError):
        return False  # missing or damaged: write it


def load(path: bytes, kind: type[_Record]) -> _Record:
    """Read a record. Raise FileNotFoundError, or MudroomError if the record is damaged or has another format."""
    data = safe_open.read(path)
    try:
        record = msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        _require_format(path, format_of(data), kind)
        raise MudroomError(f"{os.fsdecode(path)} is damaged: {error}", "other forks are not affected") from error
    _require_format(path, record.format, kind)
    return record


def format_of(data: bytes) -> int:
    """Return the format number of a record that cannot be decoded; 0 if it has none."""
    try:
        fields = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return 0
    return fields[0] if isinstance(fields, list) and fields and isinstance(fields[0], int) else 0


def _require_format(path: bytes, file_format: int, kind: type[ForkRecord | ApplyRecord]) -> None:
    known = FORK_FORMAT if kind is ForkRecord else FORMAT
    if file_format not in (0, known):
        hint = UPGRADE if file_format > known else OUTDATED
        raise MudroomError(f"{os.fsdecode(path)} has format {file_format}, this mudroom knows {known}", hint)
