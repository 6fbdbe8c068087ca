"""What a record comes to for somebody who looks at it: rows, tags, a fingerprint, each worked out once.

Of a fork's record that is kept (``stage/file_cache.py``) this is kept with it. What depends on the project, too, is
looked at again each time: which rows the project's ``.gitignore`` files name is only taken from before if each of these
files is still the very file that was read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from mudroom.core.tree.change import Change, Changeset, Summary, counted_changes, summarise
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import ROOT, climb, parent
from mudroom.core.tree.review_tags import tags_of
from mudroom.core.tree.similar_renames import Moves
from mudroom.stage.exclude import ignored
from mudroom.stage.reader import FileReader
from mudroom.stage.source import OpenSource, Source, read_all
from mudroom.stage.stamp import is_settled
from mudroom.vault.forks.review import fingerprint
from mudroom.vault.record import ForkRecord
from mudroom.vault.store.store import Vault

T = TypeVar("T")
_IGNORE_LIMIT = 1 << 20
"""Bytes of a ``.gitignore``; a larger one says nothing."""


class TaggedChange:
    """Rows, and by which tags each of them is found: as the ``.gitignore`` files were that were ``asked``."""

    def __init__(self, rows: tuple[Change, ...], out: frozenset[bytes]) -> None:
        self.rows = rows
        self.tags: Mapping[bytes, tuple[str, ...]] = {
            change.path: tags_of(change, ignored=change.path in out) for change in rows
        }
        self._lock = threading.Lock()
        self._made: dict[Any, Any] = {}

    def once(self, make: Callable[[TaggedChange], T]) -> T:
        """``make(self)``, which depends on nothing else, and has a name of its own."""
        with self._lock:
            if make not in self._made:
                self._made[make] = make(self)
            found: T = self._made[make]
            return found


class _Asked(NamedTuple):
    files: Mapping[bytes, Entry | None]
    """What was at the path of each ``.gitignore`` that could say something, and where there is no directory for it."""
    tagged: TaggedChange


class RecordView:
    def __init__(self, record: ForkRecord | None) -> None:
        """None: the fork holds nothing yet."""
        self.changeset = record.changeset if record is not None else Changeset()
        self._asked: _Asked | None = None
        self._moves: Moves | None = None
        self._moving = threading.Lock()

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.changeset)

    @cached_property
    def rows(self) -> tuple[Change, ...]:
        """The changes that a person counts."""
        return tuple(counted_changes(self.changeset.changes))

    @cached_property
    def summary(self) -> Summary:
        return summarise(self.changeset.changes)

    @cached_property
    def by_path(self) -> Mapping[bytes, Change]:
        """All of them, those of what has moved away as well."""
        return {change.path: change for change in self.changeset.changes}

    @contextmanager
    def moves(self, hides: Callable[[bytes], bool]) -> Iterator[Moves]:
        """Looked for when somebody asks, and then kept: what ``hides`` says may be something else by now, and is for
        the asker to look at. Of two who ask at once, one reads."""
        with self._moving:
            if self._moves is None:
                self._moves = Moves(self.changeset.changes, hides)
            yield self._moves

    def tagged(self, vault: Vault) -> TaggedChange:
        """As the project is now."""
        with OpenSource(vault.project) as project:
            asked, now = self._asked, time.time_ns()
            if asked is not None and all(project.look(path) == entry for path, entry in asked.files.items()):
                return asked.tagged
            files: dict[bytes, Entry | None] = {}
            found = TaggedChange(self.rows, _ignored(project, self.rows, files))
            settled = all(entry is None or is_settled(entry.ctime, now) for entry in files.values())
            self._asked = _Asked(files, found) if settled else None
            return found


def gist_of(reading: FileReader, record: ForkRecord | None) -> RecordView:
    """``reading``: that the record was read by."""
    return reading.come_to(record, RecordView) if record is not None else RecordView(None)


def _ignored(project: Source, changes: tuple[Change, ...], asked: dict[bytes, Entry | None]) -> frozenset[bytes]:
    """Which of these paths the project's own ``.gitignore`` files name, or a directory above. What a fork has made of
    those files does not count. ``asked``: is told of each file that was looked for."""

    absent: dict[bytes, bool] = {ROOT: False}

    def is_absent(directory: bytes) -> bool:
        """Whether the project has nothing there; the first on the way that it has not is asked for again each time."""
        for one in climb(directory, absent):
            absent[one] = absent[parent(one)] or project.look(one) is None
            if absent[one] and not absent[parent(one)]:
                asked[one] = None
        return absent[directory]

    def look(path: bytes) -> Entry | None:
        if is_absent(parent(path)):
            return None  # what a fork has made may be thousands of directories
        asked[path] = found = project.look(path)
        return found

    def read(path: bytes) -> bytes | None:
        try:
            return read_all(project, path, _IGNORE_LIMIT)
        except OSError:
            return None

    out = ignored(look, read)
    within: dict[bytes, bool] = {ROOT: False}

    def is_within(directory: bytes) -> bool:
        for one in climb(directory, within):
            within[one] = within[parent(one)] or out(one, _DIRECTORY)
        return within[directory]

    found: list[bytes] = []
    for place, some in groupby(changes, lambda change: parent(change.path)):  # most are where the one before is
        inside = is_within(place)
        found += [change.path for change in some if inside or out(change.path, change.entry)]
    return frozenset(found)


_DIRECTORY = Entry("directory", 0o755, 0, b"", 0, 0, 1, 0, 0, 0, 0)
