"""An agent's card as other agents read it: the AgentCard of the A2A protocol. Pure.

Version 1.0 is ``specification/a2a.proto`` of github.com/a2aproject/A2A (message AgentCard, and what it holds) in the
JSON form of proto3, served at ``/.well-known/agent-card.json``; version 0.3 is the form before, which older clients
look for at ``/.well-known/agent.json``.

How the agent is confined is an extension of ours in ``capabilities.extensions``, which nobody has to understand. It
says what the policy of this machine decided, not what the agent would like; it is no proof, since whoever serves a card
can write anything into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mudroom.core.agent.card import AgentCard
from mudroom.core.agent.level import LevelDecision

EXTENSION = "urn:x-mudroom:a2a:sandbox:1"
WELL_KNOWN = "/.well-known/agent-card.json"
WELL_KNOWN_OLD = "/.well-known/agent.json"
VERSION, VERSION_OLD = "1.0", "0.3.0"
UNSUPPORTED = -32004
"""UnsupportedOperationError of the A2A specification."""
ISOLATION = {0: "none: a staged view of the project", 1: "an OS sandbox", 2: "a container"}
_SCHEME = "mudroom"
_TEXT = ["text/plain"]


class AgentStatus(NamedTuple):
    """What was decided about an agent on this machine."""

    decision: LevelDecision
    network: str = "gate"
    """``none``, ``gate``, ``open``."""
    hosts: tuple[str, ...] = ()
    """Those of the card that rules allow."""
    credentials: tuple[str, ...] = ()
    """Stores that are open to it, by name."""


def sandbox_params(card: AgentCard, standing: AgentStatus) -> dict[str, Any]:
    """The extension's parameters: level null means that the agent is refused here."""
    decision = standing.decision
    return {
        "sandboxLevel": decision.level,
        "isolation": "refused" if decision.level is None else ISOLATION[decision.level],
        "askedLevel": decision.asked,
        "decidedBy": decision.rule,
        "reason": decision.reason,
        "network": {"mode": standing.network, "hosts": list(standing.hosts)},
        "credentials": list(standing.credentials),
        "gpu": card.needs.gpu,
    }


def a2a_card(card: AgentCard, standing: AgentStatus, url: str) -> dict[str, Any]:
    """As version 1.0 has it. ``url``: where the agent's interface is (JSON-RPC)."""
    return {
        **_common(card),
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": VERSION}],
        "capabilities": _capabilities(card, standing),
        "securitySchemes": {_SCHEME: {"httpAuthSecurityScheme": {"scheme": "Bearer", "description": _TOKEN}}},
        "securityRequirements": [{"schemes": {_SCHEME: {"list": []}}}],
    }


def a2a_card_old(card: AgentCard, standing: AgentStatus, url: str) -> dict[str, Any]:
    """As version 0.3 has it."""
    return {
        **_common(card),
        "protocolVersion": VERSION_OLD,
        "url": url,
        "preferredTransport": "JSONRPC",
        "capabilities": _capabilities(card, standing),
        "securitySchemes": {_SCHEME: {"type": "http", "scheme": "bearer", "description": _TOKEN}},
        "security": [{_SCHEME: []}],
    }


_TOKEN = "the token that mudroom serve prints"


def _common(card: AgentCard) -> dict[str, Any]:
    name = card.name or card.agent
    about = card.description or f"The agent {card.agent}, run by mudroom on a staged view of a project."
    return {
        "name": name,
        "description": about,
        "version": card.version or "0",
        "defaultInputModes": list(_TEXT),
        "defaultOutputModes": list(_TEXT),
        "skills": [{"id": card.agent, "name": name, "description": about, "tags": ["agent", "sandboxed"]}],
    }


def _capabilities(card: AgentCard, standing: AgentStatus) -> dict[str, Any]:
    extension = {
        "uri": EXTENSION,
        "description": "How mudroom confines this agent: what the policy of the machine that runs it decided.",
        "required": False,
        "params": sandbox_params(card, standing),
    }
    return {"streaming": False, "pushNotifications": False, "extensions": [extension]}


def unsupported(request: object) -> dict[str, Any]:
    """The answer to any JSON-RPC 2.0 request: agents are run from the command line, and take no tasks over A2A."""
    identity = request.get("id") if isinstance(request, dict) else None
    if not isinstance(identity, (str, int)) or isinstance(identity, bool):
        identity = None
    if isinstance(identity, str) and not identity.isascii():
        try:
            identity.encode()
        except UnicodeEncodeError:  # half a character cannot be said back
            identity = None
    error = {"code": UNSUPPORTED, "message": "This agent takes no tasks over A2A: mudroom agent run starts it"}
    return {"jsonrpc": "2.0", "id": identity, "error": error}


def paths_of(agents: Sequence[str]) -> dict[str, str]:
    """By agent the path at which its cards and its interface are; the root, too, for the only one there is."""
    return {agent: f"/agents/{_quoted(agent)}" for agent in agents}


def _quoted(agent: str) -> str:
    """An id as one part of a path: what is not unreserved in RFC 3986 is percent-encoded."""
    plain = "-._~"
    return "".join(c if c.isalnum() or c in plain else f"%{ord(c):02X}" for c in agent)
