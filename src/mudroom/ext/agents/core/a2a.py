"""An agent's card for other agents: the A2A protocol's AgentCard. Pure.

Version 1.0 is ``specification/a2a.proto`` in github.com/a2aproject/A2A (message AgentCard and the messages in it) in
proto3's JSON form, served at ``/.well-known/agent-card.json``. Version 0.3 is the previous form, which older clients
request at ``/.well-known/agent.json``.

The agent's confinement is mudroom's own extension in ``capabilities.extensions``; no client is required to understand
it. It states this machine's policy decision, not the agent's wish. It proves nothing, since a card's server can write
anything into it.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.agent.card import AgentCard
from mudroom.core.agent.endpoint import AgentEndpoint
from mudroom.core.agent.level_decision import LevelDecision
from mudroom.typing import Any, NamedTuple

EXTENSION = "urn:x-mudroom:a2a:sandbox:1"
WELL_KNOWN = "/.well-known/agent-card.json"
WELL_KNOWN_OLD = "/.well-known/agent.json"
VERSION, VERSION_OLD = "1.0", "0.3.0"
UNSUPPORTED = -32004
"""The A2A specification's UnsupportedOperationError."""
ISOLATION = {0: "none: a staged view of the project", 1: "an OS sandbox", 2: "a container"}
_SCHEME = "mudroom"
_TEXT = ["text/plain"]


class AgentStatus(NamedTuple):
    """The decisions about an agent on this machine."""

    decision: LevelDecision
    network: str = "gate"
    """``none``, ``gate``, ``open``."""
    hosts: tuple[str, ...] = ()
    """Hosts in the card that the rules allow."""
    credentials: tuple[str, ...] = ()
    """Credential stores that are open to the agent."""


def sandbox_params(card: AgentCard, status: AgentStatus) -> dict[str, Any]:
    """Return the extension's parameters. ``sandboxLevel`` null means that the agent is refused here."""
    decision = status.decision
    return {
        "sandboxLevel": decision.level,
        "isolation": "refused" if decision.level is None else ISOLATION[decision.level],
        "askedLevel": decision.asked,
        "decidedBy": decision.rule,
        "reason": decision.reason,
        "network": {"mode": status.network, "hosts": list(status.hosts)},
        "credentials": list(status.credentials),
        "gpu": card.needs.gpu,
    }


def a2a_card(card: AgentCard, status: AgentStatus, url: str) -> dict[str, Any]:
    """Return the card in version 1.0's form. ``url``: the agent's JSON-RPC interface."""
    return {
        **_common(card),
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": VERSION}],
        "capabilities": _capabilities(card, status),
        "securitySchemes": {_SCHEME: {"httpAuthSecurityScheme": {"scheme": "Bearer", "description": _TOKEN}}},
        "securityRequirements": [{"schemes": {_SCHEME: {"list": []}}}],
    }


def a2a_card_old(card: AgentCard, status: AgentStatus, url: str) -> dict[str, Any]:
    """Return the card in version 0.3's form."""
    return {
        **_common(card),
        "protocolVersion": VERSION_OLD,
        "url": url,
        "preferredTransport": "JSONRPC",
        "capabilities": _capabilities(card, status),
        "securitySchemes": {_SCHEME: {"type": "http", "scheme": "bearer", "description": _TOKEN}},
        "security": [{_SCHEME: []}],
    }


def listed_card(endpoint: AgentEndpoint, url: str, *, old: bool = False) -> dict[str, Any]:
    """Return a running agent's card for agents in other forks, which need no token. ``old``: in version 0.3's form."""
    about = endpoint.description or f"The agent {endpoint.agent}, run by mudroom on a staged view of a project."
    card = _described(endpoint.agent, endpoint.name or endpoint.agent, about, endpoint.version or "0")
    extension = {
        "uri": EXTENSION,
        "description": "How mudroom confines this agent.",
        "required": False,
        "params": {"sandboxLevel": endpoint.level, "isolation": ISOLATION[endpoint.level]},
    }
    card["capabilities"] = {"streaming": False, "pushNotifications": False, "extensions": [extension]}
    if old:
        return {**card, "protocolVersion": VERSION_OLD, "url": url, "preferredTransport": "JSONRPC"}
    return {**card, "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": VERSION}]}


_TOKEN = "the token that mudroom serve prints"


def _common(card: AgentCard) -> dict[str, Any]:
    name = card.name or card.agent
    about = card.description or f"The agent {card.agent}, run by mudroom on a staged view of a project."
    return _described(card.agent, name, about, card.version or "0")


def _described(agent: str, name: str, about: str, version: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": about,
        "version": version,
        "defaultInputModes": list(_TEXT),
        "defaultOutputModes": list(_TEXT),
        "skills": [{"id": agent, "name": name, "description": about, "tags": ["agent", "sandboxed"]}],
    }


def _capabilities(card: AgentCard, status: AgentStatus) -> dict[str, Any]:
    extension = {
        "uri": EXTENSION,
        "description": "How mudroom confines this agent: what the policy of the machine that runs it decided.",
        "required": False,
        "params": sandbox_params(card, status),
    }
    return {"streaming": False, "pushNotifications": False, "extensions": [extension]}


def is_forwarded(call: object) -> bool:
    """Return whether a request may be forwarded to an agent: messages and tasks, by their names in versions 1.0 and
    0.3. Push notifications are not forwarded: with them a client could make the agent call addresses."""
    method = call.get("method") if isinstance(call, dict) else None
    if not isinstance(method, str) or "push" in method.lower():
        return False
    return method in _METHODS or (method.startswith("tasks/") and method.removeprefix("tasks/").isalpha())


_METHODS = (
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "message/send",
    "message/stream",
)


def rpc_error(request: object, code: int, message: str) -> dict[str, Any]:
    """Return an error as the answer to any JSON-RPC 2.0 request."""
    identity = request.get("id") if isinstance(request, dict) else None
    if not isinstance(identity, (str, int)) or isinstance(identity, bool):
        identity = None
    if isinstance(identity, str) and not identity.isascii():
        try:
            identity.encode()
        except UnicodeEncodeError:  # an unpaired surrogate cannot be sent back
            identity = None
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}}


def paths_of(agents: Sequence[str]) -> dict[str, str]:
    """Return the path of each agent's cards and interface, by agent."""
    return {agent: f"/agents/{_quoted(agent)}" for agent in agents}


def _quoted(agent: str) -> str:
    """Return an id as one path segment: all characters except RFC 3986's unreserved ones are percent-encoded."""
    plain = "-._~"
    return "".join(c if c.isalnum() or c in plain else f"%{ord(c):02X}" for c in agent)
