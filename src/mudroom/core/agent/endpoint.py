"""The endpoint of an agent: the address at which its server listens, inside its own sandbox. Pure."""

from __future__ import annotations

from mudroom.core.agent.field import FieldError, text
from mudroom.core.network.loopback import OWN_PORTS
from mudroom.core.text.regex import regex
from mudroom.typing import Any, NamedTuple

_URL = regex(r"http://(?:localhost|127\.0\.0\.1|\[::1\]):(?P<port>[1-9][0-9]{0,4})(?P<path>/[!-~]{0,256})?")


class AgentEndpoint(NamedTuple):
    agent: str
    level: int
    port: int
    path: str = "/"
    """Of the URL: ``/a2a``."""
    name: str = ""
    """Of its card, as the next two."""
    description: str = ""
    version: str = ""


class EndpointAddress(NamedTuple):
    """The key ``endpoint`` of a card."""

    port: int
    path: str = "/"


def endpoint_field(value: Any, where: str) -> EndpointAddress:
    """Return the port and the path of a URL on loopback. Raise FieldError."""
    found = _URL.fullmatch(text(value, where, 300))
    if found is None or int(found["port"]) > 65535:
        raise FieldError(f"{where}: {value!r} is not a URL of the agent's own loopback", "http://localhost:8080/a2a")
    if int(found["port"]) in OWN_PORTS:
        raise FieldError(f"{where}: port {found['port']} inside is the gate's own", "http://localhost:8080/a2a")
    return EndpointAddress(int(found["port"]), found["path"] or "/")
