"""``mudroom agent check``: what an agent's card would get here, and why. Nothing is run."""

from __future__ import annotations

import argparse
import json
import os

from mudroom.cli.main import Context
from mudroom.cli.open import project_of, settings_of
from mudroom.config import load_card, places
from mudroom.core.card import AgentCard, Opened
from mudroom.core.level import BARE, Decision
from mudroom.granting import decide, graphics, opened_by

EXAMPLES = """\
examples:
  mudroom agent check card.json          the level, the credentials that would be open, and what decided
  mudroom agent check card.json --json   one JSON object
  mudroom exec --card card.json -- CMD   run the agent so

Exit code 0 if the agent would run, 1 if it is refused here."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("check",), help="check: what the card would get here")
    parser.add_argument("card", metavar="FILE", help="the agent's card, JSON")


def execute(args: argparse.Namespace, context: Context) -> int:
    card = load_card(os.fsencode(args.card))
    decision = decide(settings_of(context, project_of(context)), card, None)
    opened = opened_by(card, places(context.environ).home, context.environ)
    if context.as_json:
        context.terminal.out(json.dumps(as_json(card, decision, opened)))
    else:
        context.terminal.out("\n".join(as_text(card, decision, opened)))
    return 0 if decision.level is not None else 1


def as_json(card: AgentCard, decision: Decision, opened: Opened) -> dict[str, object]:
    return {
        "schema": "mudroom.card/1",
        "agent": card.agent,
        "asked": decision.asked,
        "level": decision.level,
        "rule": decision.rule,
        "reason": decision.reason,
        "credentials": list(opened.stores) if decision.level is not None else [],
        "paths": [os.fsdecode(bind.path) for bind in opened.live] if decision.level is not None else [],
        "network": card.needs.network if isinstance(card.needs.network, bool) else list(card.needs.network),
        "gpu": [os.fsdecode(device) for device in graphics()] if card.needs.gpu else [],
        "notes": list(opened.notes),
    }


def as_text(card: AgentCard, decision: Decision, opened: Opened) -> list[str]:
    if decision.level is None:
        return [f"agent        {card.agent}", f"level        refused: {decision.reason} ({decision.rule})"]
    lines = [f"agent        {card.agent}", f"level        {decision.level}: {decision.reason} ({decision.rule})"]
    if decision.level == 0:
        lines.append(f"             {BARE.partition(': ')[2]}")
    paths = ", ".join(os.fsdecode(bind.path) for bind in opened.live)
    lines.append("credentials  " + (f"{', '.join(opened.stores)} ({paths})" if opened.stores else "none"))
    if card.needs.gpu:
        lines.append("gpu          " + (", ".join(os.fsdecode(device) for device in graphics()) or "there is none"))
    if decision.level == 0:
        lines.append("network      the host's, unfiltered")
    elif card.needs.network:
        lines.append("network      needed: as network.mode and the rules of the policy say (mudroom net ls)")
    return [*lines, *(f"note         {note}" for note in opened.notes)]
