"""Records of tries (``mudroom try``), with their attempts.

    attempts/<name>/record    MessagePack, ext/attempts/value.py:TryRecord; replaced by rename
                    lock      flock(2): held by the process that runs the try

Rules:
1. mkdir(2) makes the name, so two tries never share a name. It is not used again while its record is kept.
2. A try without an end whose lock is free was killed: its running attempts are read as ``interrupted``. Their forks are
   in the vault; their changes are collected when they are next looked at, as after any interrupted command.
3. A damaged record affects only its own try.
4. The newest ``KEPT`` tries are kept. A record's reports have at most ``REPORTS`` bytes together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.attempts.value import FORMAT, AttemptRecord, TryRecord, best_of
from mudroom.stage import disk, safe_open
from mudroom.vault.lock import LOCK_EX, LOCK_SH, flock, try_lock
from mudroom.vault.record import format_of, write
from mudroom.vault.sync import sync_directory

KEPT = 100
REPORT = 1 << 16
"""Bytes kept from a report: the last ones."""
REPORTS = 1 << 21
_LARGEST = 1 << 26
"""Limit for reading a record, in bytes: 1,000 attempts with commands of 32 KiB need half."""
_DIRECTORY = b"/attempts"


class Tries(NamedTuple):
    """A vault's tries."""

    records: tuple[TryRecord, ...]
    """Oldest first."""
    damaged: tuple[str, ...]
    """Names of tries with unreadable records."""


class TryLock:
    """The lock held while a try runs. Owner: the thread that runs it."""

    def __init__(self, name: str, place: bytes, descriptor: int) -> None:
        self.name = name
        self.place = place
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def begin(vault: bytes) -> TryLock:
    """Make a directory for a new try and hold its lock."""
    above = vault + _DIRECTORY
    os.makedirs(above, mode=0o700, exist_ok=True)
    number = max((int(name[1:]) for name in _names(vault)), default=0)
    while True:
        number += 1
        name = f"t{number}"
        place = above + b"/" + name.encode()
        with suppress(FileExistsError):
            os.mkdir(place, 0o700)
            for made in (above, vault):
                sync_directory(made)
            break
    descriptor = disk.open_path(place + b"/lock", os.O_RDWR | os.O_CREAT | disk.O_NOFOLLOW | disk.O_CLOEXEC, 0o600)
    flock(descriptor, LOCK_EX)
    return TryLock(name, place, descriptor)


def save(vault: bytes, record: TryRecord) -> None:
    """Write a record atomically, with its reports cut to their bounds."""
    data = msgspec.msgpack.encode(record._replace(attempts=_bounded(record.attempts)))
    path = _place(vault, record.name) + b"/record"
    write(path, data, durable=True)


def load(vault: bytes, name: str) -> TryRecord:
    """Return a try's record. Raise UsageError if there is none, MudroomError if it is damaged or has a newer format."""
    place = _place(vault, name) if _is_name(name) else b""
    try:
        data = _read(place + b"/record") if place else None
    except FileNotFoundError:
        data = None
    if data is None:
        raise UsageError(f"there is no try named {name}", "mudroom try ls shows the tries of this project")
    hint = f"mudroom try discard --all {name} removes its record; its forks are in mudroom ls"
    try:
        record = msgspec.msgpack.decode(data, type=TryRecord)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        if format_of(data) <= FORMAT:
            raise MudroomError(f"the record of the try {name} is damaged: {error}", hint) from error
        raise MudroomError(f"the record of the try {name} is of a newer mudroom", "upgrade mudroom") from error
    if record.format > FORMAT:
        raise MudroomError(f"the record of the try {name} is of a newer mudroom", "upgrade mudroom")
    if record.name != name:
        raise MudroomError(f"the record of the try {name} is damaged: it names {record.name}", hint)
    return record if record.ended or is_running(vault, name) else cut_off(record)


def tries(vault: bytes) -> Tries:
    """Return all readable tries, and the names of damaged ones."""
    records, damaged = [], []
    for name in sorted(_names(vault), key=lambda name: int(name[1:])):
        try:
            records.append(load(vault, name))
        except UsageError:
            continue  # it is just being made or removed
        except (MudroomError, OSError):
            damaged.append(name)
    return Tries(tuple(records), tuple(damaged))


def is_running(vault: bytes, name: str) -> bool:
    """Return whether a process runs this try now."""
    try:
        descriptor = disk.open_path(_place(vault, name) + b"/lock", os.O_RDWR | disk.O_NOFOLLOW | disk.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, LOCK_SH)
    finally:
        os.close(descriptor)


def cut_off(record: TryRecord) -> TryRecord:
    """Return the record of a try whose process is gone, with the best attempt among those that had ended."""
    rows = tuple(
        attempt._replace(state="interrupted") if attempt.state == "running" else attempt for attempt in record.attempts
    )
    best = best_of(rows, record.score)
    return record._replace(attempts=rows, end="interrupted", best=best.number if best is not None else 0)


def remove(vault: bytes, name: str) -> None:
    """Remove a record, but not its forks."""
    place = _place(vault, name)
    # the lock goes last: until then the try has a name
    for file in (b"/record.new", b"/record", b"/lock"):
        with suppress(FileNotFoundError):
            os.unlink(place + file)
    with suppress(FileNotFoundError):
        os.rmdir(place)


def expire(vault: bytes) -> None:
    """Remove the oldest records beyond ``KEPT``, except those of running tries."""
    names = sorted(_names(vault), key=lambda name: int(name[1:]))
    for name in names[: max(len(names) - KEPT, 0)]:
        if not is_running(vault, name):
            remove(vault, name)


def _bounded(attempts: Sequence[AttemptRecord]) -> tuple[AttemptRecord, ...]:
    most = min(REPORT, REPORTS // max(len(attempts), 1))
    return tuple(attempt._replace(report=attempt.report[-most:]) for attempt in attempts)


def _place(vault: bytes, name: str) -> bytes:
    return vault + _DIRECTORY + b"/" + name.encode("ascii")


def _names(vault: bytes) -> list[str]:
    try:
        return [name for name in map(os.fsdecode, os.listdir(vault + _DIRECTORY)) if _is_name(name)]
    except FileNotFoundError:
        return []


def _is_name(name: str) -> bool:
    return name[:1] == "t" and name.isascii() and name[1:].isdigit() and len(name) <= 10 and name[1] != "0"


def _read(path: bytes) -> bytes:
    with os.fdopen(safe_open.open_regular(path), "rb") as stream:
        data = stream.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise MudroomError(f"{show(path)} has more than {_LARGEST:,} bytes")
    return data
