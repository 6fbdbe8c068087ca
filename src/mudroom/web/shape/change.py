"""What a fork would change, what is applied of it, and conflicts."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from mudroom.web.shape.place import ProblemShape, RemarkShape, SummaryShape

Verb = Literal["added", "modified", "deleted", "renamed"]
Span = tuple[int, int]


class RowShape(Struct):
    """One change, as a person counts them."""

    id: str
    path: str
    change: Verb
    type: str
    """``file``, ``directory``, ``symlink``, ``fifo``, ``socket``, ``device``."""
    added: int = 0
    removed: int = 0
    size: int = 0
    flags: list[str] = []
    """``executes-later``, ``secret``, ``protected``, ``mode`` …: the review filters by them, and by ``repository``
    (``ApplyRequestShape.git``), ``binary``, ``large``, ``ignored``, ``conflict``."""
    source: str = ""
    """Of what was renamed: where it was."""
    mode: tuple[str, str] | None = None
    original_known: bool = True
    hunks: bool = False
    """Whether hunks can be chosen from it."""
    stamp: str = ""
    """Another one as soon as either side is another: what was chosen of its hunks is not a choice any more then."""
    needs: list[str] = []
    """Ids of the rows without which this row cannot be applied (core/tree/dependent_rows.py)."""


class ChangesShape(Struct):
    fork: str
    fingerprint: str
    """Of all that is there: an apply is held to it."""
    summary: SummaryShape
    total: int
    """Rows there are; ``rows`` are those from ``first`` on."""
    first: int
    rows: list[RowShape]
    remarks: list[RemarkShape]
    conflicts: int | None
    """Rows that do not go together with the project as it is now, and are not decided. None: of so many changes that is
    not found out on the way."""
    drifted: list[RemarkShape]
    """What the project has changed itself meanwhile: merged, or in conflict. The first 100."""
    drift: int | None
    """How many there are. None: of so many changes that is asked for apart (``standing``)."""
    credentials: list[str]
    running: bool = False
    """A command is at work in it: what that one changes may be missing here."""
    created: int = 0
    """When the fork was made: another one of the same name was made at another time."""


class LineShape(Struct, array_like=True):
    kind: Literal[" ", "-", "+"]
    old: int
    """Its number, from 1; 0: not on this side."""
    new: int
    text: str
    """Without its newline."""
    block: int = -1
    """The number of the changed block that it belongs to; -1: unchanged."""
    words: list[Span] = []
    """What is different in it from the line that it replaces, or is replaced by."""
    odd: list[Span] = []
    """What stands for bytes that are no text, as ``\\xff``."""
    cut: int = 0
    """Bytes at the end of a long line that are not here."""
    ends: bool = True
    """Whether it ends with a newline."""
    until: int = 0
    """Of a line that is cut: where the rest begins, as ``column`` of a request for its text."""


class HunkShape(Struct):
    blocks: list[int]
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: list[LineShape]
    section: str = ""
    """The line above that it belongs to, as git finds it."""
    continued: bool = False
    """It goes on where the one before it ends: what has too many lines for one comes in several."""


class SideShape(Struct):
    """One side of a change; of a file that is not there, ``exists`` is False."""

    exists: bool
    type: str = ""
    size: int = 0
    mode: str = ""
    target: str = ""
    """Of a symbolic link."""
    lines: int = 0
    image: str = ""
    """A media type that a browser shows as an image; empty: none."""


class MovedShape(Struct):
    """The other end of a file that was moved and changed in one go, told by how alike both are. Each end is a row of
    its own, and chosen by itself."""

    id: str
    path: str
    similarity: int
    """In percent, as git has it."""
    compared: bool
    """Whether ``old`` is what is at that path, and the hunks lead from there: for looking, not for choosing. Its lines
    are those of the old side of that path. False: of what was deleted, and with ``as_new``."""


class DifferenceShape(Struct):
    id: str
    path: str
    kind: Literal["text", "binary", "image", "link", "directory", "large", "masked", "unknown"]
    """What there is to see."""
    old: SideShape
    new: SideShape
    language: str
    """For colours: a name that the highlighter knows; empty: none."""
    blocks: int
    """Changed blocks in the whole file."""
    hunks: list[HunkShape]
    """Those from ``first`` on; with about as many lines as were asked for."""
    first: int = 0
    following: int | None = None
    """The hunk at which the next page begins; None: that was all."""
    total: int = 0
    """Hunks there are."""
    flags: list[str] = []
    version: str = ""
    """Of both sides: of another one, no further page is given."""
    divisible: bool = False
    """Whether blocks can be chosen from it."""
    moved: MovedShape | None = None
    """Of what was added or deleted: where it was moved from, or to, and changed."""


class TextShape(Struct):
    """Lines of one side as they are."""

    first: int
    total: int
    """Lines there are; at least, of one that is not read as a ``whole``."""
    lines: list[LineShape]
    whole: bool = True
    """Whether it was read to its end: of a very large file only the beginning is."""


class PickShape(Struct, forbid_unknown_fields=True):
    id: str
    blocks: list[int] | None = None
    """Of a file with hunks: the changed blocks that are wanted. None: all of the file."""
    mode: bool = True
    """Whether a change of its mode is wanted."""


class ApplyRequestShape(Struct, forbid_unknown_fields=True):
    reviewed: str
    """The fingerprint of what was looked at."""
    files: list[PickShape] | None = None
    """None: everything."""
    git: bool = False
    backups: bool = False
    markers: bool = False


class UndoRequestShape(Struct, forbid_unknown_fields=True):
    apply: str = ""
    """Empty: the last."""


class ConflictRowShape(Struct):
    id: str
    path: str
    reason: str


class LandedShape(Struct):
    state: Literal["applied", "conflicts", "unverified", "undone", "redone"]
    written: int
    removed: int
    conflicts: list[ConflictRowShape]
    merged: list[str]
    withheld: list[str]
    remarks: list[RemarkShape]
    undo: str
    remaining: int
    verified: str = ""
    """What became of the policy's verify command, in words; empty: it was not asked. What it said is the job's
    ``output``."""
    kept: list[str] = []
    """Where the project's was kept, as was decided; undo brings the fork's back into the fork."""
    again: list[str] = []
    """Of an undo: what is in the fork again, for the project's had been kept; of a redo: what is out of it again."""
    holder: str = ""
    """That fork, by the name it has now."""
    summary: str = ""
    """What was done, as a phrase (core/merge/apply_summary.py); empty if the verify command failed."""


class JobShape(Struct):
    """Something that takes a while. It goes on whether anybody looks or not."""

    id: str
    project: str
    fork: str
    what: Literal["apply", "undo", "redo", "measure", "verify-journal"]
    state: Literal["running", "done", "failed"]
    phase: str = ""
    done: int = 0
    total: int = 0
    output: str = ""
    """Of the verify command, as it comes; the last of it."""
    landed: LandedShape | None = None
    result: dict[str, Any] | None = None
    problem: ProblemShape | None = None


class StandingShape(Struct):
    """How a fork stands to the project as that is now: cheap, and to be asked often."""

    fingerprint: str
    moved: bool
    """The fork is not what was looked at any more (``reviewed``)."""
    running: bool
    drift: int
    """Paths that the fork changes and the project has changed itself, since."""
    drifted: list[RemarkShape]
    """The first 100 of them."""
    conflicts: int | None
    """Those that are not decided; None: nobody has worked that out (``conflicts=true``)."""
