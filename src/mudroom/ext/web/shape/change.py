"""A fork's changes, applies, and jobs."""

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
    ``leads-outside`` (a link), ``reduced-mode`` (it lands with fewer bits than the fork has) …: the review filters
    by them, and by ``repository`` (``ApplyRequestShape.git``), ``binary``, ``large``, ``ignored``, ``conflict``."""
    source: str = ""
    """A renamed file's former path."""
    mode: tuple[str, str] | None = None
    """Both modes, if they differ and the type is the same."""
    original_known: bool = True
    hunks: bool = False
    """Whether hunks can be chosen."""
    stamp: str = ""
    """Changes as soon as either side changes: a choice of hunks is void then."""
    needs: list[str] = []
    """Ids of the rows without which this row cannot be applied (core/tree/dependent_rows.py)."""
    runs: str = ""
    """When the file runs by itself later, in words; empty if it does not."""
    new_mode: str = ""
    """The mode with which the entry lands; empty for a symbolic link or a deletion."""
    target: str = ""
    """A symbolic link's target, if it is not deleted."""
    owner: str = ""
    """``uid:gid`` if the owner is neither the user nor the owner of the project's entry."""
    risk: str = ""
    """What a mistake in it costs: ``later``, ``weakened``, ``code``, ``settings``, ``tests``, ``prose``, ``generated``,
    ``dull`` (ext/order/core/risk.py)."""
    weight: int = 0
    """Of its signs: heavier rows come first among those of one risk."""
    reasons: list[str] = []
    """Why to look at it, in words."""


class PushedCommitShape(Struct):
    id: str
    subject: str


class PushedRefShape(Struct):
    ref: str
    verb: Literal["new", "moved", "deleted"]
    commits: list[PushedCommitShape]
    """Newest first."""
    lines: tuple[int, int] | None
    """Lines added and removed; None: the project's repository in the fork does not have these commits."""
    flags: list[str]


class PushShape(Struct):
    """A git push, publish or other request that waits for an apply."""

    name: str
    """For an apply that sends it: binds the content that was shown."""
    label: str
    kind: Literal["push", "publish", "request", "mail"]
    remote: str
    state: str
    why: str
    refs: list[PushedRefShape]
    needs: list[str] = []
    """Labels of the effects before it that are sent first: an apply that sends it has these, too."""
    details: list[str] = []
    """Of a publish its files, of another request its headers and body."""


class RootShape(Struct):
    """Another project in which a fork has changes. The paths of their rows are absolute."""

    path: str
    label: str
    """``your home``, or the path."""


class ChangesShape(Struct):
    fork: str
    fingerprint: str
    """Fingerprint for all changes; an apply is bound to it."""
    summary: SummaryShape
    total: int
    """Number of all rows; ``rows`` holds those from ``first`` on."""
    first: int
    rows: list[RowShape]
    remarks: list[RemarkShape]
    conflicts: int | None
    """Undecided conflicts with the present project. None: not computed here, because there are too many changes."""
    drifted: list[RemarkShape]
    """The first 100 paths that the project has changed as well: merged, or in conflict."""
    drift: int | None
    """How many such paths there are. None: too many changes; ask ``standing``."""
    credentials: list[str]
    running: bool = False
    """A command runs in the fork; its changes may be missing."""
    created: int = 0
    """The fork's creation time, which differs for another fork with the same name."""
    settings: list[str] = []
    """Changes to the agent's settings in the fork, in words. Only ``mudroom agent settings`` lands them."""
    in_use: str = ""
    """Why these rows are a look and not a review, as words to follow the fork's name ("is mounted at /x"): no apply
    accepts their fingerprint. Empty: they are a review."""
    pushes: list[PushShape] = []
    roots: list[RootShape] = []


class LineShape(Struct, array_like=True):
    kind: Literal[" ", "-", "+"]
    old: int
    """Line number, from 1; 0: not on this side."""
    new: int
    text: str
    """Without its newline."""
    block: int = -1
    """Its changed block's number; -1: unchanged."""
    words: list[Span] = []
    """Spans that differ from the line it replaces, or is replaced by."""
    odd: list[Span] = []
    """Spans that are escapes for bytes that are not text, as ``\\xff``."""
    cut: int = 0
    """Bytes at a long line's end that are not sent."""
    ends: bool = True
    """Whether it ends with a newline."""
    until: int = 0
    """For a cut line: where the rest begins, as ``column`` in a request for its text."""


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
    risk: str = ""
    """That of its costliest block; ``dull`` only if all its blocks are proven to change nothing."""
    reasons: list[str] = []
    """Why to look at it; of a dull hunk its proof."""


class SideShape(Struct):
    """One side of a change; ``exists`` is False if there is no file."""

    exists: bool
    type: str = ""
    size: int = 0
    mode: str = ""
    target: str = ""
    """A symbolic link's target."""
    lines: int = 0
    image: str = ""
    """The image's media type, if browsers can show it; otherwise empty."""


