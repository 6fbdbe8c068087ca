"""What the server is given by the verb: all that looks at the environment, the policy files or other programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mudroom.core.approval.approval import HostQuestion
from mudroom.review.new_project import Outlook
from mudroom.session import Session


class ServerEnvironment(NamedTuple):
    state: bytes
    """The state directory: all of its vaults are served."""
    home: bytes
    roots: tuple[bytes, ...]
    """Real paths of directories: a project is chosen at or below one of them."""
    open: Callable[[bytes], tuple[Session, tuple[str, ...]]]
    """A session on a project, with what its policy files say, and notes about those. Raises MudroomError."""
    keep_host: Callable[[Session, HostQuestion, bool], None]
    """Write the rule of an answer (True: allow) about a host, for this machine. Raises MudroomError."""
    keep_command: Callable[[Session, str, bool], None]
    """The same for a command's pattern."""
    start: Callable[[bytes, str, Sequence[bytes], float | None], str]
    """Start a command in the background of a fork of a project, so that it outlives the server: its id.
    Raises MudroomError."""
    version: str
    outlook: Callable[[bytes], Outlook]
    """What staging a directory would mean, by its policy files. Nothing is written. Raises MudroomError."""
