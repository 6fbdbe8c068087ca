"""What is shown of a fork's changes to somebody who decides about them, and what they may choose: for front doors that
draw (``web/``, ``tui/``). Values; nothing is written, and nobody is said to have reviewed anything.
"""

from __future__ import annotations

import gc
from _blake2 import blake2b
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

from mudroom.core.text.linediff import is_binary
from mudroom.core.text.picture import HEAD, picture_of
from mudroom.core.tree.change import Change, Remark, Summary
from mudroom.core.tree.path import show
from mudroom.core.tree.review_tags import TEXT_LIMIT, has_hunks, tags_of
from mudroom.errors import UsageError
from mudroom.stage.stamp import stamp_of

__all__ = [
    "MovedRow",
    "ReviewedFork",
    "RowDifference",
    "RowSide",
    "TaggedRows",
    "collected_seldom",
    "difference",
    "has_hunks",
    "is_at_rest",
    "keep_reading",
    "look",
    "open_side",
    "stamp_of",
    "tags_of",
]

if TYPE_CHECKING:
    from mudroom.core.text.difference import Texts
    from mudroom.core.tree.entry import Entry
    from mudroom.session import ForkConflict, Session
    from mudroom.vault.forks.both_sides import BothSides, SidePair, Which
    from mudroom.vault.forks.record_view import TaggedRows


AGAIN = "look again: it has moved on"


class ReviewedFork(NamedTuple):
    fork: str
    fingerprint: str
    """Of all of it: an apply is held to it (``reviewed``)."""
    changes: tuple[Change, ...]
    """All of them."""
    rows: tuple[Change, ...]
    """Those that a person counts."""
    tags: Mapping[bytes, tuple[str, ...]]
    """Of each row, by its path, what to filter by: its flags (``executes-later``, ``secret``, ``protected``, ``mode``,
    ``type`` …), and ``binary``, ``large``, ``ignored``."""
    remarks: tuple[Remark, ...]
    running: bool
    """A command is at work in it: what that one changes may be missing here."""
    summary: Summary
    tagged: TaggedRows
    """The rows with their tags, and what else is made of them once."""


def look(session: Session, fork: str) -> ReviewedFork:
    """What a fork holds now. Raises UsageError if there is none of that name."""
    from mudroom.vault.forks.record_view import view_record

    gist = view_record(session.vault.reading, session.forks.record(fork))
    tagged, running = gist.tagged(session.vault), not is_at_rest(session, fork)
    changes, remarks = gist.changeset
    return ReviewedFork(fork, gist.fingerprint, changes, gist.rows, tagged.tags, remarks, running, gist.summary, tagged)


def is_at_rest(session: Session, fork: str) -> bool:
    """Whether no command is at work in it: then nobody waits for its lock for long."""
    place = session.vault.fork(fork)
    if place.interrupted is None:
        return True
    with place.lock_if_free("looking at what runs") as free:
        return free


