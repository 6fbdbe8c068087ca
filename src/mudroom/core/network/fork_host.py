"""Names of forks for each other: ``http://FORK.mudroom.internal/`` is a server that runs in another fork.

The policy's ``network.agents`` lists links, ``a -> b`` or ``a -> b:8080``: commands in the fork ``a`` may reach a port
that is served in the fork ``b``. A link is the consent of both forks at once; ``fork_consent.py`` has that of each.
Port 80 of a name leads to the endpoint that the agent in the fork has registered (the key ``endpoint`` of its card),
unless the fork shows its port 80.

Rules of this file: no host rule opens a name below ``mudroom.internal``, and nobody is asked about one: only a deny
counts. The gate's host decides about each connection. No such name is ever looked up: ``.internal`` is reserved for
private use (ICANN, 29 July 2024). The name of a fork is one label in lower case. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mudroom.core.network.host import parse_host, parse_port
from mudroom.core.network.host_rules import HostDecision, HostRule, Request, decide
from mudroom.core.network.loopback import OWN_PORTS
from mudroom.typing import NamedTuple

ZONE = "mudroom.internal"
SUFFIX = "." + ZONE
ENDPOINT_PORT = 80
"""The port of a fork's name that leads to its registered endpoint."""
CATALOGUE = "agents"
"""Label of the list of running agents. No fork has it."""
SOURCE = "network.agents"
NO_NAME = "names of forks have one part before .mudroom.internal"
DECIDED_BY_HOST = "forks reach each other with the consent of both"


class AgentLink(NamedTuple):
    source: str
    """Name of a fork; ``*``: every fork."""
    target: str
    port: int | None = None
    """None: the registered endpoint."""

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}" + (f":{self.port}" if self.port is not None else "")


class ForkDial(NamedTuple):
    """A request of the gate for a connection to another fork."""

    identity: int
    host: str
    port: int
    path: str = ""
    """Of a plain HTTP request; empty: not known."""


def is_fork_host(host: str) -> bool:
    """Return whether a canonical host is reserved for forks."""
    return host.endswith(SUFFIX) or host == ZONE


def label_of(name: str) -> str:
    """Return the label of a fork: its name in lower case, with ``-`` for ``_`` and ``.``; empty if that is no label."""
    label = name.lower().replace("_", "-").replace(".", "-")
    return label if _is_label(label) else ""


def _is_label(label: str) -> bool:
    if not label or "." in label or "_" in label or not label.isascii():
        return False
    try:
        return parse_host((label + SUFFIX).encode()).text == label + SUFFIX
    except ValueError:
        return False


def names_of(label: str, names: Iterable[str]) -> list[str]:
    """Return the names of forks that have this label. Several forks with one label have no name."""
    return [name for name in names if label_of(name) == label and label != CATALOGUE]


def fork_host(name: str) -> str:
    """Return the host of a fork. Raise ValueError if its name has no label."""
    label = label_of(name)
    if not label or label == CATALOGUE:
        raise ValueError(f"the fork {name!r} cannot be part of a host's name: letters, digits and hyphens")
    return label + SUFFIX


def fork_of(host: str) -> str:
    """Return the label of a host; empty if the host has no part, or several, before the zone."""
    label = host.removesuffix(SUFFIX) if host.endswith(SUFFIX) else ""
    return label if "." not in label else ""


def parse_link(text: str) -> AgentLink:
    """Return a link. Raise ValueError if it is not of the form ``a -> b`` or ``a -> b:8080``."""
    source, arrow, target = (part.strip() for part in text.partition("->"))
    if not arrow or not source or not target:
        raise ValueError(f"{text!r} is not a link between two forks")
    target, colon, digits = target.partition(":")
    port = parse_port(digits.encode()) if colon else None
    if source != "*":
        fork_host(source)
    fork_host(target)
    if port in OWN_PORTS:
        raise ValueError(f"{text!r}: port {port} inside is the gate's own")
    if source != "*" and label_of(source) == label_of(target):
        raise ValueError(f"{text!r} leads from a fork to itself: a command reaches its own servers at localhost")
    return AgentLink(source, target, port)


def decide_fork(request: Request, rules: Sequence[HostRule]) -> HostDecision:
    """Return the gate's part of the decision about a connection to another fork: a deny that covers the name holds, and
    no other rule counts. What is let through here, the host decides about (``fork_consent.py``)."""
    decision = decide(request, [rule for rule in rules if rule.action == "deny"])
    if decision.action == "deny":
        return decision
    return HostDecision(
        "allow" if fork_of(request.host) else "deny", None, DECIDED_BY_HOST if fork_of(request.host) else NO_NAME
    )
