"""``mudroom net show`` and ``net reach``: the user's consent to connections between forks.

Both sides must consent (``ext/agents/core/fork_consent.py``). A grant is for the fork that has the name now, and ends
with that fork.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.network.fork_host import SUFFIX, fork_host, label_of
from mudroom.core.network.fork_rule import FORMS, ForkRule, parse_forks
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.ext.agents.core.fork_consent import ForkGrants, ReachedPort, ShownPort, look_at_names
from mudroom.ext.agents.links.fork_dial import look_at_dial
from mudroom.ext.agents.links.fork_grants import edit_grants, fork_labelled, grants_of, identity_of
from mudroom.session import Session
from mudroom.typing import Any
from mudroom.vault.store.fork import Fork

SCHEMA = "mudroom.net-fork/1"


def show_ports(args: argparse.Namespace, context: Context) -> int:
    return _grant(args, context, "show")


def reach_forks(args: argparse.Namespace, context: Context) -> int:
    return _grant(args, context, "reach")


def remove_grants(args: argparse.Namespace, context: Context) -> int:
    """Revoke grants to the fork in ``--fork``: PORT, or FORK:PORT."""
    with open_session(context) as session:
        fork = _fork(session, args.fork)
        gone: list[str] = []
        for text in args.hosts:
            side = "show" if text.removesuffix("/http").isdigit() else "reach"
            (rule,) = _rules([text], side)
            if not edit_grants(session.vault, fork, partial(_without, rule)):
                raise UsageError(f"{text} was not granted to the fork {fork.name}", "mudroom net ls lists the grants")
            gone.append(f"{side} {rule}")
        _journal(session, fork, "rm", gone)
    _report(context, fork, [f"{text} is taken back from the fork {fork.name}" for text in gone], gone)
    return 0


def _grant(args: argparse.Namespace, context: Context, side: str) -> int:
    rules = _rules(args.hosts, side)
    with open_session(context) as session:
        fork = _fork(session, args.fork)
        lines = []
        for rule in rules:
            if side == "show":
                edit_grants(session.vault, fork, partial(_shown, rule))
                only = ", plain HTTP only" if rule.http else ""
                lines.append(f"{fork.name} shows port {rule.port} to forks that may reach it{only}")
                continue
            far = fork_labelled(session.vault, rule.fork)
            reached = ReachedPort(identity_of(far), rule.port)
            if rule.agent and rule.agent != reached.fork.agent:
                raise UsageError(f"the fork {far.name} is not the workspace of {rule.agent}")
            edit_grants(session.vault, fork, partial(_reached, reached))
            is_allowed, reason = look_at_dial(session.vault, fork, session.actor.settings, rule.fork, rule.port)
            lines.append(f"{fork.name} may reach {rule.fork}{SUFFIX}:{rule.port}")
            if not is_allowed:
                context.terminal.note(f"not yet: {reason}")
        _journal(session, fork, side, [str(rule) for rule in rules])
    _report(context, fork, lines, [f"{side} {rule}" for rule in rules])
    return 0


def _report(context: Context, fork: Fork, lines: Sequence[str], grants: Sequence[str]) -> None:
    if context.as_json:
        context.terminal.json({"schema": SCHEMA, "fork": fork.name, "grants": list(grants)})
        return
    for line in lines:
        context.terminal.out(line)


def _rules(texts: Sequence[str], side: str) -> list[ForkRule]:
    try:
        rules = parse_forks(list(texts), side)
    except ValueError as error:
        raise UsageError(str(error), FORMS["show" if side == "show" else "reach"]) from error
    for rule in rules:
        if side == "show" and rule.fork != "*":
            raise UsageError(f"net show takes ports: {rule}", f"mudroom net show {rule.port} --fork {rule.fork}")
        if side == "reach" and rule.fork.endswith("*"):
            raise UsageError(
                f"net reach is for one fork: {rule}",
                f'the policy takes patterns: network: {{forks: {{reach: ["{rule}"]}}}}',
            )
    return rules


def _fork(session: Session, name: str | None) -> Fork:
    if name is None:
        raise UsageError("for which fork?", "--fork NAME; mudroom ls shows the forks of this project")
    fork = session.vault.fork(name)
    try:
        fork_host(name)
    except ValueError as error:
        raise UsageError(str(error), "mudroom fork rename gives it another name") from error
    fork_labelled(session.vault, label_of(name))
    return fork


def _shown(rule: ForkRule, grants: ForkGrants) -> ForkGrants:
    others = tuple(shown for shown in grants.shows if shown.port != rule.port)
    return grants._replace(shows=(*others, ShownPort(rule.port, rule.http)))


def _reached(reached: ReachedPort, grants: ForkGrants) -> ForkGrants:
    label = reached.fork.label
    kept = tuple(old for old in grants.reaches if (old.fork.label, old.port) != (label, reached.port))
    met = tuple(fork for fork in grants.met if fork.label != label)  # names in the policy mean this fork from now on
    return grants._replace(reaches=(*kept, reached), met=(*met, reached.fork))


def _without(rule: ForkRule, grants: ForkGrants) -> ForkGrants:
    if rule.side == "show":
        return grants._replace(shows=tuple(shown for shown in grants.shows if shown.port != rule.port))
    kept = tuple(old for old in grants.reaches if (old.fork.label, old.port) != (rule.fork, rule.port))
    return grants._replace(reaches=kept)


def _journal(session: Session, fork: Fork, what: str, grants: Sequence[str]) -> None:
    session.vault.journal.append("net", fork.name, {what: ", ".join(grants)}, time=time.time_ns())


def grant_rows(session: Session) -> list[dict[str, Any]]:
    """Return all forks' grants."""
    rows = []
    for fork in session.vault.forks():
        grants = grants_of(fork)
        rows += [{"fork": fork.name, "show": str(ForkRule("show", "*", *shown))} for shown in grants.shows]
        rows += [{"fork": fork.name, "reach": f"{reached.fork.label}:{reached.port}"} for reached in grants.reaches]
    return rows


def look(session: Session | None, fork: str, settings: Settings, label: str, port: int) -> tuple[bool, str]:
    """Return whether a fork may reach another fork's port, and why; without a session, whether any fork may."""
    if session is None:
        return look_at_names(label, port, settings.fork_rules, settings.agent_links)
    return look_at_dial(session.vault, session.vault.fork(fork), session.actor.settings, label, port)
