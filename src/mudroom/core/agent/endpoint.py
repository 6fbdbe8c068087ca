"""An agent's endpoint: the address, inside its own sandbox, at which its server listens. Pure."""

from __future__ import annotations

from mudroom.typing import NamedTuple


class AgentEndpoint(NamedTuple):
    agent: str
    level: int
    port: int
    path: str = "/"
    """The URL's path, such as ``/a2a``."""
    name: str = ""
    """From the agent's card, like the next two fields."""
    description: str = ""
    version: str = ""


class EndpointAddress(NamedTuple):
    """A card's key ``endpoint``."""

    port: int
    path: str = "/"
