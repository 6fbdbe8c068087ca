"""The context that every verb is called with: environment, terminal and the options that all verbs share."""

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
    """The value of --project, as bytes; None if the option was not given."""
    client: Client | None = None
    """The launcher to start, if it does not run yet, instead of a new process; None: a new one. The verb uses it at
    most once."""
    later: Callable[[bytes, Callable[[], None]], None] | None = None
    """Does what nobody has to wait for, when the caller has the exit code already: an action that uses files below a
    directory alone, prints nothing, and may be cut off. None: it is done at once."""
