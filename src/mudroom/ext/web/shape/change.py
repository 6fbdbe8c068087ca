"""Changes of a fork, applies, and jobs."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from mudroom.ext.web.shape.place import ProblemShape, RemarkShape, SummaryShape

Verb = Literal["added", "modified", "deleted", "renamed"]
Span = tuple[int, int]


class RowShape(Struct):
    """One change, as a person counts changes."""

    id: str
    path: str
    change: Verb
    type: str
    """``file``, ``directory``, ``symlink``, ``fifo``, ``socket``, ``device``."""
    added: int = 0
    removed: int = 0
    size: int = 0
    flags: list[str] = []
    """``executes-later``, ``secret``, ``protected``, ``new-repository``, ``work-tree``, ``submodule``, ``mode``,
    ``leads-outside`` (a link), ``reduced-mode`` (it lands with fewer bits than the fork has) …: the review filters by
    them, and by ``repository`` (``ApplyRequestShape.git``), ``binary``, ``large``, ``ignored``, ``conflict``."""
    source: str = ""
    """The former path of a renamed file."""
    mode: tuple[str, str] | None = None
    """Both modes, if they differ and the type is the same."""
    original_known: bool = True
    hunks: bool = False
    """Whether hunks can be chosen."""
    stamp: str = ""
    """Differs as soon as either side differs: a choice of hunks is void then."""
    needs: list[str] = []
    """Ids of the rows without which this row cannot be applied (core/tree/dependent_rows.py)."""
    runs: str = ""
    """When the file runs by itself later, in words; empty if it does not."""
    new_mode: str = ""
    """The mode that the entry lands with; empty for a symbolic link, and if it is deleted."""
    target: str = ""
    """Target of a symbolic link, if it is not deleted."""
    owner: str = ""
    """``uid:gid`` if the owner is neither the user nor the owner of the project's entry."""


class ChangesShape(Struct):
    fork: str
    fingerprint: str
    """Fingerprint of all changes; an apply is bound to it."""
    summary: SummaryShape
    total: int
    """Number of all rows; ``rows`` holds those from ``first`` on."""
    first: int
    rows: list[RowShape]
    remarks: list[RemarkShape]
    conflicts: int | None
    """Undecided conflicts with the project as it is now. None: there are too many changes to find that out here."""
    drifted: list[RemarkShape]
    """The first 100 paths that the project has changed as well: merged, or in conflict."""
    drift: int | None
    """Number of these paths. None: there are too many changes; ask ``standing`` for it."""
    credentials: list[str]
    running: bool = False
    """A command runs in the fork; its changes may be missing."""
    created: int = 0
    """Creation time of the fork; another fork of the same name has another one."""
    settings: list[str] = []
    """Changes of the settings of the fork's agent, in words. They land by ``mudroom agent settings`` alone."""
    in_use: str = ""
    """Why these rows are a look and no review, to follow the fork's name ("is mounted at /x"): no apply accepts their
    fingerprint. Empty: they are a review."""


class LineShape(Struct, array_like=True):
    kind: Literal[" ", "-", "+"]
    old: int
    """Line number, from 1; 0: not on this side."""
    new: int
    text: str
    """Without its newline."""
    block: int = -1
    """Number of its changed block; -1: unchanged."""
    words: list[Span] = []
    """Spans that differ from the line it replaces, or is replaced by."""
    odd: list[Span] = []
    """Spans that are escapes for bytes that are not text, as ``\\xff``."""
    cut: int = 0
    """Bytes at the end of a long line that are not sent."""
    ends: bool = True
    """Whether it ends with a newline."""
    until: int = 0
    """Of a cut line: where the rest begins, as ``column`` of a request for its text."""


class HunkShape(Struct):
    blocks: list[int]
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: list[LineShape]
    section: str = ""
    """The line above that git would show in the hunk header."""
    continued: bool = False
    """The hunk continues the one before: a hunk with too many lines is sent in several parts."""


class SideShape(Struct):
    """One side of a change; ``exists`` is False if there is no file."""

    exists: bool
    type: str = ""
    size: int = 0
    mode: str = ""
    target: str = ""
    """Target of a symbolic link."""
    lines: int = 0
    image: str = ""
    """The media type of an image that browsers show; empty: no image."""