class MovedShape(Struct):
    """The other end of a file that was moved and changed, found by similarity. Each end is a row of its own, and chosen
    by itself."""

    id: str
    path: str
    similarity: int
    """In percent, as git computes it."""
    compared: bool
    """Whether ``old`` is the file at that path, and the hunks compare with it: for viewing, not for choosing. Lines on
    the old side are then from that path. False for a deleted file, and with ``as_new``."""


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
    """The hunks from ``first`` on, with about as many lines as requested."""
    first: int = 0
    following: int | None = None
    """The hunk at which the next page begins; None: this is the last page."""
    total: int = 0
    """Number of all hunks."""
    flags: list[str] = []
    version: str = ""
    """Fingerprint for both sides; a further page is refused if it has changed."""
    divisible: bool = False
    """Whether blocks can be chosen."""
    moved: MovedShape | None = None
    """For an added or deleted file: the other end, if it was moved and changed."""
    parts: str = ""
    """The parts by which ``/view`` shows the file: ``packages``, ``cells``, ``keys``, ``tables``, ``members``; empty:
    it has none."""
    parts_first: bool = False
    """Whether they say more than the lines."""


class ObservedHunkShape(Struct):
    blocks: list[int]
    """The hunk's changed blocks; none: it is about the whole file."""
    lines: list[str]
    """What was observed, for people; the main line first."""


class ObservedShape(Struct):
    hunks: list[ObservedHunkShape]


class TextShape(Struct):
    """Unchanged lines of one side."""

    first: int
    total: int
    """Number of lines; a lower bound if not ``whole``."""
    lines: list[LineShape]
    whole: bool = True
    """Whether the file was read to its end: only the beginning of a very large file is."""


class PickShape(Struct, forbid_unknown_fields=True):
    id: str
    blocks: list[int] | None = None
    """The chosen blocks in a file with hunks. None: the whole file."""
    mode: bool = True
    """Whether its mode change is chosen."""


class ApplyRequestShape(Struct, forbid_unknown_fields=True):
    reviewed: str
    """The reviewed state's fingerprint."""
    files: list[PickShape] | None = None
    """None: all changes."""
    git: bool = False
    backups: bool = False
    markers: bool = False
    commit: str = ""
    """Message: commit the applied files as one commit on the checked-out branch; not with ``git``, ``backups`` or
    ``markers``. Refused, with nothing applied, if no commit could be made. Empty: no commit."""
    pushes: list[str] = []
    """Names of held pushes: sent after the files have landed."""


class UndoRequestShape(Struct, forbid_unknown_fields=True):
    apply: str = ""
    """Empty: the last apply."""


class RefusedRequestShape(Struct, forbid_unknown_fields=True):
    apply: str


class RefusedForkShape(Struct):
    fork: str


class ConflictRowShape(Struct):
    id: str
    path: str
    reason: str


class MadeCommitShape(Struct):
    id: str
    branch: str
    """The branch's short name; empty: HEAD is detached."""
    files: int
    with_changes: list[str] = []
    """Files in the commit that include the user's uncommitted changes."""
    left_out: list[str] = []
    """Applied files that are not in the commit: ignored by git, or in another repository."""


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
    """The outcome of the policy's verify command, in words; empty: no such command. Its output is the job's
    ``output``."""
    kept: list[str] = []
    """Paths where the project's version was kept, as decided; undo brings the fork's version back into the fork."""
    again: list[str] = []
    """For an undo: paths that are in the fork again, because the project's version had been kept. For a redo: paths
    that are out of it again."""
    holder: str = ""
    """That fork's present name."""
    summary: str = ""
    """The outcome as a phrase (core/merge/apply_summary.py); empty if the verify command failed."""
    commit: MadeCommitShape | None = None
    """The requested commit."""
    commit_problem: str = ""
    """Why the requested commit was not made; applied files stay applied."""
    pushes_left: bool = False
    """A push is not where it was to be brought: a remark says why."""


class JobShape(Struct):
    """Work that takes a while. It continues whether a client listens or not."""

    id: str
    project: str
    fork: str
    what: Literal["apply", "undo", "redo", "measure", "verify-journal", "verify-forks", "send"]
    state: Literal["running", "done", "failed"]
    phase: str = ""
    done: int = 0
    total: int = 0
    output: str = ""
    """The end of the verify command's output, updated as it arrives."""
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
    """The first 100 such paths."""
    conflicts: int | None
    """Undecided conflicts; None: not computed (``conflicts=true`` computes them)."""


class CommitRowShape(Struct):
    id: str
    subject: str
    """One line. As in all commit texts, invisible and control characters are escaped."""
    author: str
    """Name and mail address."""
    time: int
    """The author's time."""
    labels: list[str]
    """The refs that point to it, as git shows them: ``HEAD -> main``, ``tag: v1``."""
    parents: int
    """Number of parents; more than one: a merge, shown against its first parent."""


class CommitListShape(Struct):
    fork: str
    branch: str
    """Full name of the branch at the fork's HEAD; empty: none."""
    total: int
    """Number of all commits; ``commits`` holds the newest 2,000."""
    commits: list[CommitRowShape]
    """Oldest first."""
    problem: str = ""
    """Why the fork's repository cannot be read."""


class CommitFileShape(Struct):
    id: str
    path: str
    change: Verb
    kind: Literal["text", "binary", "large", "masked", "renamed"]
    """``masked``: a secret, which is not shown."""
    source: str = ""
    """A renamed file's former path."""
    mode: tuple[str, str] | None = None
    added: int = 0
    removed: int = 0
    hunks: list[HunkShape] = []
    """Hunks from ``first`` on; a cut line ends with ``…``."""
    following: int | None = None
    """The hunk at which the next page begins, with ``file``; None: there is none."""


class CommitShape(Struct):
    commit: CommitRowShape
    message: str
    committer: str
    added: int
    removed: int
    files: list[CommitFileShape]
    more: bool
    """Whether the commit has more files than these."""
