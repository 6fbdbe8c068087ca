"""The context that every verb is called with: environment, terminal and the options that all verbs share."""

from __future__ import annotations

from mudroom.cli.terminal.terminal import Terminal
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Context(NamedTuple):
    environ: Mapping[bytes, bytes]
    terminal: Terminal
    as_json: bool
    project: bytes | None
    """The value of --project, as bytes; None if the option was not given."""