@contextmanager
def collected_seldom() -> Iterator[None]:
    """For who holds lists of changes. One of 100,000 is a million objects and no cycle: with Python's own numbers a
    third of the time that reading it takes goes into looking for some, again and again (gc.set_threshold)."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def keep_reading(session: Session) -> None:
    """For who looks at many files of a fork: each of them would have all of the record read again."""
    from mudroom.stage.file_cache import FileCache

    session.vault.reading = FileCache()


class RowSide(NamedTuple):
    """One side of a change; of what is not there, ``entry`` is None."""

    entry: Entry | None
    lines: int = 0
    """Of a text that was read."""
    image: str = ""
    """A media type that a browser shows as an image; empty: none."""


LINE_LIMIT = 250_000
"""Lines of both sides together that are compared: as many as take a second if they were written to take long."""
Kind = Literal["text", "binary", "image", "link", "directory", "large", "masked", "unknown"]


class MovedRow(NamedTuple):
    """The other end of a move. Each end is a change of its own: this is for looking at them, not for choosing."""

    path: bytes
    is_source: bool
    """Whether it was moved from there; else it was moved to there."""
    percent: int
    """How much of it is the same."""
    compared: bool
    """Whether the old side is what is at that path: then no blocks of the change are what is shown."""


class RowDifference(NamedTuple):
    change: Change
    kind: Kind
    """What there is to see: ``text``, ``binary``, ``image``, ``link``, ``directory``, ``large`` (a text of more than
    4 MiB, or ``LINE_LIMIT``), ``masked`` (a secret: never read), ``unknown`` (what it was is not known any more)."""
    old: RowSide
    new: RowSide
    texts: Texts | None
    """Of a text: its blocks and hunks."""
    version: str
    """Of both sides, as they were written down: another one whenever one of them is."""
    moved: MovedRow | None = None
    """Of what was added or deleted: where it was moved from, or to, and changed."""

    @property
    def is_divisible(self) -> bool:
        """Whether blocks of it can be chosen: those of a move are not those of the change."""
        compared = self.moved is not None and self.moved.compared
        return self.texts is not None and not compared and has_hunks(self.change)


@contextmanager
def opened(session: Session, fork: str, between: tuple[str, str] | None = None) -> Iterator[BothSides]:
    """Both sides of a fork's changes, to read from. ``between``: two states instead, as ``Forks.compare`` has them.
    Raises UsageError."""
    from mudroom.vault.forks.both_sides import ComparedSides, SideReader
    from mudroom.vault.forks.record_view import view_record

    if between is not None:
        for name in set(between) - {"base", "now"}:
            session.changes.of(name.partition("@")[0])
        with ComparedSides(session.vault, *between) as compared:
            yield compared
        return
    with SideReader(session.vault, fork, view_record(session.vault.reading, session.forks.record(fork))) as sides:
        yield sides


def found(sides: BothSides, path: bytes) -> SidePair:
    """The change at a path. Raises UsageError if there is none."""
    two = sides.find(path)
    if two is None:
        raise UsageError(f"the fork has no change at {show(path)}", AGAIN)
    return two


def is_masked(session: Session, two: SidePair, between: tuple[str, str] | None = None) -> bool:
    """Whether it is, or was, a secret of the project: nobody reads that for a review. A file of such a name that the
    fork has made itself is none; of other states that are compared it is not told whose it is."""
    return (two.old is not None or between is not None) and session.forks.secrets.hides(two.source or two.change.path)


def is_masked_conflict(session: Session, found: ForkConflict) -> bool:
    """Whether it is a secret wherever one of the sides has it, or had it: a rename makes it none."""
    paths = {found.path, found.base.path, found.ours.path, found.theirs.path}
    return any(session.forks.secrets.hides(path) for path in paths)


def difference(
    session: Session,
    fork: str,
    path: bytes,
    context: int = 3,
    between: tuple[str, str] | None = None,
    *,
    as_new: bool = False,
) -> RowDifference:
    """What a fork would change at the path of one of its rows. What was moved there and changed is shown beside what it
    was, or ``as_new``. Raises UsageError if there is nothing (any more), and ForkMoved if the file is another one than
    that."""
    from mudroom.core.text.difference import Texts

    with opened(session, fork, between) as sides:
        two = before = found(sides, path)
        moved = _moved(session, sides, two, as_new=as_new)
        if moved is not None and moved.compared:
            before = found(sides, moved.path)
            two = two._replace(old=before.old, source=moved.path)

        def seen(kind: Kind, images: tuple[str, str] = ("", ""), texts: Texts | None = None) -> RowDifference:
            lines = texts.lines if texts is not None else (0, 0)
            old, new = RowSide(two.old, lines[0], images[0]), RowSide(two.new, lines[1], images[1])
            return RowDifference(two.change, kind, old, new, texts, _version(two), moved)

        kind = "masked" if is_masked(session, two, between) else _kind_of_entries(two)
        if kind is not None:
            return seen(kind)
        heads = _content(sides, before, "old", HEAD), _content(sides, two, "new", HEAD)
        if heads[0] is None or heads[1] is None:
            return seen("unknown")
        images = picture_of(heads[0], path), picture_of(heads[1], path)
        if is_binary(heads[0]) or is_binary(heads[1]):
            return seen("image" if any(images) else "binary", images)
        old, new = _content(sides, before, "old", TEXT_LIMIT + 1), _content(sides, two, "new", TEXT_LIMIT + 1)
        if old is None or new is None:
            return seen("unknown")
        if max(len(old), len(new)) > TEXT_LIMIT or old.count(b"\n") + new.count(b"\n") > LINE_LIMIT:
            return seen("large", images)
        return seen("text", images, Texts(old, new, context))


def open_side(
    session: Session, fork: str, path: bytes, which: Which, between: tuple[str, str] | None = None
) -> int | None:
    """A descriptor of one side of a row. None: there is no file, it is not known any more, or is not shown to anybody.
    Raises as ``difference`` does."""
    with opened(session, fork, between) as sides:
        two = found(sides, path)
        return None if is_masked(session, two, between) else sides.open(two, which)


def _moved(session: Session, sides: BothSides, two: SidePair, *, as_new: bool) -> MovedRow | None:
    """Where what was added came from, or what was deleted went to, as far as anybody may be told."""
    change = two.change
    if change.verb not in ("added", "deleted") or change.entry.kind != "file":
        return None
    move = sides.move(change.path, session.forks.secrets.hides)
    other = sides.find(move.other(change.path)) if move is not None else None
    if move is None or other is None or (other.old is not None and _content(sides, other, "old", 0) is None):
        return None  # the project has changed it meanwhile
    is_source = change.verb == "added"
    return MovedRow(other.change.path, is_source, move.percent, is_source and not as_new)


def _kind_of_entries(two: SidePair) -> Kind | None:
    """None: files, to be looked into. What was a directory or a link had no lines: all of the file is new."""
    kinds = {entry.kind for entry in (two.old, two.new) if entry is not None}
    if kinds == {"file"} or (two.new is not None and two.new.kind == "file" and kinds <= _KNOWN):
        return None
    if "symlink" in kinds:
        return "link"
    if "directory" in kinds:
        return "directory"
    return "binary"


_KNOWN = {"file", "directory", "symlink"}


def _content(sides: BothSides, two: SidePair, which: Which, most: int) -> bytes | None:
    """At most so many bytes; none of what is no file, or not there. None: it cannot be told any more."""
    entry = two.old if which == "old" else two.new
    return b"" if entry is None or entry.kind in ("directory", "symlink") else sides.read(two, which, most)


def _version(two: SidePair) -> str:
    return blake2b(repr((two.change.verb, two.source, two.old, two.new)).encode(), digest_size=16).hexdigest()
