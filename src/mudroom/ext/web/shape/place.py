"""Projects, forks, and folders."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class ProblemShape(Struct):
    """Why a request failed, in one line, with a hint about what to do."""

    error: str
    code: str
    """``bad-request``, ``unauthorized``, ``forbidden``, ``not-found``, ``moved`` (the reviewed state has changed),
    ``decided`` (decided elsewhere first), ``busy``, ``recovered`` (only the recovery of an interrupted apply has
    happened), ``failed``."""
    hint: str = ""


class MeShape(Struct):
    version: str
    roots: list[str]
    """Directories below which a project may be chosen."""
    sandbox: list[str] = []
    """Certified and closed parts of this machine's sandbox, with reasons, a line each; empty where no certificate is
    needed."""


class RemarkShape(Struct):
    id: str
    path: str
    text: str


class BadgeShape(Struct):
    """How commands are isolated from the machine, in plain words."""

    level: int | None
    """None: refused, or unknown."""
    safe: bool
    label: str
    """``Sandboxed: safe to edit`` …"""
    why: str


class NoticeShape(Struct):
    """A row of the first view: a question, or a fork that runs or needs the user."""

    kind: Literal["question", "damaged", "conflict", "unverified", "answered", "cut off", "finished", "running", "idle"]
    """``conflict``: some of its files conflict with the project as it is now, and are not decided. ``unverified``: the
    ``verify`` command has refused its last apply. ``answered``: its agent is done with the remarks that it was sent.
    ``finished``: it holds changes and waits for a review."""
    fork: str
    agent: str
    files: int
    """Changed files; for ``conflict``: those in conflict; for ``answered``: the remarks."""
    badge: BadgeShape
    exit_code: int | None = None
    """Its last command's exit code; None: none has ended. ``unverified``: that of ``verify``."""
    command: str = ""
    """Its last command, as a shell reads it. ``unverified``: ``verify``. ``question``: the command or the host."""
    ended: int = 0
    """When that command's changes were recorded, or the question was asked, milliseconds since 1970; 0: not known."""
    order: list[int] = []
    """Rows of several projects are sorted by it."""
    words: str = ""
    """What has happened, for people; ``command`` follows."""
    action: str = ""
    """The name of the link to the decision."""
    question: str = ""
    """The question's id; empty: the row is about a fork."""


class ProjectRowShape(Struct):
    id: str
    path: str
    exists: bool
    forks: int
    unapplied: int
    """Changed files in all forks that are not applied."""
    questions: int
    running: int
    remarks: list[str] = []
    notices: list[NoticeShape] = []
    """Its questions and newest forks, the most urgent first."""


class SummaryShape(Struct):
    added: int
    modified: int
    deleted: int
    renamed: int
    lines_added: int
    lines_removed: int
    size: int


class PartOfShape(Struct):
    project: str
    """The other project's id."""
    path: str


class ForkShape(Struct):
    name: str
    agent: str
    named: bool
    created: int
    parent: str
    command: str
    """The last command; empty: none yet, or it was cut off."""
    state: Literal["idle", "running", "mounted", "cut off", "damaged"]
    badge: BadgeShape
    summary: SummaryShape
    checkpoints: int
    credentials: list[str]
    snapshot: bool
    exit_code: int | None = None
    """The last command's exit code: 128 plus the signal, if a signal ended it."""
    problem: str = ""
    """Why a damaged fork cannot be read."""
    fingerprint: str = ""
    """Fingerprint for its changes; a discard can be bound to it. Empty: unknown, if the fork is damaged."""
    endpoint: str = ""
    """URL of the agent that runs in it, for forks that may reach it; empty: none is registered."""
    host: str = ""
    """Host of its servers, at the page's port; empty: no command runs there that could have one."""
    also_in: list[str] = []
    """Other projects in which it has changes, by their names; ``your home`` is one. ``summary`` counts them all."""
    part_of: PartOfShape | None = None
    """It is a part of another project's fork of the same name, which is reviewed and discarded with it."""


class ApplyShape(Struct):
    id: str
    state: str
    """``applied``, ``undone``, ``deferred``, ``interrupted``."""
    fork: str
    """Empty: unknown."""
    time: int
    """Milliseconds since 1970; 0: unknown."""
    written: int
    removed: int
    conflicts: int = 0
    kept: int = 0
    """Files that were not written, because the decision kept the project's version."""
    refused: bool = False
    """Whether its undo left files to decide about; only of the last that was undone."""
    sent: list[str] = []
    """The effects that it has sent, and what its undo can do about each, one line each."""


class ProjectShape(Struct):
    id: str
    path: str
    badge: BadgeShape
    """For a command that would run there now."""
    forks: list[ForkShape]
    applies: list[ApplyShape]
    """Newest first."""
    verify: str
    """The command that must succeed before an apply; empty: none."""
    notes: list[str] = []
    repository: bool = False
    """Whether it is a git repository: an apply can be committed."""


class FolderShape(Struct):
    id: str
    """Its absolute path's bytes, encoded like other ids."""
    path: str
    name: str
    is_project: bool = False
    """Whether it looks like a project: it holds a repository, a package file or a policy."""
    vault: str = ""
    """Its project's id, if it is already a project."""
    problem: str = ""
    """Why it cannot be read; empty: it can."""


class FoldersShape(Struct):
    at: FolderShape | None
    """None: the roots."""
    above: str | None
    """The parent folder's id, if it may be read; empty: the roots. None: there is none."""
    folders: list[FolderShape]
    refused: str = ""
    """Why it cannot be a project; empty: it can."""
    more: int = 0
    """Number of unlisted folders."""


class OpenRequestShape(Struct, forbid_unknown_fields=True):
    id: str
    """The folder's id."""


class MeasureShape(Struct):
    """The cost of staging a folder."""

    files: int
    size: int
    complete: bool
    excluded: list[RemarkShape]
    """Paths that a staged copy would leave out, with their size in words."""
    limit: int
    """A staged copy's limit; an overlay copies no files."""
    view: str
    badge: BadgeShape
    secrets: list[str]
    """The first 50 files that commands see empty."""
    notes: list[str] = []
    copied: int = 0
    """Bytes in a staged copy, without the paths it leaves out."""
    excluded_total: int = 0
    """Number of excluded paths; ``excluded`` holds the largest 50."""
    secrets_total: int = 0


class ForkRequestShape(Struct, forbid_unknown_fields=True):
    name: str
    parent: str = ""
    at: str = ""
    snapshot: bool = False


class RenameRequestShape(Struct, forbid_unknown_fields=True):
    name: str


class DoneShape(Struct):
    done: bool = True
