"""Run an agent: choose its workspace, run its command at the decided level, collect its artefacts.

    ended = run_agent(session, card, [b"claude"])

The workspace is a fork that is kept: the agent's next run continues in it. Only one agent works in a fork at a time,
from its start until its artefacts have been collected. However the agent ends (by itself, by a signal, by a mudroom
error), the session ends its processes, and the journal records the end.
"""

from __future__ import annotations

import os
import re
import time
from _blake2 import blake2b
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mudroom.core.agent.card import AgentCard
from mudroom.core.agent.endpoint import AgentEndpoint
from mudroom.core.network.fork_rule import ForkRule, matches_label, parse_forks
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.ext.agents.core.fork_consent import ConsentSide, shown_by
from mudroom.ext.agents.links.fork_grants import side_of
from mudroom.ext.agents.session.artifact import Artifacts, collect, next_place, require_empty
from mudroom.session.order import CAPTURED, Stdio
from mudroom.session.session import Session
from mudroom.stage import disk
from mudroom.typing import Any, NamedTuple
from mudroom.vault.forks.endpoint import register, withdraw
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork, is_plain

_MANY = 100
"""Most workspaces for one agent; the first free one is taken."""
_READABLE = 40
_MAPPED = regex(r".*\.[0-9a-f]{10}")


class Workspace(NamedTuple):
    fork: Fork
    is_new: bool
    note: str = ""
    """Why this is not the agent's usual workspace; empty if it is."""


class AgentResult(NamedTuple):
    result: Result
    artifacts: Artifacts = Artifacts()
    notes: tuple[str, ...] = ()


def fork_name(agent: str) -> str:
    """Return an agent's workspace name: its id if that is a valid fork name, otherwise the id's readable part and a
    hash of the whole id. An id that already has that form is hashed, too, so names are unique."""
    if is_plain(agent) and len(agent) <= _READABLE and agent not in ("base", "now") and not _MAPPED.fullmatch(agent):
        return agent
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", agent).strip("-_")[:_READABLE] or "agent"
    return f"{readable}.{blake2b(agent.encode(), digest_size=5).hexdigest()}"


@contextmanager
def workspace(session: Session, agent: str, name: str | None = None) -> Iterator[Workspace]:
    """Yield the fork that an agent works in, locked for the agent during the block. ``name``: a fork named by the user,
    whichever agent's it is; made if it does not exist. Default: the agent's own, the first of NAME, NAME-2, NAME-3 …
    that is free; forks of other agents with these names are skipped.

    Raise UsageError if an agent is at work in the named fork.
    """
    place, lock = (_claimed if name is not None else _free)(session, agent, name or fork_name(agent))
    try:
        yield place
    finally:
        lock.release()


def _claimed(session: Session, agent: str, name: str) -> tuple[Workspace, Any]:
    fork, is_new = _made(session, name)
    lock = fork.agent_lock(agent)
    if not lock.acquire_now():
        raise UsageError(
            f"the agent {fork.agent} is at work in the fork {name}", "wait for it, or choose another --fork"
        )
    return Workspace(fork, is_new), lock


def _free(session: Session, agent: str, usual: str) -> tuple[Workspace, Any]:
    why = ""
    for number in range(1, _MANY + 1):
        name = usual if number == 1 else f"{usual}-{number}"
        fork, is_new = _made(session, name)
        if not is_new and fork.agent != agent:
            why = why or f"the fork {name} is not its own"
            continue
        lock = fork.agent_lock(agent)
        if lock.acquire_now():
            return Workspace(fork, is_new, f"{agent} works in the fork {name}: {why}" if why else ""), lock
        why = f"it is at work in {usual} already"
    raise UsageError(f"{agent} is at work in {_MANY} forks", "name one with --fork")


def _made(session: Session, name: str) -> tuple[Fork, bool]:
    for is_last in (False, True):
        try:
            return session.vault.fork(name), False
        except UsageError:
            try:
                return session.forks.new(name), True
            except UsageError:
                if is_last:
                    raise  # not a valid name; the first time, another process may just have made the fork
    raise AssertionError("unreachable")


def require_outside(session: Session, place: bytes) -> None:
    """Raise UsageError if ``place`` for artefacts lies in the project or in mudroom's state: only an apply writes to
    the project."""
    state = os.path.dirname(os.path.dirname(session.vault.path))
    for own, what in ((session.project, "the project"), (state, "mudroom's own state")):
        if is_below(disk.real_path(place), own):
            raise UsageError(f"{show(place)} is in {what}", "artefacts go somewhere else")


