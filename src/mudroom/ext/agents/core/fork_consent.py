"""Consent of two forks to a connection: fork A reaches fork B at a port only if A's side says ``reach`` and B's side
says ``show``.

A side speaks through the policy's ``network.forks``, which is about names, or through the user's commands ``net show``
and ``net reach``, which are about one fork. ``network.agents`` speaks for both sides at once (``fork_host.py``). Pure.

Rules of this file:
1. A fork is recognised by its identity and its agent, not by its name.
2. A grant by a command is for the fork that has the name at that time.
3. A name in the policy means, for a fork that has reached it, the fork that it reached first. A pattern with ``*``
   means any fork with such a name, also a later one.
4. A card only asks (``needsForks``).
5. A fork does not reach itself by its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.network.fork_host import ENDPOINT_PORT, SOURCE, SUFFIX, AgentLink
from mudroom.core.network.fork_rule import KEY, ForkIdentity, ForkRule, matches_label
from mudroom.typing import NamedTuple

MOST_GRANTS = 256
"""Most grants for one fork."""


class ShownPort(NamedTuple):
    port: int
    http: bool = False


class ReachedPort(NamedTuple):
    fork: ForkIdentity
    port: int


class ForkGrants(NamedTuple):
    """The user's grants to one fork by commands, and the forks that it has reached by names in the policy."""

    shows: tuple[ShownPort, ...] = ()
    reaches: tuple[ReachedPort, ...] = ()
    met: tuple[ForkIdentity, ...] = ()


class ConsentSide(NamedTuple):
    fork: ForkIdentity
    grants: ForkGrants = ForkGrants()
    endpoint: int | None = None
    """The registered endpoint's port."""
    name: str = ""
    """The fork's name, for commands."""


class Consent(NamedTuple):
    port: int
    """Inside the fork that is reached."""
    reach: str
    """The rule on the reaching side; empty: there is none."""
    show: str
    http: bool = False
    missing: tuple[str, ...] = ()
    """Missing consents, each with the command that gives it."""
    is_met: bool = True
    """False: this is the first connection by a name in the policy, so the fork has to be noted (``ForkGrants.met``)."""
    has_server: bool = True
    """False: the port leads to a registered endpoint, and there is none."""

    @property
    def is_given(self) -> bool:
        return bool(self.reach and self.show)

    @property
    def rule(self) -> str:
        return self.reach if self.reach == self.show else f"{self.reach} and {self.show}"

    @property
    def reason(self) -> str:
        return "; ".join(self.missing) or f"{self.rule} allow it"


def link_between(links: Sequence[AgentLink], source: str, target: str, port: int) -> AgentLink | None:
    """Return the link between two labels for a port, or None."""
    for link in links:
        is_from = link.source in (source, "*")
        if is_from and link.target == target and (link.port or ENDPOINT_PORT) == port:
            return link
    return None


def consent(
    rules: Sequence[ForkRule], links: Sequence[AgentLink], near: ConsentSide, far: ConsentSide, port: int
) -> Consent:
    """Return the two forks' consent to a connection from ``near`` to a port of ``far``."""
    a, b = near.fork, far.fork
    if a.identity == b.identity:
        return Consent(port, "", "", missing=("a command reaches its own servers at localhost",))
    shown = shown_by(rules, far, port)
    inner = port
    if port == ENDPOINT_PORT and shown is None and far.endpoint is not None:
        inner = far.endpoint
        shown = shown_by(rules, far, inner)
    link = link_between(links, a.label, b.label, port)
    if link is not None:
        has_server = port != ENDPOINT_PORT or shown is not None or far.endpoint is not None
        http = shown is not None and shown[1]
        return Consent(inner, f"{SOURCE}: {link}", f"{SOURCE}: {link}", http, has_server=has_server)
    reach, is_met, other = _reached(rules, near, b, port)
    missing = []
    if not reach:
        why = f"{b.label} is another fork than the one of that name before" if other else ""
        why = why or f"{a.label} may not reach {b.label}:{port}"
        missing.append(f"{why} (mudroom net reach {b.label}:{port} --fork {near.name})")
    if shown is None:
        missing.append(f"{b.label} does not show port {inner} (mudroom net show {inner} --fork {far.name})")
    show, http = shown if shown is not None else ("", False)
    return Consent(inner, reach, show, http, tuple(missing), is_met)


def look_at_names(label: str, port: int, rules: Sequence[ForkRule], links: Sequence[AgentLink]) -> tuple[bool, str]:
    """Return whether the policy alone lets some fork reach this one, and which: for a question about no particular
    fork."""
    sources = [link.source for link in links if link.target == label and (link.port or ENDPOINT_PORT) == port]
    if sources:
        from_all = "every fork" if "*" in sources else "the fork " + " and ".join(sources)
        return True, f"from {from_all}, by {SOURCE}"
    side = ConsentSide(ForkIdentity("", "-"))
    far = ConsentSide(ForkIdentity(label, ""))
    given = consent(rules, (), side, far, port)
    if given.is_given:
        return True, f"from every fork, by {given.rule}"
    ports = sorted({link.port or ENDPOINT_PORT for link in links if link.target == label})
    if ports:
        return False, f"{SOURCE} opens port {', '.join(map(str, ports))} of it"
    return False, f"the policy lets no fork reach it; mudroom net why {label}{SUFFIX}:{port} --fork NAME asks for one"


def shown_by(rules: Sequence[ForkRule], far: ConsentSide, port: int) -> tuple[str, bool] | None:
    """Return the rule that shows a port, and whether it shows HTTP only. The strictest rule counts."""
    found = [
        (f"{KEY}: show {rule}", rule.http)
        for rule in rules
        if rule.side == "show" and rule.port == port and matches_label(rule.fork, far.fork.label)
    ]
    found += [(f"net show {shown.port}", shown.http) for shown in far.grants.shows if shown.port == port]
    return max(found, key=lambda row: row[1], default=None)


def _reached(rules: Sequence[ForkRule], near: ConsentSide, b: ForkIdentity, port: int) -> tuple[str, bool, bool]:
    """Return the rule that lets ``near`` reach a port (empty: none), whether the fork has been noted, and whether the
    rule meant an earlier fork with that name."""
    other = False
    for reached in near.grants.reaches:
        if reached.port == port and reached.fork.label == b.label:
            if reached.fork == b:
                return f"net reach {b.label}:{port}", True, False
            other = True
    for rule in rules:
        if rule.side != "reach" or rule.port != port or not matches_label(rule.fork, b.label):
            continue
        if rule.agent and rule.agent != b.agent:
            continue
        if rule.fork.endswith("*"):
            return f"{KEY}: reach {rule}", True, False
        met = [fork for fork in near.grants.met if fork.label == b.label]
        if not met or b in met:
            return f"{KEY}: reach {rule}", bool(met), False
        other = True
    return "", True, other
