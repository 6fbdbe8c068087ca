"""What has come of a fork's commits in a repository of the project, as values. ``ext/commits`` makes them."""

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
    """Full name in the project, for ``moved`` and ``beside``. Of a HEAD that is ``kept``: the branch with the commits
    that the project's HEAD lacks."""
    reason: str = ""
    """Continues a sentence that begins with the ref."""


class Commit(NamedTuple):
    id: str
    subject: str
    """One line, escaped for display."""
    author: str
    """Name and mail address, escaped for display."""


class TransferResult(NamedTuple):
    """What has come of one repository."""

    label: bytes
    """Path of the git directory in the project."""
    refs: tuple[RefOutcome, ...]
    commits: tuple[Commit, ...]
    """New commits, oldest first."""
    objects: int

    @property
    def moved(self) -> int:
        """Number of refs that moved or are new."""
        return sum(outcome.result in ("moved", "beside") for outcome in self.refs)

    @property
    def is_complete(self) -> bool:
        """Whether each branch, tag and note has come over, so that the fork need not keep its repository."""
        return not any(outcome.result == "left" and outcome.ref.startswith(_BROUGHT) for outcome in self.refs)


class MadeCommit(NamedTuple):
    """The commit of the files that an apply has written."""

    id: str
    branch: str
    """Short name of the branch; empty: HEAD is detached."""
    files: int
    with_changes: tuple[bytes, ...]
    """Committed files that differed from HEAD before the apply: changes of the user's own are in the commit."""
    left_out: tuple[bytes, ...]
    """Applied files that are not committed: ignored by git, or in a repository of their own."""
