"""Policy rules for connections between forks: ``network.forks``. Pure.

A fork reaches another at a port if its side says ``reach`` and the other's says ``show``
(``ext/agents/core/fork_consent.py``).
"""

from __future__ import annotations

from mudroom.core.network.fork_host import ENDPOINT_PORT, SUFFIX, label_of
from mudroom.core.network.host import parse_port
from mudroom.core.network.loopback import OWN_PORTS
from mudroom.typing import Literal, NamedTuple

Side = Literal["show", "reach"]
SIDES: tuple[Side, ...] = ("show", "reach")
KEY = "network.forks"
_HTTP = "/http"
FORMS: dict[Side, str] = {
    "show": "8000, 8000/http, reviewer:8000",
    "reach": "reviewer:8000, db-*:5432, reviewer@AGENT:8000",
}


class ForkRule(NamedTuple):
    """A policy rule for one side."""

    side: Side
    fork: str
    """Label of the fork that shows the port, or ``db-*``; ``*`` in a ``show``: every fork."""
    port: int
    http: bool = False
    """``show``: plain HTTP/1 only, so that the server can rely on ``x-mudroom-fork``."""
    agent: str = ""
    """``reach``: the agent that has to be in that fork; empty: any."""

    def __str__(self) -> str:
        agent = f"@{self.agent}" if self.agent else ""
        fork = f"{self.fork}{agent}:" if self.side == "reach" or self.fork != "*" else ""
        return f"{fork}{self.port}{_HTTP if self.http else ''}"


class ForkIdentity(NamedTuple):
    """A fork's identity for consent."""

    label: str
    identity: str
    """Differs from an earlier fork's under the same name."""
    agent: str = ""
    """The agent whose workspace the fork is; empty: none."""


def parse_forks(value: object, side: str) -> list[ForkRule]:
    """Return the rules in a list from the policy or a card. Raise ValueError with a printable problem."""
    if side not in SIDES:
        raise ValueError(f"{side!r} is neither show nor reach")
    if not isinstance(value, list) or not all(
        isinstance(item, str) or (side == "show" and type(item) is int) for item in value
    ):
        kind = "ports" if side == "show" else "texts"
        raise ValueError(f"a list of {kind} is needed: [{FORMS[side]}]")
    return [parse_shown(str(item)) if side == "show" else parse_reached(str(item)) for item in value]


def parse_shown(text: str) -> ForkRule:
    """Return the rule for a shown port. Raise ValueError if the text is not valid."""
    place, http = text.removesuffix(_HTTP), text.endswith(_HTTP)
    name, colon, digits = place.rpartition(":")
    return ForkRule("show", _pattern(name, text) if colon else "*", _port(digits, text), http)


def parse_reached(text: str) -> ForkRule:
    """Return the rule for a reached port; without a port, the agent's endpoint. Raise ValueError if the text is not
    valid."""
    name, at, rest = text.partition("@")
    place, colon, digits = (rest if at else text).rpartition(":")
    if not colon or not digits.isdigit():
        place, digits = (rest if at else text), str(ENDPOINT_PORT)
    name, agent = (name, place) if at else (place, "")
    if at and not agent:
        raise ValueError(f"{text!r}: the agent is missing")
    return ForkRule("reach", _pattern(name, text), _port(digits, text), agent=agent)


def _pattern(name: str, text: str) -> str:
    name = name.removesuffix(SUFFIX)
    stem = name.removesuffix("*")
    if not stem:
        raise ValueError(f"{text!r} names no fork: reviewer, or db-* for several")
    if label_of(stem + "x" if name != stem else stem) != (stem + "x" if name != stem else stem):
        raise ValueError(f"{text!r}: forks are named by lower-case letters, digits and hyphens; one * may end a name")
    return name


def _port(digits: str, text: str) -> int:
    try:
        port = parse_port(digits.encode())
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    if port in OWN_PORTS:
        raise ValueError(f"{text!r}: port {port} inside is the gate's own")
    return port


def matches_label(pattern: str, label: str) -> bool:
    return label == pattern or (pattern.endswith("*") and label.startswith(pattern[:-1]))
