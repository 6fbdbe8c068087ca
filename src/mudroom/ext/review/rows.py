"""A fork's review as rows for the page and the terminal: changes, their contents, and whether their blocks can be
selected. This module writes nothing and marks nothing as reviewed."""

from __future__ import annotations

import gc
from _blake2 import blake2b
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mudroom.core.text.linediff import is_binary
from mudroom.core.tree.change import Change, Remark, Summary
from mudroom.core.tree.path import show
from mudroom.core.tree.review_tags import TEXT_LIMIT, has_hunks, tags_of
from mudroom.errors import UsageError
from mudroom.ext.review.core.difference import Texts
from mudroom.ext.review.roots import AGAIN, ReviewRoot, root_of, roots_of
from mudroom.stage.file_cache import FileCache
from mudroom.stage.stamp import stamp_of
from mudroom.typing import TYPE_CHECKING, Literal, NamedTuple
from mudroom.vault.forks.both_sides import BothSides, ComparedSides, SidePair, SideReader, Which
from mudroom.vault.forks.record_view import TaggedRows, view_record

IMAGE_HEAD = 8_000
"""Leading bytes that are examined: as many as for the binary check."""
SVG = "image/svg+xml"
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
)


def picture_of(head: bytes, path: bytes = b"") -> str:
    """Return the media type of an image that a browser may show, by the file's first bytes; empty if it is none.
    ``head``: the first bytes, at least 32 if the file is that long.

    Sources: the WHATWG's MIME Sniffing, 6.1 (png, jpeg, gif, webp, bmp, ico); AV1 Image File Format 1.1, 10.2 (avif).
    SVG is text and may hold scripts: it is detected by its name, and served so that no script runs.
    """
    for magic, media_type in _MAGIC:
        if head.startswith(magic) and (magic != b"BM" or b"\0" in head[:32]):
            return media_type
    if head[:4] == b"RIFF" and head[8:14] == b"WEBPVP":
        return "image/webp"
    if head[4:8] == b"ftyp" and b"avif" in head[8:32]:
        return "image/avif"
    is_svg = path.lower().endswith(b".svg") and b"\0" not in head and b"<svg" in head.lower()
    return SVG if is_svg else ""


__all__ = [
    "MovedRow",
    "ReviewedFork",
    "RowDifference",
    "RowSide",
    "TaggedRows",
    "cache_record",
    "can_conflict",
    "difference",
    "fewer_collections",
    "has_hunks",
    "open_side",
    "review_fork",
    "stamp_of",
    "tags_of",
]

if TYPE_CHECKING:
    from mudroom.core.tree.entry import Entry
    from mudroom.session import Session


class ReviewedFork(NamedTuple):
    """A fork with its parts in other projects, whose paths are absolute (``roots.py``)."""

    fork: str
    fingerprint: str
    """The whole fork's fingerprint; passed to an apply as ``reviewed``."""
    changes: tuple[Change, ...]
    """All changes."""
    rows: tuple[Change, ...]
    """Changes that are counted for the user."""
    tags: Mapping[bytes, tuple[str, ...]]
    """Each row's tags by path, for filters: its flags (``executes-later``, ``secret``, ``protected``, ``mode``,
    ``type`` …), and ``binary``, ``large``, ``ignored``."""
    remarks: tuple[Remark, ...]
    running: bool
    """A command is running in the fork; its changes may be missing here."""
    in_use: str
    """Why this is a look and not a review, as words after the fork's name ("is mounted at /x"); empty if it is a
    review."""
    summary: Summary
    tagged: TaggedRows
    """The rows with their tags and other derived data, computed once."""
    labels: Mapping[bytes, str] = {}
    """The other projects' names for the user, by path."""


def review_fork(session: Session, fork: str) -> ReviewedFork:
    """Return a fork's present changes, those in other projects after its own. Raise UsageError if the fork does not
    exist, MudroomError if a part is missing."""
    first = _review_part(session, fork)
    others = [(root, _review_part(root.session, root.fork)) for root in roots_of(session, fork)[1:]]
    if not others:
        return first
    parts = [(ReviewRoot(session, fork, b""), first), *others]
    rows = tuple(root.change(change) for root, part in parts for change in part.rows)
    ignored = frozenset(
        root.outer(path) for root, part in parts for path, tags in part.tags.items() if "ignored" in tags
    )
    tagged = TaggedRows(rows, ignored)
    return ReviewedFork(
        fork,
        "+".join(part.fingerprint for _root, part in parts),
        tuple(root.change(change) for root, part in parts for change in part.changes),
        rows,
        tagged.tags,
        tuple(root.remark(remark) for root, part in parts for remark in part.remarks),
        any(part.running for _root, part in parts),
        next((part.in_use for _root, part in parts if part.in_use), ""),
        Summary(*map(sum, zip(*(part.summary for _root, part in parts), strict=True))),
        tagged,
        {root.path: root.label for root, _part in others},
    )


