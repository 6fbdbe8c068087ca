"""``mudroom agent``: run an agent by its profile or its card; list and show profiles; show the rights that a card would
get here; print its A2A card."""

from __future__ import annotations

import argparse
import importlib
import json
import os

from mudroom.cli.command.exec import add_ask_option
from mudroom.cli.command.run import add_confinement_options
from mudroom.cli.project_session import project_of, settings_of
from mudroom.cli.terminal.context import Context
from mudroom.core.agent.card import AgentCard, OpenedCredentials
from mudroom.core.agent.level_decision import LevelDecision
from mudroom.core.agent.sandbox_level import BARE
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.ext.agents.card import load_card, promised
from mudroom.ext.agents.cli.a2a_card import card_of
from mudroom.ext.agents.cli.agent_profile import list_profiles, show_profile
from mudroom.ext.agents.cli.card_hosts import network_lines
from mudroom.policy.config import places
from mudroom.session.confinement.grant import graphics, image_of
from mudroom.stage import disk
from mudroom.typing import Any

EXAMPLES = """\
examples:
  mudroom agent run -- claude                   unchanged, in its own fork, which stays; nothing is applied
  mudroom claude                                the same
  mudroom agent ls                              agents that mudroom knows, and which are here
  mudroom agent settings claude --diff          what its fork has changed in your agent's settings
  mudroom agent show claude                     what it gets: logins, hosts, variables
  mudroom agent check card.json                 the level, the open credentials, and the deciding rules
  mudroom agent run card.json -- my-agent       by a card of its own, not by a profile
  mudroom agent run card.json --fork try-1 --branch --artifacts out -- my-agent
  mudroom agent card card.json                  its card for other agents (A2A); mudroom serve serves it

A card asks; the policy and you decide. Exit codes: run: the agent's own, 126 if the policy refuses it; check: 0 if the
agent would run, 1 if it is refused here."""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="what", metavar="run|ls|show|settings|check|card", required=True)
    run = _add_verb(
        verbs, "run", "the agent from start to end: mudroom agent run [CARD] [options] -- COMMAND", card="?"
    )
    run.add_argument("--on", metavar="NAME", help="on this worker (mudroom fleet ls), without a terminal")
    run.add_argument("--fork", metavar="NAME", help="where it works; made if there is none. Default: its own")
    run.add_argument(
        "--branch", nargs="?", const=True, metavar="NAME", help="bring its commits as a branch when it has ended"
    )
    run.add_argument("--artifacts", metavar="DIR", help="a new or empty directory for the card's artefacts")
    run.add_argument("--checked", metavar="ID", help="only if this is the card's ID in agent check")
    run.add_argument(
        "--allow-card-network", action="store_true", help="let it reach the hosts that its card names, without asking"
    )
    add_ask_option(run)
    add_confinement_options(run)
    _add_verb(verbs, "ls", "the agents that mudroom knows, and which are installed here", card=None)
    named = _add_verb(verbs, "show", "what an agent's profile gives it", card=None)
    named.add_argument("name", metavar="NAME", help="of the agent, or its program")
    settings = _add_verb(verbs, "settings", "what a fork has changed in its agent's settings; land it", card=None)
    importlib.import_module("mudroom.ext.agents.cli.agent_settings").configure(settings)
    _add_verb(verbs, "check", "the rights that the card would get; nothing is run")
    card = _add_verb(verbs, "card", "its A2A card, as mudroom serve would serve it")
    card.add_argument("--url", default="http://127.0.0.1/", metavar="URL", help="where it would be served")


