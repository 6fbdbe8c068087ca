"""Where we are: projects, forks, and new ones."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class ProblemShape(Struct):
    """Why a request was not carried out: in one line, with what to do about it."""

    error: str
    code: str
    """``bad-request``, ``unauthorized``, ``forbidden``, ``not-found``, ``moved`` (it is not what was looked at),
    ``decided`` (somebody else was first), ``busy``, ``recovered`` (what a crash had left was dealt with first, and only
    that has happened), ``failed``."""
    hint: str = ""


class MeShape(Struct):
    version: str
    roots: list[str]
    """Where a project may be chosen."""


class RemarkShape(Struct):
    id: str
    path: str
    text: str


class BadgeShape(Struct):
    """How what runs there is kept apart from the machine, in plain words."""

    level: int | None
    """None: refused, or not known."""
    safe: bool
    label: str
    """``Sandboxed: safe to edit`` …"""
    why: str


class ProjectRowShape(Struct):
    id: str
    path: str
    exists: bool
    forks: int
    unapplied: int
    """Changed files in all forks that are in no project yet."""
    questions: int
    running: int
    remarks: list[str] = []


class SummaryShape(Struct):
    added: int
    modified: int
    deleted: int
    renamed: int
    lines_added: int
    lines_removed: int
    size: int


class ForkShape(Struct):
    name: str
    agent: str
    named: bool
    created: int
    parent: str
    command: str
    """The last one; empty: none yet, or it was cut off."""
    state: Literal["idle", "running", "mounted", "cut off", "damaged"]
    badge: BadgeShape
    summary: SummaryShape
    checkpoints: int
    credentials: list[str]
    snapshot: bool
    exit_code: int | None = None
    """Of the last command: 128 and the signal, if one ended it."""
    problem: str = ""
    """Of a damaged one."""
    fingerprint: str = ""
    """Of what it holds: a discard can be held to it. Empty: it is not known, of a damaged one."""


class ApplyShape(Struct):
    id: str
    state: str
    """``applied``, ``undone``, ``deferred``, ``interrupted``."""
    fork: str
    """Empty: not known."""
    time: int
    """Milliseconds since 1970; 0: not known."""
    written: int
    removed: int
    conflicts: int = 0
    kept: int = 0
    """Files of which the project's was kept, as was decided: nothing of them was written."""


class ProjectShape(Struct):
    id: str
    path: str
    badge: BadgeShape
    """Of a command that would run there now."""
    forks: list[ForkShape]
    applies: list[ApplyShape]
    """Newest first."""
    verify: str
    """The command that has to succeed before an apply; empty: none."""
    notes: list[str] = []


class FolderShape(Struct):
    id: str
    """The bytes of its absolute path, as of other paths."""
    path: str
    name: str
    is_project: bool = False
    """Something in it says that it is one: a repository, a package file, a policy of ours."""
    vault: str = ""
    """The project that it is already."""
    problem: str = ""
    """Why it cannot be looked into; empty: it can."""


class FoldersShape(Struct):
    at: FolderShape | None
    """None: the roots."""
    above: str | None
    """The id of the folder around it, if that may be looked at; empty: the roots. None: there is none."""
    folders: list[FolderShape]
    refused: str = ""
    """Why it cannot be a project; empty: it can."""
    more: int = 0
    """Folders that are not listed."""


class OpenRequestShape(Struct, forbid_unknown_fields=True):
    id: str
    """Of the folder."""


class MeasureShape(Struct):
    """What staging would take."""

    files: int
    size: int
    complete: bool
    excluded: list[RemarkShape]
    """What a staged copy would leave out, and its size in words."""
    limit: int
    """Of a staged copy; with an overlay nothing is copied."""
    view: str
    badge: BadgeShape
    secrets: list[str]
    """What commands see empty: the first 50."""
    notes: list[str] = []
    copied: int = 0
    """Bytes of a staged copy, without what it leaves out."""
    excluded_total: int = 0
    """``excluded`` are the largest 50."""
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
