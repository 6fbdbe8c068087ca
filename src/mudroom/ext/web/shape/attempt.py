"""Tries: several attempts at one task, and the differences between their results."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mudroom.ext.web.shape.change import Verb


class MatrixPathShape(Struct):
    id: str
    path: str


class MatrixCellShape(Struct):
    """A fork with the project, or with another fork."""

    fork: str
    other: str
    """Empty: the project."""
    conflicts: int | None
    """Number of paths in conflict; None: not known."""
    paths: list[MatrixPathShape]
    """The first of them."""
    problem: str = ""
    """Why the conflicts are not known."""
    verified: bool | None = None
    """Whether the policy's verify command passes on both together; None: not known."""
    verified_at: int = 0
    """When it ran, in milliseconds since 1970."""


class MatrixShape(Struct):
    forks: list[str]
    """The forks that are compared, oldest first."""
    cells: list[MatrixCellShape]
    """Each fork with the project, then each pair."""
    forks_left: int
    """Number of older forks that are not compared."""
    verify: str = ""
    """The policy's verify command; empty: an apply is not verified."""


class TryRowShape(Struct):
    name: str
    command: str
    """With ``{i}`` for the attempt's number."""
    judge: str
    """The command that judges; empty: each attempt's exit code does."""
    started: int
    ended: int
    """0: it has not ended."""
    running: bool
    attempts: int
    results: int
    """Number of different results."""
    passed: int
    """Number of attempts that passed."""
    best: int
    """Number of the best attempt; 0: none has passed."""
    problem: str = ""
    """Why its record cannot be read; the other fields are empty then."""


class CandidateShape(Struct):
    """One result of a try, and the fork to review it in."""

    attempts: list[int]
    """Numbers of the attempts with this result."""
    fork: str
    """Empty: it is gone, or cannot be read."""
    standing: Literal["ready", "changed", "running", "gone", "damaged", "none"]
    """Its fork: as judged; changed since; running a command; applied or discarded; unreadable; or the attempt had
    none."""
    best: bool
    state: str
    """The attempt's state: ``passed``, ``failed``, ``running``, ``ended early``, ``timed out``, ``refused``, ``not
    started``, ``error``, ``interrupted``."""
    exit_code: int
    judged: int | None
    """The judge's exit code; None: not judged."""
    score: float | None
    added: int
    modified: int
    deleted: int
    lines: int
    """Lines added and removed."""
    seconds: float
    compared: bool
    note: str = ""
    """A remark in one line, or empty."""


class ResultGroupShape(Struct):
    """Candidates with the same result at a path."""

    candidates: list[int]
    """Indexes into the list of candidates."""
    change: Verb
    added: int
    removed: int


class ComparedPathShape(Struct):
    id: str
    path: str
    extent: Literal["different", "some", "unknown", "same"]
    """The candidates' changes differ; only some changed it; shapes are equal and contents were not compared; all made
    the same change."""
    groups: list[ResultGroupShape]
    unchanged: list[int]
    """Candidates that did not change it."""
    compared: bool
    """False: contents with equal size were not read."""


class ExtentCountsShape(Struct):
    different: int
    some: int
    unknown: int
    same: int


class TryShape(Struct):
    row: TryRowShape
    candidates: list[CandidateShape]
    """Best first."""
    counts: ExtentCountsShape
    """Compared paths by extent."""
    total: int
    """Number of compared paths with the requested extent; ``paths`` holds those from ``first`` on."""
    first: int
    paths: list[ComparedPathShape]
    paths_left: int
    """Changed paths beyond the bound, which were not compared."""
    candidates_left: int
    """Candidates with changes that were not compared: only the best are."""
    fingerprint: str
    """Changes as soon as the record or a compared fork changes."""
    base: str = ""
    """The fork that the attempts began from; empty: the project."""
    end: str = ""
    """Why attempts were ended early: ``until``, ``budget``, ``interrupted``, ``judge`` (it cannot be run); empty: none
    was."""
    note: str = ""


class AttemptShape(Struct):
    number: int
    fork: str
    """Empty: it had none. The fork may be gone."""
    command: str
    state: str
    exit_code: int
    judged: int | None
    note: str
    report: str
    """The end of the judge's output, or of the command's if it was not judged, as a terminal would get it."""