class MovedShape(Struct):
    """The other end of a file that was moved and changed, found by similarity. Each end is a row of its own, and chosen
    by itself."""

    id: str
    path: str
    similarity: int
    """In percent, as git computes it."""
    compared: bool
    """Whether ``old`` is the file at that path, and the hunks compare with it: for viewing, not for choosing. Lines of
    the old side are then those of that path. False: of a deleted file, and with ``as_new``."""


class DifferenceShape(Struct):
    id: str
    path: str
    kind: Literal["text", "binary", "image", "link", "directory", "large", "masked", "unknown"]
    """How the change is shown."""
    old: SideShape
    new: SideShape
    language: str
    """The language for highlighting; empty: none."""
    blocks: int
    """Changed blocks in the whole file."""
    hunks: list[HunkShape]
    """The hunks from ``first`` on, with about as many lines as were asked for."""
    first: int = 0
    following: int | None = None
    """The hunk at which the next page begins; None: this is the last page."""
    total: int = 0
    """Number of all hunks."""
    flags: list[str] = []
    version: str = ""
    """Fingerprint of both sides; a further page is refused if it has changed."""
    divisible: bool = False
    """Whether blocks can be chosen."""
    moved: MovedShape | None = None
    """Of an added or deleted file: the other end, if it was moved and changed."""


class TextShape(Struct):
    """Unchanged lines of one side."""

    first: int
    total: int
    """Number of lines; a lower bound if not ``whole``."""
    lines: list[LineShape]
    whole: bool = True
    """Whether the file was read to its end: of a very large file only the beginning is."""


class PickShape(Struct, forbid_unknown_fields=True):
    id: str
    blocks: list[int] | None = None
    """The chosen blocks of a file with hunks. None: all of the file."""
    mode: bool = True
    """Whether a change of its mode is chosen."""


class ApplyRequestShape(Struct, forbid_unknown_fields=True):
    reviewed: str
    """The fingerprint of the reviewed state."""
    files: list[PickShape] | None = None
    """None: all changes."""
    git: bool = False
    backups: bool = False
    markers: bool = False
    commit: str = ""
    """Message: commit the applied files as one commit on the checked-out branch; not with ``git``, ``backups`` or
    ``markers``. Refused, with nothing applied, if no commit could be made. Empty: no commit."""


class UndoRequestShape(Struct, forbid_unknown_fields=True):
    apply: str = ""
    """Empty: the last apply."""


class ConflictRowShape(Struct):
    id: str
    path: str
    reason: str


class MadeCommitShape(Struct):
    id: str
    branch: str
    """Short name of the branch; empty: HEAD is detached."""
    files: int
    with_changes: list[str] = []
    """Files that held changes of the user which were not committed: they are in the commit."""
    left_out: list[str] = []
    """Applied files that are not in the commit: ignored by git, or of another repository."""


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
    """The outcome of the policy's verify command, in words; empty: no such command. Its output is the job's ``output``.
    """
    kept: list[str] = []
    """Paths where the project's version was kept, as decided; undo brings the fork's version back into the fork."""
    again: list[str] = []
    """Of an undo: paths that are in the fork again, because the project's version had been kept; of a redo: paths that
    are out of it again."""
    holder: str = ""
    """The present name of that fork."""
    summary: str = ""
    """The outcome as a phrase (core/merge/apply_summary.py); empty if the verify command failed."""
    commit: MadeCommitShape | None = None
    """The commit that was requested."""
    commit_problem: str = ""
    """Why the requested commit was not made; applied files stay applied."""


class JobShape(Struct):
    """Work that takes a while. It continues whether a client listens or not."""

    id: str
    project: str
    fork: str
    what: Literal["apply", "undo", "redo", "measure", "verify-journal"]
    state: Literal["running", "done", "failed"]
    phase: str = ""
    done: int = 0
    total: int = 0
    output: str = ""
    """The end of the output of the verify command, updated as it arrives."""
    landed: LandedShape | None = None
    result: dict[str, Any] | None = None
    problem: ProblemShape | None = None


class StandingShape(Struct):
    """How a fork relates to the project as it is now: cheap, to be asked often."""

    fingerprint: str
    moved: bool
    """The fork differs from the reviewed state (``reviewed``)."""
    running: bool
    drift: int
    """Number of paths that both the fork and the project have changed."""
    drifted: list[RemarkShape]
    """The first 100 of them."""
    conflicts: int | None
    """Undecided conflicts; None: not computed (``conflicts=true`` computes them)."""
