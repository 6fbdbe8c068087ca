"""What a fork stands on, and what is known of what it started from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.stage.layers.landed import LandedPaths, open_kept
from mudroom.stage.originals.original import Originals
from mudroom.stage.source import Source

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
        fork: bytes = b"",
    ) -> None:
        """``base``: the project, or a snapshot of it (``frozen``: it cannot have changed since).

        ``sealed``: what the sealed layers come to. ``before``: what the fork held after its last command; what it says
        of originals holds whatever became of the live files. ``landed``: what applies have made of paths that the
        layers still hold. ``masked``: files that commands see empty. ``fork``: its directory, with originals that a
        merge has left.
        """
        self.base, self.originals, self.frozen = base, originals, frozen
        self.sealed, self.before, self.landed, self.masked, self._fork = sealed, before, landed, masked, fork

    def has_landed(self, path: bytes, staged: Entry | None) -> bool:
        """Whether an apply has brought this very entry into the project."""
        landed = self.landed.get(path)
        return landed is not None and same_stamp(landed.staged, staged)

    def open_original(self, path: bytes, entry: Entry) -> int | None:
        """The original content of a file, open: what was kept, or the base's if that is still ``entry``; else None."""
        landed = self.landed.get(path)
        if landed is not None and landed.original:
            try:
                return open_kept(self._fork, landed.original)
            except FileNotFoundError:
                return None  # what is not known is a conflict, never a guess
        kept = self.originals.content(path) if landed is None else None
        if kept is not None:
            return kept
        if not self.frozen and not same_stamp(entry, self.base.look(path)):
            return None
        try:
            return self.base.open(path)
        except OSError:
            return None

    def read_original(self, path: bytes, entry: Entry, limit: int) -> bytes | None:
        """The same, read; None as well if it has more than ``limit`` bytes or cannot be read."""
        opened = self.open_original(path, entry)
        if opened is None:
            return None
        try:
            with os.fdopen(opened, "rb") as stream:
                data = stream.read(limit + 1)
        except OSError:
            return None
        return data if len(data) <= limit else None
