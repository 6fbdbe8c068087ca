"""Archives of a journal: what has become too much, or too old, for its database.

    journal/<first>-<last>.jsonl.gz     by the numbers of their events, nine digits or more
    journal/new                         one that is being written
    journal/lock                        flock(2): who writes

The first line is ``{"format": 1, "previous": DIGEST}``, then each event is one line, a list of its fields. An archive
counts as soon as the database says that it starts after it (table ``origin``), and not before.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mudroom.core.journal.event import ChainHead, Event
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError

_FORMAT = 1
_NAME = re.compile(rb"(\d{9,19})-(\d{9,19})\.jsonl\.gz")
_LEVEL = 6
WINDOW = 16 << 20
"""Bytes of lines that are held when an archive is read from its end."""
_AT_ONCE = 1000
"""Events that are made of them at a time, which take more."""
_WRONG = (EOFError, OSError, ValueError, RecursionError)
"""What reading an archive raises that is none."""
_TYPES = (int, int, str, str, str, str)


class JournalArchive(NamedTuple):
    first: int
    last: int
    path: bytes


class DamagedArchive(MudroomError):
    """An archive that is not what was written. ``number``: of the first event that cannot be read."""

    def __init__(self, path: bytes, number: int, why: str) -> None:
        super().__init__(f"the archive {show(path)} of the journal is damaged: {why}")
        self.number = number


def archives(directory: bytes, upto: int) -> list[JournalArchive]:
    """Those of events up to that number, oldest first."""
    return [one for one in _all(directory) if one.last <= upto]


def _all(directory: bytes) -> list[JournalArchive]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    return sorted(JournalArchive(int(match[1]), int(match[2]), directory + b"/" + match[0]) for match in matches)


def read_archive(archive: JournalArchive) -> Iterator[Event]:
    """Its events. Raises Damaged where they end before they should, or are none."""
    number = archive.first
    try:
        for line in _lines(archive):
            event = _event(line)
            number = event.number + 1
            yield event
    except _WRONG as error:
        raise DamagedArchive(archive.path, number, str(error)) from error
    if number != archive.last + 1:
        raise DamagedArchive(archive.path, number, f"it ends before event {archive.last}")


def read_back(archive: JournalArchive, before: int) -> Iterator[list[Event]]:
    """Its events before that number, newest first, some at a time. It can only be unpacked from its beginning, so that
    is done once for each ``WINDOW``: all of it together may be large, and mostly the end is all that is wanted. Raises
    Damaged as ``read_archive``, of what is read."""
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
                found = [_event(window.pop()) for _ in range(min(_AT_ONCE, len(window)))]
                before = number = found[-1].number
                yield found
        except _WRONG as error:
            raise DamagedArchive(archive.path, number, str(error)) from error


def _lines(archive: JournalArchive) -> Iterator[bytes]:
    """Those of events. Raises one of ``_WRONG``, or Damaged."""
    import gzip  # for the few who archive, and who read so far back
    import zlib

    try:
        with gzip.open(archive.path, "rb") as stream:
            header = json.loads(stream.readline())
            if not isinstance(header, dict) or header.get("format") != _FORMAT:
                raise DamagedArchive(archive.path, archive.first, f"its format is not {_FORMAT}")
            yield from stream
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _event(line: bytes) -> Event:
    row = json.loads(line.decode("ascii"))
    if not isinstance(row, list) or tuple(map(type, row)) != _TYPES:
        raise ValueError("a line is no event")
    return Event(*row)


def write_archive(directory: bytes, events: Iterable[Event], previous: ChainHead) -> JournalArchive:
    """A new archive, on disk for certain when this returns. There has to be an event. Hold ``journal/lock``.

    Raises OSError as the disk does; there is no archive then."""
    import gzip

    new = directory + b"/new"
    last = previous.number
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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
    os.rename(new, archive.path)
    _sync(directory)
    return archive


def set_aside(directory: bytes, after: int, digest_at: dict[int, str]) -> None:
    """Before events that follow ``after`` are archived: archives that hold such events already. One that mudroom was
    killed before it counted (it ends with the very digest that the database has) goes; any other keeps, under a name
    by which it is not read. Hold ``journal/lock``."""
    for archive in _all(directory):
        if archive.last <= after:
            continue
        if _last_digest(archive) == digest_at.get(archive.last):
            os.unlink(archive.path)
        else:
            os.rename(archive.path, _free(archive.path + b".other"))


def uncounted(directory: bytes, after: int) -> list[int]:
    """The numbers at which archives end that do not count (yet)."""
    return [one.last for one in _all(directory) if one.last > after]


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
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"


def _sync(directory: bytes) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