def _review_part(session: Session, fork: str) -> ReviewedFork:
    look = session.forks.look(fork, live=False)
    view = view_record(session.vault.reading, look.record)
    tagged, running = view.tagged(session.vault), not session.forks.is_at_rest(fork)
    changes, remarks, _hidden = view.changeset
    mark = look.sign(view.fingerprint)
    return ReviewedFork(
        fork, mark, changes, view.rows, tagged.tags, remarks, running, look.in_use, view.summary, tagged
    )


def can_conflict(changes: Iterable[Change], drift: Sequence[Remark]) -> bool:
    """Return whether conflicts are possible: files that are unchanged in the project have none. Computing conflicts
    takes longer than all other reading. ``drift``: from ``Changes.drift``."""
    return bool(drift) or not all(change.original_known for change in changes)


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Reduce garbage collections while lists of changes are held. A list of 100,000 changes has a million objects and
    no cycles; with Python's default thresholds a third of the time to read it goes into repeated collections
    (gc.set_threshold)."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def cache_record(session: Session) -> None:
    """Cache the fork's record, for callers that read many files in it: otherwise each read parses it again."""
    session.vault.reading = FileCache()


class RowSide(NamedTuple):
    """A change's old or new side; ``entry`` is None if that side has no file."""

    entry: Entry | None
    lines: int = 0
    """Line count, if a text was read; otherwise 0."""
    image: str = ""
    """Media type, if it is an image that browsers can show; otherwise empty."""


LINE_LIMIT = 250_000
"""Most lines in both sides together that are compared: a hostile text of this size takes a second."""
Kind = Literal["text", "binary", "image", "link", "directory", "large", "masked", "unknown"]


class MovedRow(NamedTuple):
    """A similar rename's other end, for display only. Each end is a change that is selected separately."""

    path: bytes
    is_source: bool
    """Whether the file was moved from that path; otherwise it was moved to it."""
    percent: int
    """Similarity in percent."""
    compared: bool
    """Whether the old side shown is the file at that path. Its blocks are then not the change's."""


class RowDifference(NamedTuple):
    change: Change
    kind: Kind
    """``text``, ``binary``, ``image``, ``link``, ``directory``, ``large`` (a text above 4 MiB or ``LINE_LIMIT``),
    ``masked`` (a secret: never read), ``unknown`` (the old content is not known any more)."""
    old: RowSide
    new: RowSide
    texts: Texts | None
    """A text's blocks and hunks; None for other kinds."""
    version: str
    """Identifies both recorded sides; changes whenever either side changes."""
    moved: MovedRow | None = None
    """A similar rename's other end, for an added or deleted file."""

    @property
    def is_divisible(self) -> bool:
        """Whether blocks can be selected. A similar rename is compared with another file, so its blocks are not the
        change's."""
        compared = self.moved is not None and self.moved.compared
        return self.texts is not None and not compared and has_hunks(self.change)


@contextmanager
def open_sides(session: Session, fork: str, between: tuple[str, str] | None = None) -> Iterator[BothSides]:
    """Yield a reader for both sides of a fork's changes. ``between``: compare these two states instead, as in
    ``Forks.compare``. Raise UsageError if one does not exist."""
    if between is not None:
        for name in set(between) - {"base", "now"}:
            session.changes.of(name.partition("@")[0])
        with ComparedSides(session.vault, *between) as compared:
            yield compared
        return
    with SideReader(session.vault, fork, view_record(session.vault.reading, session.forks.record(fork))) as sides:
        yield sides


def find_change(sides: BothSides, path: bytes) -> SidePair:
    """Return the change at a path. Raise UsageError if there is none."""
    pair = sides.find(path)
    if pair is None:
        raise UsageError(f"the fork has no change at {show(path)}", AGAIN)
    return pair


def is_masked(session: Session, pair: SidePair, between: tuple[str, str] | None = None) -> bool:
    """Return whether the file is, or was, a project secret; reviews never read those. A file that the fork created
    under such a name is not masked. If two other states are compared, the creator is not known, and the file is
    masked."""
    return (pair.old is not None or between is not None) and session.forks.secrets.hides(
        pair.source or pair.change.path
    )