def run_agent(
    session: Session,
    card: AgentCard,
    argv: Sequence[bytes],
    *,
    fork: str | None = None,
    cwd: bytes | None = None,
    stdio: Stdio = CAPTURED,
    timeout: float | None = None,
    artifacts: bytes | None = None,
) -> AgentResult:
    """Run an agent's command in its workspace, and collect its artefacts.

    The session's card is used. ``artifacts``: a new or empty directory for the artefacts;
    None: in the vault, with the fork. Before making anything, raise Refused if the policy does not let the agent run,
    Unsupported if the machine cannot; otherwise as ``Session.run``.
    """
    if not argv:
        raise UsageError("no command was given", "mudroom agent run CARD -- COMMAND")
    grant = session.machine.granted(session.actor)
    if artifacts is not None:
        require_outside(session, artifacts)
        require_empty(artifacts, show(artifacts))
    with workspace(session, card.agent, fork) as place:
        name = place.fork.name
        details = {
            "agent": card.agent,
            "card": card.digest,
            "level": grant.level,
            "credentials": list(grant.credentials),
        }
        _journal(session, name, {"state": "started", **details})
        fork_notes = missing_consents(place.fork, session.actor.settings, card)
        outcome: dict[str, Any] = {"error": "mudroom was interrupted"}
        if card.endpoint is not None and grant.level is not None:
            register(place.fork, AgentEndpoint(card.agent, grant.level, *card.endpoint, *_told(card)))
        try:
            result = session.run(argv, fork=name, cwd=cwd, stdio=stdio, timeout=timeout)
            outcome = {"exit_code": result.exit_code, "timed_out": result.timed_out, "ran": result.ran}
            kept = _collected(session, place.fork, card, result, artifacts) if result.ran else Artifacts()
            outcome |= {"artifacts": len(kept.files), "left": len(kept.left)}
            if not result.ran:
                _unmake(session, place)
        except Exception as error:
            outcome = {**outcome, "error": str(error)}
            _unmake(session, place)
            raise
        finally:
            withdraw(place.fork)
            _journal(session, name, {"state": "ended", **details, **outcome})
    notes = (place.note, *fork_notes)
    return AgentResult(result, kept, tuple(filter(None, notes)))


def _told(card: AgentCard) -> tuple[str, str, str]:
    return card.name, card.description, card.version


def _unmake(session: Session, place: Workspace) -> None:
    """Discard a new fork in which the command did not run."""
    if place.is_new:
        session.forks.take_back(place.fork, place.fork.agent)


def _journal(session: Session, fork: str, data: dict[str, Any]) -> None:
    session.vault.journal.append("agent", fork, data, time=time.time_ns())


def _collected(session: Session, fork: Fork, card: AgentCard, result: Result, artifacts: bytes | None) -> Artifacts:
    output = {"stdout": result.stdout, "stderr": result.stderr}
    streams = {name: data for name, data in output.items() if data}
    if not streams and not card.artifacts:
        return Artifacts()
    with session.forks.at_rest(fork.name) as held, OpenFork(session.vault, held) as opened:
        if streams:
            streams["command"] = b"\0".join(opened.shown(result.command))
        place = artifacts if artifacts is not None else next_place(fork.path + b"/artifacts")
        return collect(place, opened.merged(), result.changeset.changes, card.artifacts, streams)


# --- ports that a card requests between forks (``needsForks``) ---


def missing_consents(fork: Fork, settings: Settings, card: AgentCard) -> list[str]:
    """Return a note, with the command that helps, for each port that is not granted. Another fork's port needs that
    fork's consent as well, which is not checked here: the fork may not exist yet."""
    if not card.needs.forks:
        return []
    side = side_of(fork)
    notes = []
    for kind, text in card.needs.forks:
        (rule,) = parse_forks([text], kind)
        if not _is_granted(rule, side, settings):
            command = f"mudroom net {kind} {rule if kind == 'reach' else rule.port} --fork {fork.name}"
            help_ = f"network.forks: {kind}: {rule}" if rule.fork.endswith("*") and kind == "reach" else command
            notes.append(f"{card.agent} asks to {kind} {rule}, which is not granted ({help_})")
    return notes


def _is_granted(rule: ForkRule, side: ConsentSide, settings: Settings) -> bool:
    if rule.side == "show":
        return shown_by(settings.fork_rules, side, rule.port) is not None
    granted = any((reached.fork.label, reached.port) == (rule.fork, rule.port) for reached in side.grants.reaches)
    linked = any(
        link.source in ("*", side.fork.label) and link.target == rule.fork and (link.port or 80) == rule.port
        for link in settings.agent_links
    )
    given = any(
        other.side == "reach" and other.port == rule.port and matches_label(other.fork, rule.fork)
        for other in settings.fork_rules
    )
    return granted or linked or given