def _add_verb(verbs: Any, name: str, text: str, card: str | None = "") -> argparse.ArgumentParser:
    """``card``: ``?`` if the card can be left out, None if there is none."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    if card is not None:
        parser.add_argument("card", metavar="CARD", nargs=card or None, help="the agent's card, JSON")
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
    parser.add_argument("--project", metavar="DIR", default=argparse.SUPPRESS, help="the project")
    return parser


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.what == "run":
        code: int = importlib.import_module("mudroom.ext.agents.cli.agent_run").execute(args, context)
        return code
    if args.what in ("ls", "show"):
        return list_profiles(context) if args.what == "ls" else show_profile(args.name, context)
    if args.what == "settings":
        changed: int = importlib.import_module("mudroom.ext.agents.cli.agent_settings").execute(args, context)
        return changed
    if args.command:
        raise UsageError(f"agent {args.what} runs no command", "mudroom agent run CARD -- COMMAND")
    card = load_card(os.fsencode(args.card))
    if args.what == "card":
        context.terminal.out(json.dumps(card_of(card, context)(args.url), indent=2))
        return 0
    project, place = project_of(context), places(context.environ)
    settings = settings_of(context, project)
    decision, opened = promised(settings, card, project, disk.real_path(place.state), place.home, context.environ)
    if context.as_json:
        context.terminal.json(as_json(card, settings, decision, opened))
    else:
        context.terminal.out("\n".join(as_text(card, settings, decision, opened, context)))
    return 0 if decision.level is not None else 1


def as_json(
    card: AgentCard, settings: Settings, decision: LevelDecision, opened: OpenedCredentials
) -> dict[str, object]:
    image, image_notes = image_of(settings, card, decision.level or 0)
    return {
        "schema": "mudroom.card/1",
        "agent": card.agent,
        "digest": card.digest,
        "asked": decision.asked,
        "level": decision.level,
        "rule": decision.rule,
        "reason": decision.reason,
        "credentials": list(opened.stores) if decision.level is not None else [],
        "paths": [os.fsdecode(bind.path) for bind in opened.live] if decision.level is not None else [],
        "image": image or None,
        "network": list(card.needs.network) if isinstance(card.needs.network, tuple) else card.needs.network,
        "forks": [{side: rule} for side, rule in card.needs.forks],
        "gpu": [os.fsdecode(device) for device in graphics().devices] if card.needs.gpu else [],
        "environment": list(card.environment),
        "artifacts": list(card.artifacts),
        "branch": card.branch,
        "notes": [*image_notes, *opened.notes],
    }


def as_text(
    card: AgentCard, settings: Settings, decision: LevelDecision, opened: OpenedCredentials, context: Context
) -> list[str]:
    agent = f"{card.agent}: {card.name}" if card.name else card.agent
    if decision.level is None:
        return [f"agent        {agent}", f"level        refused: {decision.reason} ({decision.rule})"]
    lines = [f"agent        {agent}", f"level        {decision.level}: {decision.reason} ({decision.rule})"]
    if decision.level == 0:
        lines.append(f"             {BARE.partition(': ')[2]}")
    image, image_notes = image_of(settings, card, decision.level)
    if decision.level == 2:
        lines.append("image        " + (image or "the host's own toolchain"))
    paths = ", ".join(os.fsdecode(bind.path) for bind in opened.live)
    lines.append("credentials  " + (f"{', '.join(opened.stores)} ({paths})" if opened.stores else "none"))
    if card.needs.gpu:
        lines += [f"{'' if at else 'gpu':<13}{note}" for at, note in enumerate(graphics().notes)]

    lines += network_lines(card, settings, decision.level, context)
    if card.needs.forks:
        asked = ", ".join(f"{side} {rule}" for side, rule in card.needs.forks)
        lines.append(f"forks        asked for: {asked} (network.forks, or mudroom net show and net reach, grants it)")
    if card.environment:
        lines.append(
            f"variables    asked for: {', '.join(card.environment)} (--env NAME, or run.environment, passes one)"
        )
    if card.artifacts:
        lines.append(f"artefacts    {', '.join(card.artifacts)}")
    lines.append(f"card         {card.digest[:16]} (--checked {card.digest[:16]} runs this very one)")
    return [*lines, *(f"note         {note}" for note in (*image_notes, *opened.notes))]
