"""A fork's commits that the project's repository lacks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mudroom.ext.web.shape.change import HunkShape, Verb


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
