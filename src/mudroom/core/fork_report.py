"""What an agent's runtime gets to know about a fork: before its first command, and whenever it asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mudroom.core.command.verdict import Action, CommandClass
from mudroom.core.result import changes_to_json, text
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.stack import Checkpoint


class PreparedFork(NamedTuple):
    fork: str
    created: bool
    """It was not there before."""
    project: bytes
    level: int
    network: str
    view: str
    """``overlay``, ``copy``; ``landlock``, ``seatbelt``: a copy elsewhere."""
    agent: str | None
    """None: nobody judges the commands."""
    actions: tuple[tuple[CommandClass, Action], ...] = ()
    """What is done about each class of commands that no rule names."""
    checkpoint: str | None = None
    credentials: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class ForkReport(NamedTuple):
    fork: str
    parent: str
    created: int
    """Nanoseconds since 1970."""
    state: str
    """``idle``, ``running``, ``cut off`` (the last command, with mudroom itself), ``mounted``."""
    command: tuple[bytes, ...]
    """The last one."""
    exit_code: int | None
    level: int | None
    changeset: Changeset
    checkpoints: tuple[Checkpoint, ...] = ()
    denials: tuple[dict[str, Any], ...] = ()
    """Of the last commands, newest first: as the result of each had them."""


def prepared_to_json(one: PreparedFork) -> dict[str, Any]:
    return {
        "schema": "mudroom.prepared/1",
        **one._asdict(),
        "project": text(one.project),
        "actions": dict(one.actions),
        "credentials": list(one.credentials),
        "notes": list(one.notes),
    }


def inspected_to_json(one: ForkReport) -> dict[str, Any]:
    return {
        "schema": "mudroom.inspected/1",
        "fork": one.fork,
        "parent": one.parent or None,
        "created": one.created,
        "state": one.state,
        "command": [text(word) for word in one.command],
        "exit_code": one.exit_code,
        "level": one.level,
        "checkpoints": checkpoints_to_json(one.checkpoints),
        "denials": list(one.denials),
        "changes": changes_to_json(one.changeset),
    }


def checkpoints_to_json(points: Sequence[Checkpoint]) -> list[dict[str, Any]]:
    return [{"checkpoint": p.name, "time": p.time, "automatic": p.automatic, "layers": len(p.layers)} for p in points]
