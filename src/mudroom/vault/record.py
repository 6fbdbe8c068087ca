"""What the vault writes about forks and applies, and how it gets to disk whole.

Everything is MessagePack of the named tuples below, in a file that is written beside, fsynced and renamed. ``format``
comes first in each; a file of a newer format is refused, naming the version that wrote it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple, TypeVar

import msgspec

from mudroom.core.merge.merge import PartialChoice
from mudroom.core.merge.operations import Op
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.stack import Checkpoint
from mudroom.errors import MudroomError
from mudroom.stage import safe_open

FORMAT = 2


class ForkRecord(NamedTuple):
    """A fork after its last command. A fork without one was left behind in the middle of a command."""

    format: int
    name: str
    kind: str
    """``overlay`` or ``copy``."""
    command: tuple[bytes, ...]
    started: int
    """Nanoseconds since 1970."""
    exit_code: int
    changeset: Changeset
    level: int | None = None
    """At which the command ran; None: nobody has written it down."""


class ApplyRecord(NamedTuple):
    """One apply. The file's name tells how far it got: see vault/apply/transaction.py."""

    format: int
    name: str
    fork: str
    started: int
    project: bytes
    slots: bytes
    """The directory of the slots, on the project's file system."""
    contents: tuple[bytes, ...]
    """The fork's directories that the staged files come from; the first that has one counts. From a single one files
    are moved, from several they are copied: sealed layers are never changed."""
    ops: tuple[Op, ...]
    trees: dict[int, dict[bytes, Entry]]
    """For whole directories, by slot: every entry below, by its path in the project."""
    differing: tuple[bytes, ...] = ()
    """Paths in the fork that land, and leave the project other than the fork has them (``Landing.differing``)."""
    parts: tuple[tuple[bytes, PartialChoice], ...] = ()
    """Files of which only this part lands."""
    dropped: tuple[bytes, ...] = ()
    """Paths of the fork at which the project's was decided for (``Landing.dropped``)."""
    checkpoint: Checkpoint | None = None
    """What the fork was before the apply, if something was dropped (vault/apply/discarded_side.py)."""


_Record = TypeVar("_Record", ForkRecord, ApplyRecord)


def save(path: bytes, record: ForkRecord | ApplyRecord, *, durable: bool) -> None:
    """Write a record so that a reader finds the old one or the new one, never half of it. One that says the same as
    what is there is not written: whoever watches the file would look again, and find nothing new."""
    data = msgspec.msgpack.encode(record)
    if not durable and _holds(path, data):
        return
    beside = path + b".new"
    with suppress(FileNotFoundError):
        os.unlink(beside)  # of a crash, or of who is in a container: it is not written through
    with os.fdopen(safe_open.open_regular(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as stream:
        stream.write(data)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
    os.rename(beside, path)
    if durable:
        sync_directory(os.path.dirname(path))


def _holds(path: bytes, data: bytes) -> bool:
    try:
        return safe_open.read(path) == data
    except (OSError, MudroomError):
        return False  # there is none, or what is there is none: that is replaced


def load(path: bytes, kind: type[_Record]) -> _Record:
    """Read a record. Raises FileNotFoundError; MudroomError if it is damaged or of a newer format."""
    data = safe_open.read(path)
    try:
        found = msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        _require_format(path, _format_of(data))
        raise MudroomError(f"{os.fsdecode(path)} is damaged: {error}", "other forks are not affected") from error
    _require_format(path, found.format)
    return found


def _format_of(data: bytes) -> int:
    """What a record that this mudroom cannot read says of itself; 0 if nothing."""
    try:
        found = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return 0
    return found[0] if isinstance(found, list) and found and isinstance(found[0], int) else 0


def _require_format(path: bytes, found: int) -> None:
    if found > FORMAT:
        raise MudroomError(f"{os.fsdecode(path)} has format {found}, this mudroom knows {FORMAT}", "upgrade mudroom")


def sync_directory(path: bytes) -> None:
    """Make the names in a directory durable: fsync(2) of a file does not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
