"""Agents' A2A cards, and their interfaces, which lead to the running agents (``agent_forward.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mudroom.errors import MudroomError

if TYPE_CHECKING:
    from starlette.requests import Request

    from mudroom.ext.web.state.server_state import ServerState

Cards = Callable[[str], dict[str, Any]]
"""A function that makes an agent's card, given its endpoint's URL. Called for each request, because the policy may
change."""


def card_routes(
    server: ServerState, agents: Mapping[str, tuple[Cards, Cards]], base: str
) -> tuple[list[Route], set[str]]:
    """Return the routes and the public paths. ``agents``: by id, functions for the card and its older form."""
    if not agents:
        return [Route("/api/v1/agents", _index([]), methods=["GET"])], set()
    from mudroom.ext.agents.core.a2a import WELL_KNOWN, WELL_KNOWN_OLD, paths_of
    from mudroom.ext.web.server.agent_forward import forwarding

    routes, public = [], set()
    paths = paths_of(list(agents))
    for agent, path in paths.items():
        for prefix in (path, "") if len(agents) == 1 else (path,):
            for name, cards in zip((WELL_KNOWN, WELL_KNOWN_OLD), agents[agent], strict=True):
                routes.append(Route(_decoded_path(prefix) + name, _card(cards, f"{base}{path}/a2a"), methods=["GET"]))
                public.add(_decoded_path(prefix) + name)
        routes.append(Route(_decoded_path(path) + "/a2a", forwarding(server, agent), methods=["POST"]))
    rows = [{"agent": agent, "card": base + path + WELL_KNOWN} for agent, path in paths.items()]
    routes.append(Route("/api/v1/agents", _index(rows), methods=["GET"]))
    return routes, public


def _decoded_path(path: str) -> str:
    """Return the path with its percent-encoding decoded, as in a request."""
    from urllib.parse import unquote

    return unquote(path)


def _card(cards: Cards, url: str) -> Callable[[Request], Response]:
    def answer(_request: Request) -> Response:
        try:
            return JSONResponse(cards(url), headers={"cache-control": "no-cache"})
        except MudroomError as error:  # the policy cannot be read, so the card is not known
            return JSONResponse({"error": error.message}, 503)

    return answer


def _index(agents: list[dict[str, str]]) -> Callable[[Request], Response]:
    def answer(_request: Request) -> Response:
        return JSONResponse({"schema": "mudroom.served/1", "agents": agents})

    return answer
