"""Rebase an imported fork on this project: find which originals exist here, and which changes the fork makes here.

For each path, an imported fork claims the entry that its project had when the fork changed it. Stamps (device, inode,
times) mean nothing here, so an original is compared by content. If this project has a file with the same bytes, that
file is the original from now on, and the change can be applied. Otherwise the original is marked as absent
(``elsewhere``), and the change is a conflict unless the project already has the fork's version.

A review shows nothing taken from the archive: every layer is compared and counted again. Only its records' claims,
"this path's original was that", are used: a false claim makes a conflict, or a change that the review shows.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Iterable, Mapping, Sequence

from mudroom.core.clock import EditWindow
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Change, Changeset
from mudroom.core.tree.entry import Entry, FileHeld, is_untouched, same_shape
from mudroom.stage.layers.closed_directory import entered
from mudroom.stage.layers.landed import LandedPaths, elsewhere
from mudroom.stage.layers.union import OneLayer, Union, staged_source
from mudroom.stage.originals.collection import collect
from mudroom.stage.originals.ground import Ground
from mudroom.stage.originals.original import Originals
from mudroom.stage.originals.private_base import PrivateBase
from mudroom.stage.source import OpenSource, Source, SourceContent, same_as, walk
from mudroom.stage.views.overlay import OverlayView
from mudroom.vault.apply.tree import set_mode

Claim = tuple[bytes, Entry]
"""(path, the entry that it had)."""


def digest(descriptor: int) -> bytes:
    """Return an open file's BLAKE2b-256 digest, from the current offset."""
    hasher = blake2b(digest_size=32)
    while block := os.read(descriptor, 1 << 20):
        hasher.update(block)
    return hasher.digest()


def digest_of(source: Source, path: bytes, entry: Entry) -> bytes | None:
    """Return a file's digest; None unless the path has ``entry`` before and after reading."""
    try:
        descriptor = source.open(path)
    except OSError:
        return None
    with Descriptor(descriptor):
        hashed = digest(descriptor)
    return hashed if is_untouched(entry, source.look(path)) else None


class Rebase:
    """Replaces another project's originals by this project's. ``digests``: file content digests by claim.

    ``at_home``: whether the fork comes from a project at this very path, so that a stamp is meaningful where the
    content is unknown.
    """

    def __init__(self, live: Source, digests: Mapping[Claim, bytes], *, at_home: bool) -> None:
        self._live, self._digests, self._at_home = live, digests, at_home
        self._known: dict[Claim, Entry] = {}
        self._contents: dict[bytes, bytes | None] = {}
        self.strangers: set[bytes] = set()
        """Paths whose original is not in this project."""

    def entry(self, path: bytes, claimed: Entry | None) -> Entry | None:
        """Return the project's own entry if it equals the claimed one, else an ``elsewhere`` entry; None for None."""
        if claimed is None:
            return None
        entry = self._known.get((path, claimed))
        if entry is None:
            live = self._live.look(path)
            matches = live is not None and self._matches(path, claimed, live)
            entry = live if matches and live is not None else elsewhere(claimed)
            self._known[path, claimed] = entry
            if not matches:
                self.strangers.add(path)
        return entry

    def _matches(self, path: bytes, claimed: Entry, live: Entry) -> bool:
        if live.kind != claimed.kind or live.target != claimed.target or live.size != claimed.size:
            return False
        if live.kind != "file":
            return True
        known = self._digests.get((path, claimed))
        if known is None:
            return self._at_home and is_untouched(claimed, live)
        if path not in self._contents:
            self._contents[path] = digest_of(self._live, path, live)
        return self._contents[path] == known

    def changes(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        return tuple(change._replace(base=self.entry(change.path, change.base)) for change in changes)

    def landed(self, rows: Mapping[bytes, LandedPaths], staged: Source) -> dict[bytes, LandedPaths]:
        """Return the landed paths. A path is landed here only if the project has the change; otherwise it is a change
        again."""
        landed = {}
        for path, row in rows.items():
            live, mine = self._live.look(path), staged.look(path)
            is_here = same_content(self._live, staged, path, live, mine)
            if is_here or is_untouched(self.entry(path, row.project), live):
                landed[path] = LandedPaths(live, mine if is_here else elsewhere(row.staged or row.project or _NOWHERE))
        return landed


_NOWHERE = Entry("file", 0, 0, b"", 0, 0, 0, 0, 0, 0, 0)


def same_content(one: SourceContent, other: SourceContent, path: bytes, a: Entry | None, b: Entry | None) -> bool:
    """Return whether two entries at one path look the same to a reader: both absent, or equal in shape and content."""
    if a is None or b is None or not same_shape(a, b):
        return a is b
    return a.kind != "file" or same_file(one, other, path, a, b)


def same_file(one: SourceContent, other: SourceContent, path: bytes, a: Entry, b: Entry) -> bool:
    """Return whether two files have the same content, whatever their modes. An unreadable file is not the same."""
    if a.size != b.size:
        return False
    try:
        return same_as(one.open(path), other, path)
    except (PermissionError, FileHeld):
        return False


def align_modes(tree: bytes, claims: Mapping[bytes, Change], base: Source) -> None:
    """Give the fork's unchanged entries this project's modes, whatever umask the other project was made with.

    These are directories that only lead to a change, and files whose content alone was changed.
    """
    with OpenSource(tree, is_layer=True) as opened, OneLayer(tree) as layer:
        for path, entry in (*walk(layer), (b"", layer.look(b""))):
            if entry is None or entry.kind not in ("file", "directory"):
                continue
            claim = claims.get(path)
            theirs = claim.base.mode if claim is not None and claim.base is not None else None
            base_entry = base.look(path)
            if base_entry is None or base_entry.kind != entry.kind or base_entry.mode == entry.mode:
                continue
            if theirs == entry.mode or (claim is None and entry.kind == "directory"):
                above, _slash, name = path.rpartition(b"/")
                mode = base_entry.mode & ~0o6000 if entry.kind == "file" else base_entry.mode
                with entered(opened.root, above) as directory:
                    set_mode((directory, name or b"."), mode)


def collect_layer(
    stack: Sequence[bytes],
    base: Source,
    *,
    frozen: bool,
    sealed: Changeset,
    claims: Changeset,
    landed: Mapping[bytes, LandedPaths],
    project: bytes = b"",
    settings_at: bytes = b"",
    repository: bytes = b"",
) -> Changeset:
    """Return the changes of a stack of layers (directories, bottom first) over ``base``. ``project``: the project's
    path; ``settings_at``: as in ``Ground``; both for flags.

    ``sealed``: the changes of the stack without its topmost layer; only that layer is walked. A change without a claim
    about its original is a conflict, never a guess. ``repository``: the layer with a private repository, between stack
    and base; empty if there is none.
    """
    trees = [place + b"/tree" for place in reversed(stack)]
    originals = Originals(stack)
    between = (repository,) if repository else ()
    with staged_source(trees) as staged, Union((*trees[1:], *between), base) as lower, Union(between, None) as layer:
        private = PrivateBase(layer, base) if repository else None
        ground = Ground(
            private or base,
            originals,
            frozen=frozen,
            sealed=sealed,
            before=claims,
            landed=landed,
            private=private,
            project=project,
            settings_at=settings_at,
        )
        view = OverlayView(b"", (), trees[0], b"")
        return collect(view, staged, lower, ground, EditWindow(0))  # 0: no live file is older than that
