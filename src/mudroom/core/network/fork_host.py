"""Names of forks for each other: ``http://FORK.mudroom.internal/`` is a server that runs in another fork.

The policy's ``network.agents`` lists links, ``a -> b`` or ``a -> b:8080``: commands in the fork ``a`` may reach a port
that is served in the fork ``b``. A link without a port is for port 80 of that name, which leads to the endpoint that
the agent in ``b`` has registered (the key ``endpoint`` of its card); a link with a port leads to that port.

Rules of this file: only a rule for exactly that name opens it; a wildcard opens none, and nobody is asked. The name is
never looked up: ``.internal`` is reserved for private use (ICANN, 29 July 2024). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.network.host import parse_host, parse_port
from mudroom.core.network.host_rules import HostDecision, HostRule, Request, decide
from mudroom.core.network.loopback import OWN_PORTS
from mudroom.typing import NamedTuple

SUFFIX = ".mudroom.internal"
ENDPOINT_PORT = 80
"""The port of a fork's name that leads to its registered endpoint."""
SOURCE = "network.agents"
UNLINKED = "forks reach each other only by network.agents of the policy: a -> b"


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


def is_fork_host(host: str) -> bool:
    """Return whether a canonical host is the name of a fork."""
    return host.endswith(SUFFIX)


def fork_host(name: str) -> str:
    """Return the host of a fork. Raise ValueError if the name of the fork cannot be part of a host's name."""
    host = name + SUFFIX
    try:
        is_host = parse_host(host.encode("utf-8", "surrogateescape")).text == host
    except ValueError:
        is_host = False
    if not is_host or not name:
        raise ValueError(f"the fork {name!r} cannot be part of a host's name: lower-case letters, digits and hyphens")
    return host


def fork_of(host: str) -> str:
    return host.removesuffix(SUFFIX)


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
    if source == target:
        raise ValueError(f"{text!r} leads from a fork to itself: a command reaches its own servers at localhost")
    return AgentLink(source, target, port)


def links_of(links: Sequence[AgentLink], fork: str) -> list[AgentLink]:
    """Return the links that lead from a fork."""
    return [link for link in links if link.source in (fork, "*") and link.target != fork]


def link_rules(links: Sequence[AgentLink]) -> list[HostRule]:
    """Return the gate's rules for links that lead from the fork of a command."""
    return [
        HostRule("allow", fork_host(link.target), (link.port or ENDPOINT_PORT,), private=True, source=SOURCE)
        for link in links
    ]


def decide_fork(request: Request, rules: Sequence[HostRule]) -> HostDecision:
    """Return the decision about a connection to another fork. A deny that covers the name holds."""
    exact = [rule for rule in rules if rule.action == "deny" or rule.pattern == request.host]
    decision = decide(request, exact)
    return decision if decision.action != "ask" else HostDecision("deny", decision.rule, UNLINKED)


def look_at_fork(host: str, port: int, links: Sequence[AgentLink]) -> HostDecision:
    """Return the decision about a connection to another fork, for ``net why``, which asks for no fork in particular."""
    name = fork_of(host)
    ports = {link.port or ENDPOINT_PORT for link in links if link.target == name}
    sources = [link.source for link in links if link.target == name and (link.port or ENDPOINT_PORT) == port]
    if sources:
        from_all = "every fork" if "*" in sources else "the fork " + " and ".join(sources)
        return HostDecision("allow", None, f"from {from_all}, by network.agents")
    if ports:
        return HostDecision("deny", None, f"network.agents opens port {', '.join(map(str, sorted(ports)))} of it")
    return HostDecision("deny", None, UNLINKED)
