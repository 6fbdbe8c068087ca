"""``mudroom agent run``: an agent from its start to its end.

Whoever tells mudroom to end (Ctrl-C, SIGTERM, a terminal that closes) tells the agent; what it has done stays in its
fork, is collected and journalled, and only then does mudroom end, too.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mudroom.cli.command.exec import tell_refused
from mudroom.cli.command.run import adjusted, asked_level, show_result, standard, warn
from mudroom.cli.net.card_hosts import CardHosts, by_card, settle
from mudroom.cli.project_session import exclusive, open_session, project_of, working_directory
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.foreground_program import Terminated, without
from mudroom.cli.terminal.signals import waking
from mudroom.cli.terminal.terminal import is_terminal
from mudroom.core.result import text, to_json
from mudroom.core.tree.path import is_below, show_path
from mudroom.errors import MudroomError, Refused, UsageError
from mudroom.policy.config import load_card, load_policy
from mudroom.session import Client, Session
from mudroom.session.agent_run import Ended, run_agent
from mudroom.session.confinement.grant import decide

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.settings import Settings

GRACE = 5
"""Seconds between telling the agent to end and ending it."""
_SHOWN = 10
_SHORTEST = 8
"""Digits of ``--checked``."""


def execute(args: argparse.Namespace, context: Context) -> int:
    if not args.command:
        raise UsageError("no command was given", "mudroom agent run CARD -- COMMAND")
    client = Client()
    client.start()  # it starts while we read the card and settings
    try:
        return _run(args, context, client)
    finally:
        client.close()


def _run(args: argparse.Namespace, context: Context, client: Client) -> int:
    card = load_card(os.fsencode(args.card))
    _require_checked(card, args.checked)
    settings = _settings(args, card, load_policy(project_of(context), context.environ).settings)
    decision = decide(settings, card, asked_level(args), context.environ)
    settled = CardHosts()
    if decision.level is not None:  # what is refused is told by the session
        settled = settle(card, settings, decision.level, context, allow=args.allow_card_network)
    argv = [os.fsencode(word) for word in args.command]
    with open_session(
        context,
        client=client,
        adjust=lambda policy: _settings(args, card, policy),
        level=asked_level(args),
        card=card,
        agent=card.agent,
        ask=args.ask,
        also=settled.rules,
    ) as session:
        here = os.path.realpath(working_directory())
        cwd = here if is_below(here, session.project) else session.project
        warn(session, context)
        place = os.fsencode(args.artifacts) if args.artifacts else None
        with told_to_end(session) as told:
            ended = run_agent(session, card, argv, fork=args.fork, cwd=cwd, stdio=standard(context), artifacts=place)
        ended = ended._replace(notes=(*settled.notes, *_unset(card, session, context), *ended.notes))
        branch = _branch(session, card, ended, args, context, told) if ended.result.ran else {}
    code = 128 + told[0] if told else 124 if ended.result.timed_out else ended.result.exit_code
    if context.as_json:
        import json

        context.terminal.out(json.dumps(_as_json(card, ended, branch, code)))
    elif not ended.result.ran:
        tell_refused(ended.result, context)
    else:
        _tell(card, ended, branch, argv, context)
    return code


def _settings(args: argparse.Namespace, card: AgentCard, policy: Settings) -> Settings:
    return by_card(card, adjusted(args, policy), args.net)


def _require_checked(card: AgentCard, checked: str | None) -> None:
    if checked is not None and (len(checked) < _SHORTEST or not card.digest.startswith(checked.lower())):
        raise Refused("the card is not the one that was checked", "look again: mudroom agent check")


def _unset(card: AgentCard, session: Session, context: Context) -> list[str]:
    """Variables that the card asks for, that are set here, and that nobody has said to pass."""
    passed = {one.partition(b"=")[0] for one in session.actor.settings.environment}
    names = [n for n in card.environment if n.encode() in context.environ and n.encode() not in passed]
    return [f"{card.agent} asks for the variable {name}: --env {name} passes it" for name in names]


@contextmanager
def told_to_end(session: Session) -> Iterator[list[int]]:
    """While this runs SIGINT, SIGTERM and SIGHUP are for the agent: it is asked to end, and ended after a grace, or
    when somebody says it twice. Gives the signals by which mudroom itself was told to end."""
    told: list[int] = []
    times: list[int] = []

    def end(number: int, _frame: object) -> None:
        times.append(number)
        if number != signal.SIGINT:  # Ctrl-C is the agent's, and may mean something else to it
            told.append(number)
        if session.interrupt(signal.SIGKILL if len(times) > 1 else signal.SIGTERM):
            signal.alarm(GRACE)
        elif not session.sandboxes.has_run:
            raise Terminated(number)

    def kill(_number: int, _frame: object) -> None:
        session.interrupt(signal.SIGKILL)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, kill)
    terminals = [number for number in (0, 1, 2) if is_terminal(number)]
    try:
        with waking():
            yield told
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)
        if signal.SIGHUP in told:
            without(terminals)


def _branch(
    session: Session, card: AgentCard, ended: Ended, args: argparse.Namespace, context: Context, told: list[int]
) -> dict[str, Any]:
    """The commits as a branch, if the user has asked for it; else how to have them, if the card would have them so."""
    fork = ended.result.fork
    name = args.branch if isinstance(args.branch, str) else card.branch if isinstance(card.branch, str) else None
    later = f"mudroom apply {fork} --commits" + (f" --branch {name}" if name else "")
    if args.branch is None or told:
        return {"later": later} if card.branch or told else {}
    try:
        with exclusive(session, context, f"mudroom agent run {card.agent}"):
            found = session.changes.bring_commits(fork, branch=name)
    except MudroomError as error:
        return {"branch": None, "error": str(error), "later": later}
    return {"branch": found.branch, "head": found.head, "commits": len(found.commits)}


def _as_json(card: AgentCard, ended: Ended, branch: dict[str, Any], code: int) -> dict[str, Any]:
    kept = ended.artifacts
    result = ended.result._replace(exit_code=code, notes=(*ended.notes, *ended.result.notes))
    agent = {
        "id": card.agent,
        "card": card.digest,
        "artifacts": {
            "place": os.fsdecode(kept.place) or None,
            "streams": list(kept.streams),
            "files": [text(path) for path in kept.files],
            "bytes": kept.size,
            "left": [{"path": text(path), "reason": why} for path, why in kept.left],
        },
        "branch": branch or None,
    }
    return to_json(result) | {"agent": agent}


def _tell(card: AgentCard, ended: Ended, branch: dict[str, Any], argv: list[bytes], context: Context) -> None:
    say, note, fork = context.terminal.say, context.terminal.note, ended.result.fork
    for one in ended.notes:
        note(one)
    show_result(ended.result, argv, context)
    kept = ended.artifacts
    if kept.files or kept.streams:
        say(f"artefacts: {len(kept.files):,} files in {show_path(kept.place)}")
    for path, why in kept.left[:_SHOWN]:
        note(f"no artefact: {show_path(path)} {why}")
    if len(kept.left) > _SHOWN:
        note(f"no artefact: {len(kept.left) - _SHOWN:,} more")
    if branch.get("branch"):
        short = branch["branch"].removeprefix("refs/heads/")
        say(f"{short}: {branch['commits']:,} commits   look: git log {short}")
    elif "error" in branch:
        note(f"no branch: {branch['error']}")
    elif "later" in branch:
        say(f"its commits as a branch: {branch['later']}")
    if ended.result.changeset.changes:
        say(f"kept as {fork}: mudroom diff {fork}, mudroom apply {fork}, mudroom discard {fork}")
    else:
        say(f"its fork is {fork}, where the next run of {card.agent} goes on")
