"""A fork from elsewhere, set upon this project: what of its originals is here, and what it changes here.

An imported fork says of every path what its project held when it changed it. Stamps (device, inode, times) mean
nothing here, so an original is judged by its content: where this project has a file with the same bytes, that file is
the original from now on, and the change can be applied; where it has not, the original is one that is nowhere
(``elsewhere``), and the change is a conflict unless the project already is as the fork wants it.

Nothing that a reviewer will be shown is taken from the archive: every layer is compared and counted anew. Of its
records only claims are used, "the original of this path was that": a false one makes a conflict, or a change that the
review shows.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Iterable, Mapping, Sequence

from mudroom.core.tree.change import Change, Changeset
from mudroom.core.tree.entry import Entry, same_shape, same_stamp
from mudroom.stage.beneath import directory
from mudroom.stage.layers.landed import LandedPaths, elsewhere
from mudroom.stage.layers.union import Union, staged_source
from mudroom.stage.originals.collection import collect
from mudroom.stage.originals.ground import Ground
from mudroom.stage.originals.original import Originals
from mudroom.stage.source import OpenSource, Source, SourceContent, same_bytes, walk
from mudroom.stage.views.overlay import OverlayView
from mudroom.vault.apply.tree import set_mode

Claim = tuple[bytes, Entry]
"""A path, and what lay there."""


def digest(descriptor: int) -> bytes:
    """BLAKE2b-256 of an open file, from here on."""
    hasher = blake2b(digest_size=32)
    while block := os.read(descriptor, 1 << 20):
        hasher.update(block)
    return hasher.digest()


def digest_of(source: Source, path: bytes, entry: Entry) -> bytes | None:
    """Of the file ``entry``; None if that is not what lies at the path, before and after it was read."""
    try:
        descriptor = source.open(path)
    except OSError:
        return None
    try:
        found = digest(descriptor)
    finally:
        os.close(descriptor)
    return found if same_stamp(entry, source.look(path)) else None


class Rebase:
    """Originals of elsewhere as those of this project. ``digests``: of the content of files, by claim.

    ``at_home``: whether the fork comes from a project of this very path, so that a stamp means something even where
    the content is not known.
    """

    def __init__(self, live: Source, digests: Mapping[Claim, bytes], *, at_home: bool) -> None:
        self._live, self._digests, self._at_home = live, digests, at_home
        self._known: dict[Claim, Entry] = {}
        self._contents: dict[bytes, bytes | None] = {}
        self.strangers: set[bytes] = set()
        """Paths whose original is not in this project."""

    def entry(self, path: bytes, claimed: Entry | None) -> Entry | None:
        """The project's own entry if it is what is claimed, else one that is nowhere; None stays None."""
        if claimed is None:
            return None
        found = self._known.get((path, claimed))
        if found is None:
            live = self._live.look(path)
            matches = live is not None and self._matches(path, claimed, live)
            found = live if matches and live is not None else elsewhere(claimed)
            self._known[path, claimed] = found
            if not matches:
                self.strangers.add(path)
        return found

    def _matches(self, path: bytes, claimed: Entry, live: Entry) -> bool:
        if live.kind != claimed.kind or live.target != claimed.target or live.size != claimed.size:
            return False
        if live.kind != "file":
            return True
        known = self._digests.get((path, claimed))
        if known is None:
            return self._at_home and same_stamp(claimed, live)
        if path not in self._contents:
            self._contents[path] = digest_of(self._live, path, live)
        return self._contents[path] == known

    def changes(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        return tuple(change._replace(base=self.entry(change.path, change.base)) for change in changes)

    def landed(self, rows: Mapping[bytes, LandedPaths], staged: Source) -> dict[bytes, LandedPaths]:
        """What has landed elsewhere counts as landed here if the project has it; else it is a change again."""
        found = {}
        for path, row in rows.items():
            live, mine = self._live.look(path), staged.look(path)
            here = same_content(self._live, staged, path, live, mine)
            if here or same_stamp(self.entry(path, row.project), live):
                found[path] = LandedPaths(live, mine if here else elsewhere(row.staged or row.project or _NOWHERE))
        return found


_NOWHERE = Entry("file", 0, 0, b"", 0, 0, 0, 0, 0, 0, 0)


def same_content(one: SourceContent, other: SourceContent, path: bytes, a: Entry | None, b: Entry | None) -> bool:
    """Whether two entries at one path are the same to a reader: both absent, or of one shape and content."""
    if a is None or b is None or not same_shape(a, b):
        return a is b
    return a.kind != "file" or same_file(one, other, path, a, b)


def same_file(one: SourceContent, other: SourceContent, path: bytes, a: Entry, b: Entry) -> bool:
    """The same of two files, whatever their modes. What cannot be read is not the same."""
    if a.size != b.size:
        return False
    opened: list[int] = []
    try:
        opened += [one.open(path)]
        opened += [other.open(path)]
        return same_bytes(*opened)
    except PermissionError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)


def align_modes(tree: bytes, claims: Mapping[bytes, Change], base: Source) -> None:
    """Modes that the fork did not change are those of this project, whatever umask the other was made with.

    Of directories that are only on the way to a change, and of files of which only the content was changed.
    """
    with OpenSource(tree) as layer:
        for path, entry in (*walk(layer), (b"", layer.look(b""))):
            if entry is None or entry.kind not in ("file", "directory"):
                continue
            claim = claims.get(path)
            theirs = claim.base.mode if claim is not None and claim.base is not None else None
            here = base.look(path)
            if here is None or here.kind != entry.kind or here.mode == entry.mode:
                continue
            if theirs == entry.mode or (claim is None and entry.kind == "directory"):
                above, _slash, name = path.rpartition(b"/")
                with directory(layer.root, above) as opened:
                    set_mode((opened, name or b"."), here.mode & ~0o6000 if entry.kind == "file" else here.mode)


def collect_layer(
    stack: Sequence[bytes],
    base: Source,
    *,
    frozen: bool,
    sealed: Changeset,
    claims: Changeset,
    landed: Mapping[bytes, LandedPaths],
) -> Changeset:
    """What a stack of layers (directories, bottom first) comes to over ``base``. ``sealed``: the same without its
    topmost, which alone is walked. What nobody claims to know the original of is a conflict, never a guess."""
    trees = [place + b"/tree" for place in reversed(stack)]
    originals = Originals(stack)
    ground = Ground(base, originals, frozen=frozen, sealed=sealed, before=claims, landed=landed)
    with staged_source(trees) as staged, Union(trees[1:], base) as lower:
        view = OverlayView(b"", (), trees[0], b"")
        return collect(view, staged, lower, ground, 0)  # 0: no live file is older than that
