"""The endpoint of an agent: the address at which its server listens, inside its own sandbox. Pure."""

from __future__ import annotations

from mudroom.typing import NamedTuple


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
