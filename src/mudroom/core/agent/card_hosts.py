"""The hosts that an agent's card names, held against the rules that there are. Pure.

A card is written by the agent's author, so naming a host is asking for it. What a rule allows already needs nothing;
what a rule denies stays denied; what a rule wants asked about is asked about when it comes to that. For what is left
somebody has to decide, once, before the agent starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mudroom.core.network.host_pattern import parse_pattern
from mudroom.core.network.host_rules import USUAL, HostRule, parse_rule


class CardHostRule(NamedTuple):
    allowed: tuple[HostRule, ...] = ()
    """Each as an allow with the source ``card AGENT``."""
    denied: tuple[HostRule, ...] = ()
    asked: tuple[HostRule, ...] = ()
    """A rule wants them asked about, whatever allows them."""
    open: tuple[HostRule, ...] = ()
    """No rule decides about all that they stand for."""


def wish(agent: str, hosts: Sequence[str], rules: Sequence[HostRule]) -> CardHostRule:
    """``hosts``: as ``parse_rule`` reads them. Raises ValueError as that does."""
    found: dict[str, list[HostRule]] = {"deny": [], "ask": [], "allow": [], "": []}
    for text in dict.fromkeys(hosts):
        rule = parse_rule(text, "allow", f"card {agent}")
        action = next((one for one in ("deny", "ask", "allow") if any(_decides(r, one, rule) for r in rules)), "")
        found[action].append(rule)
    return CardHostRule(tuple(found["allow"]), tuple(found["deny"]), tuple(found["ask"]), tuple(found[""]))


def _decides(rule: HostRule, action: str, wanted: HostRule) -> bool:
    """Whether a rule with this action is about all that is wanted, however it is requested there."""
    if rule.action != action or rule.methods or rule.paths or not covers(rule.pattern, wanted.pattern):
        return False
    ports = rule.ports or (USUAL if action == "allow" else ())
    return not ports or set(wanted.ports or USUAL) <= set(ports)


def covers(pattern: str, other: str) -> bool:
    """Whether one canonical pattern stands for every host that the other stands for."""
    if pattern == other:
        return True
    network = parse_pattern(other.encode())[1]
    if network is not None:
        own = parse_pattern(pattern.encode())[1]
        return own is not None and own.holds(network)
    if other == "*":
        return False
    if pattern == "*":
        return True
    if not pattern.startswith("*"):
        return False
    top = pattern.lstrip("*")  # ".example.com"
    name = other.lstrip("*").lstrip(".")
    if name.endswith(top):
        return True
    return name == top[1:] and (pattern.startswith("**") or other.startswith("*."))
