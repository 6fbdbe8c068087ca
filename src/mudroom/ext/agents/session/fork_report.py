"""A report about a fork, for an agent: its state, changes and refusals."""

from __future__ import annotations

import json

from mudroom.core.tree.change import Changeset
from mudroom.core.tree.quote import show_text
from mudroom.core.tree.stack import Checkpoint
from mudroom.session.forks import Forks
from mudroom.typing import Any, NamedTuple

LOOKED_AT = 500
"""Journal events that are searched for refusals."""
MOST_DENIALS = 100


class ForkReport(NamedTuple):
    state: str
    """``idle``, ``running``, ``cut off`` (mudroom itself ended during the last command), ``mounted``."""
    changeset: Changeset
    checkpoints: tuple[Checkpoint, ...] = ()
    denials: tuple[dict[str, Any], ...] = ()
    """Denials from the last commands, newest first, as in their results."""


def inspect(forks: Forks, name: str) -> ForkReport:
    """Return a fork's state, its changes and its commands' refusals. Raise UsageError if the fork does not exist."""
    record = forks.record(name)
    fork = forks.vault.fork(name)
    words = {"running": fork.interrupted is not None, "mounted": name in forks.mounts()}
    words["cut off"] = record is not None and not record.command
    return ForkReport(
        next((word for word, is_so in words.items() if is_so), "idle"),
        record.changeset if record is not None else Changeset(),
        fork.state.checkpoints,
        _denied(forks, name),
    )


def _denied(forks: Forks, name: str) -> tuple[dict[str, Any], ...]:
    """Return the refusals of a fork's last commands, newest first, by the policy or by the sandbox."""
    denials: list[dict[str, Any]] = []
    for event in forks.vault.journal.events(last=LOOKED_AT):
        if event.fork == name and event.kind in ("run", "verdict"):
            data = json.loads(event.data)
            denials += data["denials"]
            if event.kind == "verdict":
                reason = data["verdict"]["reason"]
                denials.append({"kind": "command", "target": show_text(data["command"]), "reason": reason, "count": 1})
    return tuple(reversed(denials))[:MOST_DENIALS]
