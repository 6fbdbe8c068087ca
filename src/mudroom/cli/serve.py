"""``mudroom serve``: agents' cards for other agents, on loopback."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mudroom.cli.main import Context
from mudroom.cli.open import project_of, standing
from mudroom.config import load_card, load_policy, places
from mudroom.core.a2a import Standing, a2a_card, a2a_card_old, paths_of
from mudroom.errors import UsageError
from mudroom.granting import promised

if TYPE_CHECKING:
    from mudroom.core.card import AgentCard

EXAMPLES = """\
examples:
  mudroom serve --card agent.json                 its A2A card at http://127.0.0.1:8765/.well-known/agent-card.json
  mudroom serve --card a.json --card b.json       each at /agents/ID/.well-known/agent-card.json
  mudroom serve --port 0 --json --card a.json     any free port; one JSON object with the address and the token

Only on this machine's loopback. Cards are public there; everything else wants the token that is printed. Ends with
Ctrl-C, SIGTERM or SIGHUP."""

PORT = 8765
NEEDED = ("starlette", "uvicorn")
INSTALL = "pip install 'mudroom[web]'"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--card", action="append", default=[], metavar="FILE", help="an agent's card; several times")
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"default: {PORT}; 0: any free one")


def execute(args: argparse.Namespace, context: Context) -> int:
    if not 0 <= args.port < 1 << 16:
        raise UsageError(f"{args.port} is not a port", "0 to 65535")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"mudroom serve needs {' and '.join(missing)}", INSTALL)
    cards = [load_card(os.fsencode(path)) for path in args.card]
    agents = {card.agent: (card_of(card, context), card_of(card, context, old=True)) for card in cards}
    if len(agents) < len(cards):
        raise UsageError("two cards are of the same agent", "each agentId once")

    import secrets

    from mudroom.web.app import build
    from mudroom.web.server import HOST, listen, serve

    listening = listen(args.port)
    port: int = listening.getsockname()[1]
    base, token = f"http://{HOST}:{port}", secrets.token_urlsafe(32)
    app = build(agents, base, port, token)
    serve(app, listening, lambda: _tell(context, base, token, list(agents)))
    return 0


def _tell(context: Context, base: str, token: str, agents: list[str]) -> None:
    rows = [{"agent": agent, "url": base + path} for agent, path in paths_of(agents).items()]
    if context.as_json:
        report = {"schema": "mudroom.serve/1", "url": base + "/", "token": token, "agents": rows}
        context.terminal.out(json.dumps(report))
        return
    context.terminal.out(f"serving {base}/  token {token}")
    for row in rows:
        context.terminal.out(f"  {row['agent']}  {row['url']}/.well-known/agent-card.json")


def card_of(card: AgentCard, context: Context, *, old: bool = False) -> Callable[[str], dict[str, Any]]:
    """What makes the A2A card of an agent, by what the policy says at that moment."""
    make = a2a_card_old if old else a2a_card
    return lambda url: make(card, stand(card, context), url)


def stand(card: AgentCard, context: Context) -> Standing:
    """What was decided about an agent here. Raises MudroomError if the policy cannot be read."""
    from mudroom.cli.cardnet import by_card
    from mudroom.core.hosts import show_rule
    from mudroom.core.wish import wish

    project = project_of(context)
    settings = load_policy(project, context.environ).settings
    place = places(context.environ)
    decision, opened = promised(settings, card, project, os.path.realpath(place.state), place.home, context.environ)
    if decision.level is None:
        return Standing(decision, "none")
    mode = by_card(card, settings, None).network_at(decision.level)
    hosts: tuple[str, ...] = ()
    if isinstance(card.needs.network, tuple):
        found = wish(card.agent, card.needs.network, standing(project, context)[0]())
        trusted = found.open if card.agent in settings.network_cards else ()
        hosts = tuple(show_rule(rule) for rule in (*found.allowed, *trusted))
    return Standing(decision, mode, hosts, opened.stores)
