"""Reports about a fork for an agent's runtime: before its first command, and on request."""

from __future__ import annotations

import json

from mudroom.core.command.policy import class_actions
from mudroom.core.command.verdict import Action, CommandClass
from mudroom.core.result import changes_to_json, checkpoints_to_json, text
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.stack import Checkpoint
from mudroom.errors import UsageError
from mudroom.session import Session
from mudroom.session.forks import Forks
from mudroom.session.order import Order, Outcome
from mudroom.typing import Any, NamedTuple
from mudroom.vault.store.fork import mount_note

LOOKED_AT = 500
"""Journal events that are searched for refusals."""
MOST_DENIALS = 100


class PreparedFork(NamedTuple):
    fork: str
    created: bool
    """Whether this call created the fork."""
    project: bytes
    level: int
    network: str
    view: str
    """``overlay``, ``copy``; ``landlock``, ``seatbelt``: a copy at another path."""
    agent: str | None
    """None: the policy does not judge the commands."""
    actions: tuple[tuple[CommandClass, Action], ...] = ()
    """The action for each command class where no rule names the command."""
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
    """Denials from the last commands, newest first, as in their results."""


def prepare(
    session: Session,
    name: str | None = None,
    *,
    parent: str | None = None,
    at: str | None = None,
    snapshot: bool = False,
    checkpoint: str | None = None,
) -> PreparedFork:
    """Prepare a fork for an agent's first command, and return its settings. A fork that does not exist is made as by
    ``Forks.new``; raise UsageError if it exists and an origin is given. ``checkpoint``: freeze its files under this
    name. Raise Unsupported as a command does."""
    machine, forks, actor = session.machine, session.forks, session.actor
    order = Order((), session.project, actor, machine.granted(actor), name)
    created = name is None or forks.vault.find(name) is None
    if not created and (parent or at or snapshot):
        raise UsageError(f"there is a fork named {name} already", "choose another name, or leave its origin out")
    name = "agent-" + forks.new_id() if name is None else name
    if created:
        forks.new(name, parent=parent, at=at, snapshot=snapshot)
    _mask, secrets = forks.secrets.look(actor.settings)
    if checkpoint is not None:
        forks.checkpoint(name, checkpoint)
    outcome = Outcome()
    outcome.mounted = mount_note(forks.vault.fork(name))
    mode = machine.first_mode(forks.vault.fork(name), order, outcome)
    missing = machine.confinement.missing_credentials(actor.settings)
    return PreparedFork(
        name,
        created,
        forks.vault.project,
        order.grant.level,
        actor.settings.network_at(order.grant.level),
        mode,
        actor.agent,
        tuple((name, action.action) for name, action in class_actions(session.approval.policy(), actor.agent).items()),
        checkpoint,
        order.grant.credentials,
        (*secrets, *order.grant.notes, *outcome.notes, *missing),
    )


def inspect(forks: Forks, name: str) -> ForkReport:
    """Return a fork's state, its changes and its commands' refusals. Raise UsageError if the fork does not exist."""
    record = forks.record(name)
    fork = forks.vault.fork(name)
    state = fork.state
    command = record.command if record is not None else ()
    words = {"running": fork.interrupted is not None, "mounted": name in forks.mounts()}
    words["cut off"] = record is not None and not command
    return ForkReport(
        name,
        state.parent,
        state.created,
        next((word for word, is_so in words.items() if is_so), "idle"),
        command,
        record.exit_code if record is not None else None,
        record.level if record is not None else None,
        record.changeset if record is not None else Changeset(),
        state.checkpoints,
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
                denials.append({"kind": "command", "target": " ".join(data["command"]), "reason": reason, "count": 1})
    return tuple(reversed(denials))[:MOST_DENIALS]


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
