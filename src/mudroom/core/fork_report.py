"""Reports about a fork for an agent's runtime: before its first command, and on request."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.verdict import Action, CommandClass
from mudroom.core.result import changes_to_json, text
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.stack import Checkpoint
from mudroom.typing import Any, NamedTuple


class PreparedFork(NamedTuple):
    fork: str
    created: bool
    """The fork was created by this call."""
    project: bytes
    level: int
    network: str
    view: str
    """``overlay``, ``copy``; ``landlock``, ``seatbelt``: a copy at another path."""
    agent: str | None
    """None: the policy does not judge the commands."""
    actions: tuple[tuple[CommandClass, Action], ...] = ()
    """The action for each class of commands, where no rule names the command."""
    checkpoint: str | None = None
    credentials: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class ForkReport(NamedTuple):
    fork: str
    parent: str
    created: int
    """Nanoseconds since 1970."""
    state: str
    """``idle``, ``running``, ``cut off`` (mudroom itself ended during the last command), ``mounted``."""
    command: tuple[bytes, ...]
    """The last command."""
    exit_code: int | None
    level: int | None
    changeset: Changeset
    checkpoints: tuple[Checkpoint, ...] = ()
    denials: tuple[dict[str, Any], ...] = ()
    """Denials of the last commands, newest first, as in their results."""


def prepared_to_json(prepared: PreparedFork) -> dict[str, Any]:
    return {
        "schema": "mudroom.prepared/1",
        **prepared._asdict(),
        "project": text(prepared.project),
        "actions": dict(prepared.actions),
        "credentials": list(prepared.credentials),
        "notes": list(prepared.notes),
    }


def inspected_to_json(report: ForkReport) -> dict[str, Any]:
    return {
        "schema": "mudroom.inspected/1",
        "fork": report.fork,
        "parent": report.parent or None,
        "created": report.created,
        "state": report.state,
        "command": [text(word) for word in report.command],
        "exit_code": report.exit_code,
        "level": report.level,
        "checkpoints": checkpoints_to_json(report.checkpoints),
        "denials": list(report.denials),
        "changes": changes_to_json(report.changeset),
    }


def checkpoints_to_json(points: Sequence[Checkpoint]) -> list[dict[str, Any]]:
    return [
        {"checkpoint": point.name, "time": point.time, "automatic": point.automatic, "layers": len(point.layers)}
        for point in points
    ]
