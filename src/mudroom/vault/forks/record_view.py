"""A record prepared for display: rows, tags and fingerprint, each computed once.

The view is cached together with its record (``stage/file_cache.py``). Results that also depend on the project are
checked on each use: the rows matched by the project's ``.gitignore`` files are reused only while all these files are
unchanged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

from mudroom.core.tree.change import Change, Changeset, Summary, counted_changes, summarise
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.review_tags import tags_of
from mudroom.core.tree.similar_renames import Moves
from mudroom.stage.ignored_paths import ignored_paths
from mudroom.stage.reader import FileReader
from mudroom.stage.source import OpenSource
from mudroom.stage.stamp import is_settled
from mudroom.typing import Any, NamedTuple, TypeVar
from mudroom.vault.forks.review import fingerprint
from mudroom.vault.record import ForkRecord
from mudroom.vault.store.store import Vault

T = TypeVar("T")


class TaggedRows:
    """Rows and their tags, computed with the ``.gitignore`` files that were read."""

    def __init__(self, rows: tuple[Change, ...], ignored_paths: frozenset[bytes]) -> None:
        self.rows = rows
        self.tags: Mapping[bytes, tuple[str, ...]] = {
            change.path: tags_of(change, ignored=change.path in ignored_paths) for change in rows
        }
        self._lock = threading.Lock()
        self._values: dict[Any, Any] = {}

    def once(self, make: Callable[[TaggedRows], T]) -> T:
        """Return ``make(self)``, computed once. ``make`` must be a named function that depends only on this object."""
        with self._lock:
            if make not in self._values:
                self._values[make] = make(self)
            value: T = self._values[make]
            return value


class _TaggedCache(NamedTuple):
    files: Mapping[bytes, Entry | None]
    """The entry at the path of each ``.gitignore`` that could match, and the absent directories."""
    tagged: TaggedRows


class RecordView:
    """A fork's record for display. ``_moving`` guards ``_moves``. ``_tagged`` is replaced as a whole."""

    def __init__(self, record: ForkRecord | None) -> None:
        """``record``: None if the fork has no record yet."""
        self.changeset = record.changeset if record is not None else Changeset()
        self._tagged: _TaggedCache | None = None
        self._moves: Moves | None = None
        self._moving = threading.Lock()

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.changeset)

    @cached_property
    def rows(self) -> tuple[Change, ...]:
        """The changes that are shown and counted."""
        return tuple(counted_changes(self.changeset.changes))

    @cached_property
    def summary(self) -> Summary:
        return summarise(self.changeset.changes)

    @cached_property
    def by_path(self) -> Mapping[bytes, Change]:
        """All changes, including the old paths of renames."""
        return {change.path: change for change in self.changeset.changes}

    @contextmanager
    def moves(self, hides: Callable[[bytes], bool]) -> Iterator[Moves]:
        """Yield the fork's moves. They are found once and kept, by one thread at a time.

        ``hides`` may have changed since, so the caller checks it again.
        """
        with self._moving:
            if self._moves is None:
                self._moves = Moves(self.changeset.changes, hides)
            yield self._moves

    def tagged(self, vault: Vault) -> TaggedRows:
        """Return the rows with their tags, computed with the present project."""
        with OpenSource(vault.source) as project:
            cached, now = self._tagged, time.time_ns()
            if cached is not None and all(project.look(path) == entry for path, entry in cached.files.items()):
                return cached.tagged
            files: dict[bytes, Entry | None] = {}
            tagged = TaggedRows(self.rows, ignored_paths(project, self.rows, files))
            settled = all(entry is None or is_settled(entry.ctime, now) for entry in files.values())
            self._tagged = _TaggedCache(files, tagged) if settled else None
            return tagged


def view_record(reading: FileReader, record: ForkRecord | None) -> RecordView:
    """Return a record's view. ``reading``: the reader that read the record."""
    return reading.derive(record, RecordView) if record is not None else RecordView(None)
