"""A fork's base, and the known originals of its changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.stage.layers.landed import LandedPaths, open_kept
from mudroom.stage.layers.shown import PATHS, entries_of, read_paths
from mudroom.stage.originals.original import Originals
from mudroom.stage.source import Source
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.stage.originals.moved_files import Ctimes
    from mudroom.stage.originals.private_base import PrivateBase

_NO_LANDED: Mapping[bytes, LandedPaths] = MappingProxyType({})


class Ground:
    def __init__(
        self,
        base: Source,
        originals: Originals,
        *,
        frozen: bool = False,
        sealed: Changeset = Changeset(),  # noqa: B008 - a value that never changes
        before: Changeset = Changeset(),  # noqa: B008
        landed: Mapping[bytes, LandedPaths] = _NO_LANDED,
        masked: frozenset[bytes] = frozenset(),
        masked_names: Callable[[], frozenset[bytes]] = frozenset,
        own: Callable[[], frozenset[bytes]] = frozenset,
        shown: bytes = b"",
        settled: frozenset[bytes] = frozenset(),
        fork: bytes = b"",
        project: bytes = b"",
        settings_at: bytes = b"",
        private: PrivateBase | None = None,
        applies: bytes = b"",
    ) -> None:
        """``base``: the project, or a snapshot, which cannot change (``frozen``).

        ``sealed``: the sealed layers' changeset. ``before``: the fork's changeset after its last command; its originals
        stay valid even if the live files change. ``landed``: paths that were applied and are still in the layers.

        ``masked``: files that commands see empty. ``masked_names``: returns the names of files that commands in the
        fork saw empty. ``own``: returns the secrets at which the writable layer has files written by commands that saw
        the secret empty. ``shown``: the directory with the secrets that commands were shown and have touched; empty if
        there are none. ``settled``: the shown secrets that no command allowed to see them has written since.

        ``fork``: the fork's directory, with the originals that a merge has left. ``project``: the project's path; b""
        if unknown. ``settings_at``: the directory whose repository settings name places in the project; b"": none is
        read. ``private``: the base, if the fork has a private repository.
        """
        self.base, self.originals, self.frozen = base, originals, frozen
        self.sealed, self.before, self.landed, self.masked, self._fork = sealed, before, landed, masked, fork
        self.project, self.settings_at, self._private = project, settings_at, private
        self._masked_names, self._own = masked_names, own
        self._shown, self._settled, self._applies = shown, settled, applies

    def is_private(self, path: bytes) -> bool:
        """Return whether the path is in the fork's private repository, whose base never changes."""
        return self._private is not None and self._private.top_of(path) is not None

    def is_replaced(self, path: bytes) -> bool:
        """Return whether commands see a private repository where the project has a file."""
        return self._private is not None and self._private.is_top(path)

    def is_left_out(self, path: bytes, staged: Entry | None, contents: Source) -> bool:
        """Return whether a difference only follows from a private repository: its directory ``.git``, or a file in it
        that is gone because the whole repository is. ``contents``: the fork's layers alone."""
        if self._private is None:
            return False
        if staged is not None:
            return staged.kind == "directory" and self.is_replaced(path)
        top = self._private.top_of(path)
        if top is None:
            return False
        entry = contents.look(top)
        return entry is None or entry.kind != "directory"

    def project_paths(self) -> set[bytes]:
        """Return the paths in the fork's layers that existed in the project when the fork changed them, or after an
        apply."""
        kept = ((path, self.originals.get(path)) for path in self.originals.paths())
        found = {path for path, original in kept if original is not None and original.entry is not None}
        return found.union(path for path, row in self.landed.items() if row.project is not None)

    def is_masked(self, path: bytes, staged: Entry | None) -> bool:
        """Return whether commands see the file empty, or whether git has recreated such a file: an empty file with the
        same name. Since then, the project may have removed the file, or unmasked it by committing it."""
        if path in self.masked or (path in self._own() and self.base.look(path) is not None):
            return True
        if staged is None or staged.kind != "file" or staged.size:
            return False
        return path.rpartition(b"/")[2] in self._masked_names()

    @property
    def shown_paths(self) -> frozenset[bytes]:
        """Secrets that the fork stores apart from its layers, and that commands may be changing in a layer now."""
        if not self._shown:
            return frozenset()

        return read_paths(self._shown + PATHS) - self._settled

    def shown_secrets(self) -> Iterator[tuple[bytes, Entry | None]]:
        """Yield each shown secret's path and entry, None if deleted, and everything below it if it is a directory."""
        if self._shown:
            yield from entries_of(self._shown)

    def has_landed(self, path: bytes, staged: Entry | None) -> bool:
        """Return whether an apply has brought exactly this entry into the project."""
        landed = self.landed.get(path)
        return landed is not None and same_stamp(landed.staged, staged)

    def open_original(self, path: bytes, entry: Entry) -> int | None:
        """Return a descriptor for a file's original content: the kept original, or the base's file if it is still
        ``entry``; otherwise None."""
        landed = self.landed.get(path)
        if landed is not None and landed.original:
            try:
                return open_kept(self._fork, landed.original)
            except FileNotFoundError:
                return None  # an unknown original becomes a conflict, never a guess
        kept = self.originals.content(path) if landed is None else None
        if kept is not None:
            return kept
        if not self.frozen and not self._is_untouched(entry, self.base.look(path)):
            return None
        try:
            return self.base.open(path)
        except OSError:
            return None

    def _is_untouched(self, entry: Entry, current: Entry | None) -> bool:
        if current is None or not same_stamp(entry, current):
            return False
        if entry.ctime == current.ctime:
            return True
        from mudroom.stage.originals.moved_files import ctimes_of

        return entry.ctime in ctimes_of(self._moved, current)

    @cached_property
    def _moved(self) -> Ctimes:
        from mudroom.stage.originals.moved_files import read

        return read(self._applies) if self._applies else {}

    def read_original(self, path: bytes, entry: Entry, limit: int) -> bytes | None:
        """Return a file's original content, or None if it is unknown, has more than ``limit`` bytes or cannot be
        read."""
        opened = self.open_original(path, entry)
        if opened is None:
            return None
        try:
            with os.fdopen(opened, "rb") as stream:
                data = stream.read(limit + 1)
        except OSError:
            return None
        return data if len(data) <= limit else None
