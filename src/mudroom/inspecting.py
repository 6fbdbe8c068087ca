"""What an agent's runtime gets to know about a fork: before its first command, and whenever it asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mudroom.core.tree.change import Changeset
from mudroom.errors import UsageError
from mudroom.joining import Joining

if TYPE_CHECKING:
    from mudroom.core.fork_report import ForkReport, PreparedFork

LOOKED_AT = 500
"""Events of the journal in which refusals are looked for."""
MOST_DENIALS = 100


class Inspecting(Joining):
    def prepare(
        self,
        name: str | None = None,
        *,
        parent: str | None = None,
        at: str | None = None,
        snapshot: bool = False,
        checkpoint: str | None = None,
    ) -> PreparedFork:
        """Have a fork ready for an agent's first command, and say what that will find. The fork is made if there is
        none, as ``new_fork`` makes it; one that is there must not be asked for with other origins. ``checkpoint``:
        freeze what it holds under this name. Raises UsageError, or Unsupported as ``run`` does."""
        from mudroom.core.command.policy import class_actions
        from mudroom.core.fork_report import PreparedFork

        self._notes = []
        self._grant = grant = self.granted()
        created = name is None or not self.vault.has_fork(name)
        if not created and (parent is not None or at is not None or snapshot):
            raise UsageError(f"there is a fork named {name} already", "choose another name, or leave its origin out")
        if name is None:
            name = "agent-" + self._new_id()
        if created:
            self.new_fork(name, parent=parent, at=at, snapshot=snapshot)
        secrets = self.look_for_secrets()
        if checkpoint is not None:
            self.checkpoint(name, checkpoint)
        mode, notes = self._first_mode(self.vault.fork(name))
        return PreparedFork(
            name,
            created,
            self.project,
            grant.level,
            self.settings.network_at(grant.level),
            mode,
            self.agent,
            tuple((name, one.action) for name, one in class_actions(self._policy(), self.agent).items()),
            checkpoint,
            grant.credentials,
            (*self._notes, *secrets, *grant.notes, *notes, *self.confinement.missing_credentials(self.settings)),
        )

    def inspect(self, name: str) -> ForkReport:
        """What a fork is and holds, and what was refused to its commands. Raises UsageError if there is none."""
        from mudroom.core.fork_report import ForkReport

        record = self.record(name)
        fork = self.vault.fork(name)
        state = fork.state
        command = record.command if record is not None else ()
        words = {"running": fork.interrupted is not None, "mounted": name in self.mounts()}
        words["cut off"] = record is not None and not command
        status = record.exit_code if record is not None else None
        return ForkReport(
            name,
            state.parent,
            state.created,
            next((word for word, is_so in words.items() if is_so), "idle"),
            command,
            None if status is None else 128 + (status & 0x7F) if status & 0x7F else status >> 8,
            record.level if record is not None else None,
            record.changeset if record is not None else Changeset(),
            state.checkpoints,
            self._denied(name),
        )

    def _denied(self, name: str) -> tuple[dict[str, Any], ...]:
        """What was refused to the last commands of a fork, newest first: by the policy, or by what confines them."""
        import json

        found: list[dict[str, Any]] = []
        for event in self.vault.journal.events(last=LOOKED_AT):
            if event.fork == name and event.kind in ("run", "verdict"):
                data = json.loads(event.data)
                found += data["denials"]
                if event.kind == "verdict":
                    reason = data["verdict"]["reason"]
                    found.append({"kind": "command", "target": " ".join(data["command"]), "reason": reason, "count": 1})
        return tuple(reversed(found))[:MOST_DENIALS]
