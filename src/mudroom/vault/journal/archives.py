"""Journal archives: older events that were moved out of the database.

    journal/<first>-<last>.jsonl.gz     by their event numbers, nine digits or more
    journal/new                         an archive that is being written
    journal/lock                        flock(2): the writer

The first line is ``{"format": 1, "previous": DIGEST}``. Each further line is one event, as a list. An archive is valid
only when the database says that it starts after the archive's last event (table ``origin``).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator

from mudroom.core.journal.event import ChainHead, Event
from mudroom.core.text.json_text import to_json_text
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import disk
from mudroom.typing import NamedTuple
from mudroom.vault.sync import sync_directory

_FORMAT = 1
_NAME = regex(rb"(\d{9,19})-(\d{9,19})\.jsonl\.gz")
_LEVEL = 6
WINDOW = 16 << 20
"""Bytes in lines held in memory when an archive is read from its end."""
_AT_ONCE = 1000
"""Events parsed at a time; parsed events take more memory than lines."""
_DAMAGE = (EOFError, OSError, ValueError, RecursionError)
"""Exceptions raised while reading a damaged archive."""
_TYPES = (int, int, str, str, str, str)


class JournalArchive(NamedTuple):
    first: int
    last: int
    path: bytes


class DamagedArchive(MudroomError):
    """A damaged archive. ``number``: the first event that cannot be read."""

    def __init__(self, path: bytes, number: int, why: str) -> None:
        super().__init__(f"the archive {show(path)} of the journal is damaged: {why}")
        self.number = number


def archives(directory: bytes, upto: int) -> list[JournalArchive]:
    """Return the archives with events up to that number, oldest first."""
    return [archive for archive in _list(directory) if archive.last <= upto]


def _list(directory: bytes) -> list[JournalArchive]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    return sorted(JournalArchive(int(match[1]), int(match[2]), directory + b"/" + match[0]) for match in matches)


def read_archive(archive: JournalArchive) -> Iterator[Event]:
    """Yield the archive's events. Raise DamagedArchive if they are malformed or end too early."""
    number = archive.first
    try:
        for line in _lines(archive):
            event = _event(line)
            number = event.number + 1
            yield event
    except _DAMAGE as error:
        raise DamagedArchive(archive.path, number, str(error)) from error
    if number != archive.last + 1:
        raise DamagedArchive(archive.path, number, f"it ends before event {archive.last}")


def read_back(archive: JournalArchive, before: int) -> Iterator[list[Event]]:
    """Yield lists of the archive's events before that number, newest first.

    gzip can only be unpacked from the beginning, which is done once for each ``WINDOW``: the whole archive may be
    large, and usually only its end is needed. Raise DamagedArchive as ``read_archive`` does, for the part that is read.
    """
    before = min(before, archive.last + 1)
    while before > archive.first:
        number = archive.first
        window, held = deque[bytes](), 0
        try:
            for line in _lines(archive):
                number = int(line[1 : line.index(b",")])
                if number >= before:
                    break
                window.append(line)
                held += len(line)
                while held > WINDOW and len(window) > 1:
                    held -= len(window.popleft())
            else:
                if number < before - 1:
                    raise ValueError(f"it ends before event {archive.last}")
            if not window:
                raise ValueError("its events are not in order")
            while window:
                events = [_event(window.pop()) for _ in range(min(_AT_ONCE, len(window)))]
                before = number = events[-1].number
                yield events
        except _DAMAGE as error:
            raise DamagedArchive(archive.path, number, str(error)) from error


def _lines(archive: JournalArchive) -> Iterator[bytes]:
    """Yield the event lines. Raise DamagedArchive, or an exception from ``_DAMAGE``."""
    import gzip  # imported here: few callers write or read archives
    import zlib

    try:
        with gzip.open(archive.path, "rb") as stream:
            import json

            header = json.loads(stream.readline())
            if not isinstance(header, dict) or header.get("format") != _FORMAT:
                raise DamagedArchive(archive.path, archive.first, f"its format is not {_FORMAT}")
            yield from stream
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _event(line: bytes) -> Event:
    import json

    row = json.loads(line.decode("ascii"))
    if not isinstance(row, list) or tuple(map(type, row)) != _TYPES:
        raise ValueError("a line is not an event")
    return Event(*row)


def write_archive(directory: bytes, events: Iterable[Event], previous: ChainHead) -> JournalArchive:
    """Write a new archive, durably. ``events`` must not be empty. Hold ``journal/lock``.

    Raise OSError on a disk error; then no archive was made.
    """
    import gzip

    new = directory + b"/new"
    last = previous.number
    descriptor = disk.open_path(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | disk.O_CLOEXEC | disk.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0) as stream:
            stream.write(_line({"format": _FORMAT, "previous": previous.digest}))
            for event in events:
                stream.write(_line(list(event)))
                last = event.number
        file.flush()
        os.fsync(file.fileno())
    archive = JournalArchive(
        previous.number + 1, last, directory + b"/%09d-%09d.jsonl.gz" % (previous.number + 1, last)
    )
    disk.rename_path(new, archive.path)
    sync_directory(directory)
    return archive


def remove_invalid(directory: bytes, after: int, digest_at: dict[int, str]) -> None:
    """Before the events after ``after`` are archived, remove archives that already hold such events.

    An archive that was completed just before mudroom was killed ends with the same digest as the database; it is
    deleted. Any other archive is renamed so that it is no longer read. Hold ``journal/lock``.
    """
    for archive in _list(directory):
        if archive.last <= after:
            continue
        if _last_digest(archive) == digest_at.get(archive.last):
            os.unlink(archive.path)
        else:
            disk.rename_path(archive.path, _free(archive.path + b".other"))


def invalid_ends(directory: bytes, after: int) -> list[int]:
    """Return the last event numbers in archives that are not (yet) valid."""
    return [archive.last for archive in _list(directory) if archive.last > after]


def _last_digest(archive: JournalArchive) -> str | None:
    digest = None
    try:
        for event in read_archive(archive):
            digest = event.digest
    except DamagedArchive:
        return None
    return digest


def _free(path: bytes) -> bytes:
    number = 0
    while os.path.lexists(path + b"%d" % number):
        number += 1
    return path + b"%d" % number


def _line(value: object) -> bytes:
    return to_json_text(value, ",", ":").encode("ascii") + b"\n"
