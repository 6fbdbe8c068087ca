"""Host names for forks: ``http://FORK.mudroom.internal/`` is a server that runs in another fork.

The policy's ``network.agents`` lists links, ``a -> b`` or ``a -> b:8080``: commands in the fork ``a`` may reach a port
that is served in the fork ``b``. A link is the consent of both forks at once; ``fork_consent.py`` handles each fork's
own. Port 80 of a name leads to the endpoint that the agent in the fork has registered (the key ``endpoint`` in its
card), unless the fork shows its port 80.

Rules: no host rule opens a name below ``mudroom.internal``, and no question is asked about such a name: only a deny
counts. The gate's host decides about each connection. No such name is ever looked up: ``.internal`` is reserved for
private use (ICANN, 29 July 2024). A fork's name is one label in lower case. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mudroom.core.network.host import parse_port
from mudroom.core.network.host_rules import HostDecision, HostRule, Request, decide
from mudroom.core.network.loopback import OWN_PORTS
from mudroom.typing import NamedTuple

ZONE = "mudroom.internal"
SUFFIX = "." + ZONE
ENDPOINT_PORT = 80
"""The port that leads to a fork's registered endpoint."""
CATALOGUE = "agents"
"""Label for the list of running agents. No fork has it."""
SOURCE = "network.agents"
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST = 63
"""Characters in a label."""
NO_NAME = "names of forks have one part before .mudroom.internal"
DECIDED_BY_HOST = "forks reach each other with the consent of both"


class AgentLink(NamedTuple):
    source: str
    """A fork's name; ``*``: every fork."""
    target: str
    port: int | None = None
    """None: the registered endpoint."""

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}" + (f":{self.port}" if self.port is not None else "")


class ForkDial(NamedTuple):
    """A request to the gate for a connection to another fork."""

    identity: int
    host: str
    port: int
    path: str = ""
    """The path in a plain HTTP request; empty: not known."""


def is_fork_host(host: str) -> bool:
    """Return whether a canonical host is reserved for forks."""
    return host.endswith(SUFFIX) or host == ZONE


def label_of(name: str) -> str:
    """Return a fork's label: its name in lower case, with ``-`` for ``_`` and ``.``; empty if that is not a label."""
    label = _folded(name)
    return label if _is_label(label) else ""


def _folded(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _is_label(label: str) -> bool:
    """Return whether this is a label, as ``parse_host`` requires it for a part of a name (RFC 1035 2.3.4, RFC 952)."""
    return 0 < len(label) <= _LONGEST and label[0] != "-" and label[-1] != "-" and _LETTERS.issuperset(label)


def names_of(label: str, names: Iterable[str]) -> list[str]:
    """Return the names of forks that have this label. Forks that share a label cannot be addressed."""
    return [name for name in names if _folded(name) == label] if _is_label(label) and label != CATALOGUE else []


def fork_host(name: str) -> str:
    """Return a fork's host. Raise ValueError if its name has no label."""
    label = label_of(name)
    if not label or label == CATALOGUE:
        raise ValueError(f"the fork {name!r} cannot be part of a host's name: letters, digits and hyphens")
    return label + SUFFIX


def fork_of(host: str) -> str:
    """Return a host's label; empty if it is not a fork's host: it has no part, or several, before the zone."""
    label = host.removesuffix(SUFFIX) if host.endswith(SUFFIX) else ""
    return label if _is_label(label) else ""


def parse_link(text: str) -> AgentLink:
    """Return the link that ``a -> b`` or ``a -> b:8080`` denotes. Raise ValueError for any other text."""
    source, arrow, target = (part.strip() for part in text.partition("->"))
    if not arrow or not source or not target:
        raise ValueError(f"{text!r} is not a link between two forks")
    target, colon, digits = target.partition(":")
    port = parse_port(digits.encode()) if colon else None
    for name in (target,) if source == "*" else (source, target):
        if fork_host(name) != name + SUFFIX:
            raise ValueError(f"{text!r}: forks are named here by lower-case letters, digits and hyphens")
    if port in OWN_PORTS:
        raise ValueError(f"{text!r}: port {port} inside is the gate's own")
    if source != "*" and source == target:
        raise ValueError(f"{text!r} leads from a fork to itself: a command reaches its own servers at localhost")
    return AgentLink(source, target, port)


def decide_fork(request: Request, rules: Sequence[HostRule]) -> HostDecision:
    """Return the gate's part of the decision about a connection to another fork: a deny that covers the name holds, and
    no other rule counts. The host decides about connections that are let through here (``fork_consent.py``)."""
    decision = decide(request, [rule for rule in rules if rule.action == "deny"])
    if decision.action == "deny":
        return decision
    if not fork_of(request.host):
        return HostDecision("deny", None, NO_NAME)
    return HostDecision("allow", None, DECIDED_BY_HOST)
