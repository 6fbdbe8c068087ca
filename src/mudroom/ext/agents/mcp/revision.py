"""MCP revisions, and the two forms in which a request comes. Pure. https://modelcontextprotocol.io/specification

form         revisions                  what a request needs
handshake    2024-11-05 to 2025-11-25   ``initialize`` first: it fixes the revision and the client's capabilities
enveloped    2026-07-28                 all of that in ``params._meta`` in each request; the server asks the client
                                        by a result (``input_required``) instead of a request

A 2026-07-28 client begins with ``server/discover``. An older server does not know it, and the client falls back.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.ext.agents.mcp.message import INVALID_PARAMS, UNSUPPORTED_VERSION, Json, RpcError
from mudroom.typing import Any, NamedTuple

HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ENVELOPED = ("2026-07-28",)

_META = "io.modelcontextprotocol/"
VERSION_KEY = _META + "protocolVersion"
CLIENT_KEY = _META + "clientInfo"
CAPABILITIES_KEY = _META + "clientCapabilities"
SERVER_KEY = _META + "serverInfo"
LONGEST_NAME = 200


class McpPeer(NamedTuple):
    """A client's description of itself. It is not trusted: it names a fork, and chooses the form of answers."""

    revision: str
    name: str = ""
    asks_users: bool = False
    """Whether it can ask its user (elicitation by forms)."""

    @property
    def is_enveloped(self) -> bool:
        return self.revision in ENVELOPED

    @property
    def knows_structure(self) -> bool:
        """Whether it knows structured results, titles and output schemas (2025-06-18)."""
        return self.is_enveloped or HANDSHAKES.index(self.revision) >= HANDSHAKES.index("2025-06-18")


def introduced(params: Mapping[str, Any]) -> McpPeer:
    """Return the peer from an ``initialize``. An unknown revision is answered with the newest that has a handshake."""
    asked = params.get("protocolVersion")
    if not isinstance(asked, str):
        raise RpcError(INVALID_PARAMS, "initialize needs protocolVersion, a string", {"supported": list(HANDSHAKES)})
    revision = asked if asked in HANDSHAKES else HANDSHAKES[-1]
    capabilities = _object(params.get("capabilities"))
    return McpPeer(revision, _name(params.get("clientInfo")), _asks(capabilities) and revision >= "2025-06-18")


def enveloped(params: Mapping[str, Any]) -> McpPeer | None:
    """Return an enveloped request's peer; None if it is not enveloped. Raise RpcError if the envelope is not complete,
    or its revision is unknown."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or VERSION_KEY not in meta:
        return None
    revision = meta[VERSION_KEY]
    if not isinstance(revision, str) or not isinstance(meta.get(CAPABILITIES_KEY), Mapping):
        raise RpcError(INVALID_PARAMS, f"params._meta needs {VERSION_KEY} and {CAPABILITIES_KEY}")
    if revision not in ENVELOPED:
        data = {"supported": list(ENVELOPED), "requested": revision[:LONGEST_NAME]}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    return McpPeer(revision, _name(meta.get(CLIENT_KEY)), _asks(meta[CAPABILITIES_KEY]))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _name(info: object) -> str:
    name = _object(info).get("name")
    return name[:LONGEST_NAME] if isinstance(name, str) else ""


def _asks(capabilities: Mapping[str, Any]) -> bool:
    """Return whether the client can show a form. ``{}`` means forms (2025-11-25, elicitation)."""
    elicitation = capabilities.get("elicitation")
    return isinstance(elicitation, Mapping) and (not elicitation or "form" in elicitation)


CACHED = frozenset({"server/discover", "tools/list", "resources/list", "resources/templates/list", "resources/read"})
"""Methods whose results say how long they hold, in 2026-07-28."""
_HOLDS = {"tools/list": 3_600_000, "server/discover": 3_600_000, "resources/templates/list": 3_600_000}
"""Milliseconds."""


def shaped(peer: McpPeer, method: str, value: Json, server: Mapping[str, str]) -> Json:
    """Return a result in the form that the peer's revision has."""
    if not peer.is_enveloped:
        return value
    shape: Json = {"resultType": "complete", **value}
    if method in CACHED:
        shape |= {"ttlMs": _HOLDS.get(method, 0), "cacheScope": "private"}
    shape["_meta"] = {**value.get("_meta", {}), SERVER_KEY: dict(server)}
    return shape
