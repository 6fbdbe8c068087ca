"""Rules that name this machine's own loopback, and the places there that a command reaches.

A sandbox has its own loopback. A place on the host's loopback is reached inside at that very address and port if a rule
names it: the gate has a listener there.

Only a rule for one loopback address, or for ``localhost``, opens a place. A name that happens to resolve to loopback
opens none, and neither does a wildcard or a network. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.network.address import parse_ipv4
from mudroom.core.network.allowing import quoted
from mudroom.core.network.host import parse_host
from mudroom.core.network.host_pattern import LOCALHOST, LOCALHOST_ADDRESSES, matches, network_of
from mudroom.core.network.host_rules import USUAL, HostDecision, HostRule, Request, concerns, decide
from mudroom.typing import NamedTuple

OWN_PORTS = (1, 53, 3128)
"""Ports on which the gate's other listeners are inside: all redirected connections, DNS, the proxy. A test compares
them with the plan's."""
MOST = 64
"""Listeners for a command. All travel in one message, which holds 253 descriptors (unix(7))."""


class LoopbackPlace(NamedTuple):
    """An address and port on the host's loopback."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def is_loopback(host: str) -> bool:
    """Return whether a canonical host or pattern is one loopback address, or ``localhost``."""
    if host in (LOCALHOST, "::1"):
        return True
    return host.startswith("127.") and parse_ipv4(host.encode()) is not None


def loopback_places(rules: Sequence[HostRule]) -> list[LoopbackPlace]:
    """Return the places that some request may reach, or may ask for, in order. At most ``MOST`` get a listener."""
    named = {
        LoopbackPlace(address, port)
        for rule in rules
        if rule.action != "deny" and rule.private and is_loopback(rule.pattern)
        for address in (LOCALHOST_ADDRESSES if rule.pattern == LOCALHOST else (rule.pattern,))
        for port in rule.ports or (USUAL if rule.action == "allow" else ())
        if port not in OWN_PORTS
    }
    whole = [
        rule._replace(methods=(), paths=())
        for rule in rules
        if rule.action != "deny" or not (rule.methods or rule.paths)
    ]
    return [place for place in sorted(named) if decide(Request(*place), whole).action != "deny"]


def about_rule(rule: HostRule) -> str:
    """Return one line about the places that a new rule names, or an empty string if it names none."""
    if rule.action != "allow":
        return ""
    if rule.pattern == "*":
        return "that is every public host: what a command reads can be sent anywhere"
    below = rule.pattern.lstrip("*").removeprefix(".")
    if below != rule.pattern and _is_public_suffix(below):
        return f"anybody can have a name below {below}: what a command reads can be sent to any of them"
    ports = rule.ports or USUAL
    own = ", ".join(str(port) for port in ports if port in OWN_PORTS)
    if own and is_loopback(rule.pattern):
        return f"port {own} inside is the gate's own: what listens there on this machine is not reached"
    places = ", ".join(map(str, loopback_places([rule])))
    if places:
        return f"commands reach it at {places}; a server of their own cannot listen there"
    if "/" in rule.pattern and network_of("127.0.0.0/8").holds(network_of(rule.pattern)):
        return "this opens the gate's proxy only; to reach a server at its address, name that: 127.0.0.1:PORT"
    return ""


def _is_public_suffix(name: str) -> bool:
    """Return whether anybody can register a name directly below this one (the list of publicsuffix.org)."""
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False).publicsuffix(name) == name


def is_partial(place: LoopbackPlace, rules: Sequence[HostRule]) -> bool:
    """Return whether only rules for some requests open a place, so that its connections have to be HTTP."""
    covering = [rule for rule in rules if rule.action != "deny" and concerns(rule, *place)]
    return bool(covering) and all(rule.methods or rule.paths for rule in covering)


def look_at_loopback(host: str, port: int, rules: Sequence[HostRule]) -> HostDecision:
    """Return the decision about a connection to a command's own loopback, for ``net why``. ``host``: as ``is_loopback``
    accepts it."""
    if port in OWN_PORTS:
        reason = f"port {port} inside is the gate's own; give the server on this machine another port"
        return HostDecision("deny", None, reason)
    opened = loopback_places(rules)
    places = [LoopbackPlace(address, port) for address in (LOCALHOST_ADDRESSES if host == LOCALHOST else (host,))]
    for place in places:
        if place in opened[:MOST]:
            return _first_allowed(place, rules)
    if any(place in opened for place in places):
        return HostDecision("deny", None, f"rules name more than {MOST} ports of this machine; this one is left out")
    decision = decide(Request(host, port), rules)
    to_allow = f"to allow it: mudroom net allow {quoted(str(LoopbackPlace(host, port)))}"
    if decision.action == "allow":
        return HostDecision("deny", decision.rule, f"{decision.reason}, by the gate's proxy only; {to_allow}")
    if any(rule.action == "deny" and matches(rule.pattern, parse_host(host.encode())) for rule in rules):
        return decision
    return HostDecision("deny", None, f"no rule names this port of this machine; {to_allow}")


def _first_allowed(place: LoopbackPlace, rules: Sequence[HostRule]) -> HostDecision:
    decision = decide(Request(*place), rules)
    if decision.action == "deny" and is_partial(place, rules):
        return HostDecision("allow", None, "rules for some requests only allow it")
    return decision
