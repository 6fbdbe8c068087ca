"""Reports of a fork for an agent's runtime: before its first command, and on request."""

from __future__ import annotations

from mudroom.core.tree.change import Changeset
from mudroom.errors import UsageError
from mudroom.session.forks import Forks
from mudroom.session.order import Order, Outcome
from mudroom.session.run import Parts
from mudroom.typing import TYPE_CHECKING, Any
from mudroom.vault.store.fork import mount_note

if TYPE_CHECKING:
    from mudroom.core.fork_report import ForkReport, PreparedFork

LOOKED_AT = 500
"""Number of journal events that are searched for refusals."""
MOST_DENIALS = 100


def prepare(parts: Parts, order: Order, origin: dict[str, Any], checkpoint: str | None) -> PreparedFork:
    """Prepare the order's fork for an agent's first command, and return its settings. A fork that does not exist is
    made as by ``Forks.new`` (``origin``: parent, at, snapshot); raise UsageError if it exists and an origin is given.
    ``checkpoint``: freeze its files under this name. Raise Unsupported as a command does."""
    from mudroom.core.command.policy import class_actions
    from mudroom.core.fork_report import PreparedFork

    machine, forks, approval, _sandboxes = parts
    grant, actor = order.grant, order.actor
    created = order.fork is None or forks.vault.find(order.fork) is None
    if not created and any(origin.values()):
        raise UsageError(f"there is a fork named {order.fork} already", "choose another name, or leave its origin out")
    name = "agent-" + forks.new_id() if order.fork is None else order.fork
    if created:
        forks.new(name, **origin)
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
        grant.level,
        actor.settings.network_at(grant.level),
        mode,
        actor.agent,
        tuple((name, action.action) for name, action in class_actions(approval.policy(), actor.agent).items()),
        checkpoint,
        grant.credentials,
        (*secrets, *grant.notes, *outcome.notes, *missing),
    )


def inspect(forks: Forks, name: str) -> ForkReport:
    """Return the state and changes of a fork, and the refusals of its commands. Raise UsageError if the fork does not
    exist."""
    from mudroom.core.fork_report import ForkReport

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
    """Return the refusals of the last commands of a fork, newest first, by the policy or by the sandbox."""
    import json

    denials: list[dict[str, Any]] = []
    for event in forks.vault.journal.events(last=LOOKED_AT):
        if event.fork == name and event.kind in ("run", "verdict"):
            data = json.loads(event.data)
            denials += data["denials"]
            if event.kind == "verdict":
                reason = data["verdict"]["reason"]
                denials.append({"kind": "command", "target": " ".join(data["command"]), "reason": reason, "count": 1})
    return tuple(reversed(denials))[:MOST_DENIALS]
