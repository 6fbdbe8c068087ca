"""The functions that the command line passes to the server: all access to the environment, to policy files and to other
programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.approval.approval import HostQuestion
from mudroom.ext.web.cli.new_project import Outlook
from mudroom.session import Session

if TYPE_CHECKING:
    from mudroom.ext.commits.git.user_settings import UserFiles


class ServerEnvironment(NamedTuple):
    state: bytes
    """The state directory, whose vaults are served."""
    home: bytes
    roots: tuple[bytes, ...]
    """Real paths of directories; a project is chosen at or below one of them."""
    open: Callable[[bytes], tuple[Session, tuple[str, ...]]]
    """Open a session on a project with the settings of its policy files; return it with notes. Raise MudroomError."""
    keep_host: Callable[[Session, HostQuestion, bool, str], None]
    """Write the rule of an answer (True: allow) about a host, or of the word of its preset (empty: of the host), for
    this machine. Raise MudroomError."""
    keep_command: Callable[[Session, str, bool], None]
    """The same for the pattern of a command."""
    start: Callable[[bytes, str, Sequence[bytes], float | None], str]
    """Start a command in the background of a fork, so that it outlives the server; return its id. Raise MudroomError.
    """
    version: str
    outlook: Callable[[bytes], Outlook]
    """Return the effects of staging a directory, by its policy files. Writes no files. Raise MudroomError."""
    git_files: Callable[[], UserFiles]
    """Return git's settings files of the user."""
    certified: Callable[[], Sequence[str]] = lambda: ()
    """Return what is certified on this machine, as ``ext/certify/cli/certificate.py`` tells it."""
