"""The context passed to every verb: environment, terminal and shared options."""

from __future__ import annotations

from mudroom.cli.terminal.terminal import Terminal
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mudroom.sandbox.client.client import Client


class Context(NamedTuple):
    environ: Mapping[bytes, bytes]
    terminal: Terminal
    as_json: bool
    project: bytes | None
    """The --project option; None if it was not given."""
    client: Client | None = None
    """A launcher to use instead of a new process; it is started if it does not run yet. A verb uses it at most once."""
    later: Callable[[bytes, Callable[[], None]], None] | None = None
    """Takes (directory, action) and performs the action after the caller has the exit code. The action only uses files
    below the directory, prints no text, and may be cut off. None: actions are performed at once."""
