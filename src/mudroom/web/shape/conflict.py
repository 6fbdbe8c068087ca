"""Conflicts of a fork with the project: all sides of each, what is decided about it, and deciding."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mudroom.core.merge.resolution_words import Choice, Take
from mudroom.web.shape.change import LineShape, SideShape


class RegionShape(Struct):
    """A piece of a three-way merge; the regions, one after the other, are the whole file. A side that is the same as
    another one is not sent twice: of ``same`` and ``both`` there is ``ours`` (and the base of ``both``), of ``ours``
    and ``theirs`` that side and the base."""

    kind: Literal["same", "ours", "theirs", "both", "conflict"]
    base: list[LineShape]
    ours: list[LineShape]
    theirs: list[LineShape]
    number: int = 0
    """Of a conflict: 1, 2, 3 …; 0: it is none."""
    hidden: int = 0
    """Of ``same``: lines in the middle that are not sent. ``ours`` has up to three from before and from behind them."""
    more: tuple[int, int, int] = (0, 0, 0)
    """Of what has very many lines: those at the end of base, ours and theirs that are not sent."""
    texts: tuple[str, str, str] | None = None
    """Of a conflict: base, ours and theirs as they are, to be edited; lines end as they do. None: too much for that."""


class ResultShape(Struct):
    """What is decided about a conflict, as the file will be."""

    size: int
    choices: list[Choice] | None = None
    """For each conflicting place, in order; with ``regions`` that is all of it. None: it was made in another way than
    place by place."""
    lines: list[LineShape] = []
    """Of a text that was made in another way: it, from its beginning."""
    more: int = 0
    """Lines behind those that are not sent."""
    text: str | None = None
    """As it is, to be edited; None: it is no text, or too long for that, or has carriage returns within lines."""
    unseen: bool = False
    """There are characters in ``text`` (if there is none, in lines of ``choices``) that are not seen where they are
    edited."""


class VersionShape(Struct):
    side: SideShape
    path: str
    known: bool = True


class ConflictShape(Struct):
    id: str
    path: str
    reason: str
    decided: bool
    places: int | None
    """Conflicting places in the text; None: it can only be decided as a whole."""
    base: VersionShape
    ours: VersionShape
    theirs: VersionShape
    versions: str
    """A fingerprint of the three sides, and of what is decided: a decision is held to it."""
    regions: list[RegionShape] | None = None
    """Only of one that was asked for by its id. None then, too: it can only be decided as a whole; or, if it has
    ``places``, it is too much to be shown place by place, and can be decided so without a look, or in an editor."""
    take: Take | Literal[""] = ""
    """What is decided."""
    secret: bool = False
    """It is shown to nobody, and can only be decided as a whole."""
    result: ResultShape | None = None
    """Only of one that was asked for by its id, and is decided. None then, too: it is not shown, or no file is left."""


class ConflictsShape(Struct):
    fork: str
    created: int
    """When it was made: another one may have had its name."""
    conflicts: list[ConflictShape]


class DecideRequestShape(Struct, forbid_unknown_fields=True):
    id: str
    versions: str
    take: Literal["ours", "theirs", "both", "delete", "regions", "text", "undecide"]
    """``ours``: the project's. ``text``: of what is decided, the ``text`` is edited as a whole."""
    regions: list[Choice] = []
    """For ``regions``: what becomes of each conflicting place, in order."""
    lines: list[str] = []
    """For ``text``: all of them, without their ends."""
    begun: list[str] | None = None
    """For ``text``: the lines that these were made of. If others are decided by now, these and those are merged; the
    answer is 409 ``overlaps`` if that cannot be. None: nothing is merged."""


class DecidedShape(Struct):
    conflict: ConflictShape | None
    """As it is now; None: it is none any more."""
    beside: str = ""
    """With ``both``, of what cannot be merged: where the fork's file will be."""
