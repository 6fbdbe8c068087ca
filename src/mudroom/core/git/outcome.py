"""Results of bringing a fork's commits into one of the project's repositories, as values. ``ext/commits`` makes
them.
"""

from __future__ import annotations

from mudroom.typing import Literal, NamedTuple

RefResult = Literal["moved", "there", "beside", "kept", "left"]
STAYING = "stays in the fork, with its commits: this installation lacks mudroom/ext/commits"
_BROUGHT = (b"refs/heads/", b"refs/tags/", b"refs/notes/")


class RefOutcome(NamedTuple):
    ref: bytes
    """Full name in the fork."""
    result: RefResult
    target: bytes = b""
    """Full name in the project, for ``moved`` and ``beside``. For a HEAD that is ``kept``: the branch that has the
    commits missing in the project's HEAD."""
    reason: str = ""
    """Continues a sentence that begins with the ref."""


class Commit(NamedTuple):
    id: str
    subject: str
    """One line, escaped for display."""
    author: str
    """Name and mail address, escaped for display."""


class TransferResult(NamedTuple):
    """The result for a single repository."""

    label: bytes
    """The git directory's path in the project."""
    refs: tuple[RefOutcome, ...]
    commits: tuple[Commit, ...]
    """New commits, oldest first."""
    objects: int
    signed: int | None = None
    """Number of the commits that the user's git has signed now; None: it was not asked to."""

    @property
    def moved(self) -> int:
        """Number of refs that moved or are new."""
        return sum(outcome.result in ("moved", "beside") for outcome in self.refs)

    @property
    def is_complete(self) -> bool:
        """Whether every branch, tag and note was brought over, so that the fork need not keep its repository."""
        return not any(outcome.result == "left" and outcome.ref.startswith(_BROUGHT) for outcome in self.refs)


class MadeCommit(NamedTuple):
    """The commit that holds the files written by an apply."""

    id: str
    branch: str
    """The branch's short name; empty: HEAD is detached."""
    files: int
    with_changes: tuple[bytes, ...]
    """Committed files that differed from HEAD before the apply: the user's own changes are in the commit."""
    left_out: tuple[bytes, ...]
    """Applied files that are not committed: ignored by git, or in a repository of their own."""
