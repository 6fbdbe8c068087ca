"""Functions that the command line passes to the server: all access to the environment, policy files and other
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
    """Open a session on a project with its policy files' settings; return it with notes. Raise MudroomError."""
    keep_host: Callable[[Session, HostQuestion, bool, str], None]
    """Write an answer's rule (True: allow) for this machine: about a host, or the rule that its question offered, if
    not empty. Raise MudroomError."""
    keep_command: Callable[[Session, str, bool], None]
    """Write an answer's rule about a command's pattern, as ``keep_host`` does."""
    start: Callable[[bytes, str, Sequence[bytes], float | None], str]
    """Start a command in a fork's background, so that it outlives the server; return its id. Raise MudroomError."""
    version: str
    outlook: Callable[[bytes], Outlook]
    """Return the effects of staging a directory, by its policy files. Writes no files. Raise MudroomError."""
    git_files: Callable[[], UserFiles]
    """Return the user's git settings files."""
    certified: Callable[[], Sequence[str]] = lambda: ()
    """Return the certified and closed parts of this machine's sandbox, in the words of
    ``ext/certify/cli/certificate.py``."""
