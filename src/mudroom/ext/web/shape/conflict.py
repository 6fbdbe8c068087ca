"""A fork's conflicts with the project: all sides, decisions, and requests to decide."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mudroom.core.merge.resolution_words import Choice, Take
from mudroom.ext.web.shape.change import LineShape, SideShape


class RegionShape(Struct):
    """A part of a three-way merge; the regions in order are the whole file. A side that equals another one is not sent
    twice: ``same`` and ``both`` have ``ours`` (``both`` also the base), ``ours`` and ``theirs`` have that side and the
    base."""

    kind: Literal["same", "ours", "theirs", "both", "conflict"]
    base: list[LineShape]
    ours: list[LineShape]
    theirs: list[LineShape]
    number: int = 0
    """A conflict's number, from 1; 0: not a conflict."""
    hidden: int = 0
    """For ``same``: lines in the middle that are not sent. ``ours`` has up to three lines from each end."""
    more: tuple[int, int, int] = (0, 0, 0)
    """Lines at the end of base, ours and theirs that are not sent, if there are very many."""
    texts: tuple[str, str, str] | None = None
    """For a conflict: base, ours and theirs unchanged, for editing, with their line ends. None: too long."""


class ResultShape(Struct):
    """The result of a decided conflict: the file as it will be."""

    size: int
    choices: list[Choice] | None = None
    """The choice for each conflicting place, in order; with ``regions`` that is the whole result. None: it was not
    decided place by place."""
    lines: list[LineShape] = []
    """The beginning of a text that was not decided place by place."""
    more: int = 0
    """Further lines that are not sent."""
    text: str | None = None
    """The whole text, for editing; None: it is binary, too long for that, or has carriage returns within lines."""
    unseen: bool = False
    """``text`` (or, without it, lines in ``choices``) has characters that are invisible in an editor."""


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
    """Number of conflicting places in the text; None: it can only be decided as a whole."""
    base: VersionShape
    ours: VersionShape
    theirs: VersionShape
    versions: str
    """Fingerprint for the three sides and the decision; a new decision is bound to it."""
    regions: list[RegionShape] | None = None
    """Sent only for a conflict requested by its id. None also if it can only be decided as a whole; or, if it has
    ``places``, if it is too long to be shown place by place: it can then be decided without being shown, or in an
    editor."""
    take: Take | Literal[""] = ""
    """The decision."""
    rule: str = ""
    """The rules that merge it, such as "both sides only insert": ``take`` may be ``rule``."""
    secret: bool = False
    """The content is never shown, and the conflict can only be decided as a whole."""
    result: ResultShape | None = None
    """Sent only for a decided conflict requested by its id. None also if it is not shown, or no file is left."""
    how: str = ""
    """The rule or program that made the decided content; empty: the user."""
    command: str = ""
    """Makes a lock file again: ``mudroom resolve FORK PATH --rule`` runs it."""


class ConflictsShape(Struct):
    fork: str
    created: int
    """The fork's creation time; another fork may have had its name."""
    conflicts: list[ConflictShape]


class DecideRequestShape(Struct, forbid_unknown_fields=True):
    id: str
    versions: str
    take: Literal["ours", "theirs", "both", "delete", "regions", "text", "rule", "undecide"]
    """``ours``: the project's version. ``rule``: as the rules of ``rule`` merge it. ``text``: the result's text was
    edited as a whole."""
    regions: list[Choice] = []
    """For ``regions``: the choice for each conflicting place, in order."""
    lines: list[str] = []
    """For ``text``: all lines, without their ends."""
    begun: list[str] | None = None
    """For ``text``: the lines that the edit started from. If the result's lines have changed since, both edits are
    merged; the answer is 409 ``overlaps`` if that is not possible. None: no merge."""


class DecidedShape(Struct):
    conflict: ConflictShape | None
    """The conflict now; None: it is resolved."""
    beside: str = ""
    """With ``both``, if the files cannot be merged: the path of the fork's file."""
