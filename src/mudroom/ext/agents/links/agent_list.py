"""``http://agents.mudroom.internal/`` inside a sandbox: the running agents that the asking fork may reach.

The list is a link set (RFC 9264) whose items (RFC 6573) are A2A cards. A card's URL names its agent's fork. The list is
made without any request to the agents' own servers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence

from mudroom.core.agent.endpoint import AgentEndpoint
from mudroom.core.network.fork_host import CATALOGUE, ENDPOINT_PORT, SUFFIX, AgentLink, names_of
from mudroom.core.network.fork_rule import ForkRule
from mudroom.errors import MudroomError
from mudroom.ext.agents.core.a2a import WELL_KNOWN, WELL_KNOWN_OLD, listed_card
from mudroom.ext.agents.core.fork_consent import ConsentSide, consent
from mudroom.ext.agents.links.fork_grants import side_of
from mudroom.typing import Any, NamedTuple
from mudroom.vault.forks.endpoint import endpoint_of
from mudroom.vault.store.store import Vault

BASE = f"http://{CATALOGUE}{SUFFIX}"
MOST = 200
"""Most agents in a list; it has to fit into a socket's buffer."""


class ListedAgent(NamedTuple):
    label: str
    endpoint: AgentEndpoint
    url: str
    """For the asking fork."""


def agents_for(
    vault: Vault, near: ConsentSide, rules: Sequence[ForkRule], links: Sequence[AgentLink]
) -> Iterator[ListedAgent]:
    """Yield the running agents with an endpoint that a fork may reach."""
    forks = vault.forks()
    names = [fork.name for fork in forks]
    for fork in forks:
        endpoint = endpoint_of(fork)
        if endpoint is None or not os.path.lexists(fork.namespace_listener):
            continue
        try:
            far = side_of(fork)
        except MudroomError:
            continue  # discarded meanwhile, or damaged
        label = far.fork.label
        if names_of(label, names) != [fork.name]:
            continue
        for port in (ENDPOINT_PORT, endpoint.port):
            given = consent(rules, links, near, far, port)
            if given.is_given and given.port == endpoint.port:
                shown_port = "" if port == ENDPOINT_PORT else f":{port}"
                yield ListedAgent(label, endpoint, f"http://{label}{SUFFIX}{shown_port}{endpoint.path}")
                break


def answer(vault: Vault, near: ConsentSide, rules: Sequence[ForkRule], links: Sequence[AgentLink], path: str) -> bytes:
    """Return the whole HTTP response to a request for a path; an empty path asks for the list."""
    agents = list(agents_for(vault, near, rules, links))[:MOST]
    if path in ("", "/"):
        items = [
            {
                "href": f"{BASE}/{agent.label}{WELL_KNOWN}",
                "type": "application/json",
                "title": agent.endpoint.name or agent.endpoint.agent,
            }
            for agent in agents
        ]
        return _response(200, "application/linkset+json", {"linkset": [{"anchor": f"{BASE}/", "item": items}]})
    for agent in agents:
        for well_known in (WELL_KNOWN, WELL_KNOWN_OLD):
            if path == f"/{agent.label}{well_known}":
                card = listed_card(agent.endpoint, agent.url, old=well_known == WELL_KNOWN_OLD)
                return _response(200, "application/json", card)
    return _response(404, "application/json", {"error": "no such agent, or this fork may not reach it"})


def _response(status: int, kind: str, content: Any) -> bytes:
    body = json.dumps(content).encode() + b"\n"
    phrase = {200: "OK", 404: "Not Found"}[status]
    head = (
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