def difference(
    session: Session,
    fork: str,
    path: bytes,
    context: int = 3,
    between: tuple[str, str] | None = None,
    *,
    as_new: bool = False,
) -> RowDifference:
    """Return the difference at a row's path. A similar rename is compared with its old path, unless ``as_new``. Raise
    UsageError if there is no change (any more), and ForkMoved if the file has changed since it was recorded."""
    root = root_of(session, fork, path)
    session, fork, path = root.session, root.fork, root.inner(path)
    with open_sides(session, fork, between) as sides:
        pair = before = find_change(sides, path)
        moved = _moved(session, sides, pair, as_new=as_new)
        if moved is not None and moved.compared:
            before = find_change(sides, moved.path)
            pair = pair._replace(old=before.old, source=moved.path)

        def seen(kind: Kind, images: tuple[str, str] = ("", ""), texts: Texts | None = None) -> RowDifference:
            lines = texts.lines if texts is not None else (0, 0)
            old, new = RowSide(pair.old, lines[0], images[0]), RowSide(pair.new, lines[1], images[1])
            other = moved._replace(path=root.outer(moved.path)) if moved is not None else None
            return RowDifference(root.change(pair.change), kind, old, new, texts, _version(pair), other)

        kind = "masked" if is_masked(session, pair, between) else _kind_of_entries(pair)
        if kind is not None:
            return seen(kind)
        heads = _content(sides, before, "old", IMAGE_HEAD), _content(sides, pair, "new", IMAGE_HEAD)
        if heads[0] is None or heads[1] is None:
            return seen("unknown")
        images = picture_of(heads[0], path), picture_of(heads[1], path)
        if is_binary(heads[0]) or is_binary(heads[1]):
            return seen("image" if any(images) else "binary", images)
        old, new = _content(sides, before, "old", TEXT_LIMIT + 1), _content(sides, pair, "new", TEXT_LIMIT + 1)
        if old is None or new is None:
            return seen("unknown")
        if max(len(old), len(new)) > TEXT_LIMIT or old.count(b"\n") + new.count(b"\n") > LINE_LIMIT:
            return seen("large", images)
        return seen("text", images, Texts(old, new, context))


def open_side(
    session: Session, fork: str, path: bytes, which: Which, between: tuple[str, str] | None = None
) -> int | None:
    """Return a descriptor for one side of a row; None if there is no file, it is not known any more, or it is masked.
    Raise as ``difference`` does."""
    root = root_of(session, fork, path)
    session, fork, path = root.session, root.fork, root.inner(path)
    with open_sides(session, fork, between) as sides:
        pair = find_change(sides, path)
        return None if is_masked(session, pair, between) else sides.open(pair, which)


def _moved(session: Session, sides: BothSides, pair: SidePair, *, as_new: bool) -> MovedRow | None:
    """Return a similar rename's other end, unless it is hidden or has changed."""
    change = pair.change
    if change.verb not in ("added", "deleted") or change.entry.kind != "file":
        return None
    move = sides.move(change.path, session.forks.secrets.hides)
    other = sides.find(move.other(change.path)) if move is not None else None
    if move is None or other is None or (other.old is not None and _content(sides, other, "old", 0) is None):
        return None  # the project has changed the file meanwhile
    is_source = change.verb == "added"
    return MovedRow(other.change.path, is_source, move.percent, is_source and not as_new)


def _kind_of_entries(pair: SidePair) -> Kind | None:
    """Return the kind if the entries alone decide it, or None if contents have to be read. A former directory or link
    has no lines: the whole file is new."""
    kinds = {entry.kind for entry in (pair.old, pair.new) if entry is not None}
    if kinds == {"file"} or (pair.new is not None and pair.new.kind == "file" and kinds <= _KNOWN):
        return None
    if "symlink" in kinds:
        return "link"
    if "directory" in kinds:
        return "directory"
    return "binary"


_KNOWN = {"file", "directory", "symlink"}


def _content(sides: BothSides, pair: SidePair, which: Which, most: int) -> bytes | None:
    """Return at most ``most`` bytes; empty bytes for a missing entry or one without content; None if the content is not
    known any more."""
    entry = pair.old if which == "old" else pair.new
    return b"" if entry is None or entry.kind in ("directory", "symlink") else sides.read(pair, which, most)


def _version(pair: SidePair) -> str:
    return blake2b(repr((pair.change.verb, pair.source, pair.old, pair.new)).encode(), digest_size=16).hexdigest()
