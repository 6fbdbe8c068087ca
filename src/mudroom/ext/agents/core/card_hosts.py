"""The hosts that an agent's card names, compared with the existing host rules. Pure.

The agent's author writes the card, so naming a host is a request. A host that a rule allows needs no answer; a denied
host stays denied; a host with an ask rule is asked about at its first connection. The user decides about the remaining
hosts once, before the agent starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.network.host_pattern import parse_pattern
from mudroom.core.network.host_rules import USUAL, HostRule, parse_rule
from mudroom.core.network.preset import EFFECTS
from mudroom.typing import NamedTuple


class CardHostRule(NamedTuple):
    allowed: tuple[HostRule, ...] = ()
    """Each as an allow rule with the source ``card AGENT``."""
    denied: tuple[HostRule, ...] = ()
    asked: tuple[HostRule, ...] = ()
    """Hosts with an ask rule, even if another rule allows them."""
    open: tuple[HostRule, ...] = ()
    """Hosts that no rule fully covers."""


def sort_hosts(agent: str, hosts: Sequence[str], rules: Sequence[HostRule]) -> CardHostRule:
    """Return a card's hosts by the rule that decides about them. ``hosts``: as ``parse_rule`` reads them. Raise
    ValueError as that function does."""
    by_action: dict[str, list[HostRule]] = {"deny": [], "ask": [], "allow": [], "": []}
    for text in dict.fromkeys(hosts):
        rule = parse_rule(text, "allow", f"card {agent}")
        action = next(
            (action for action in ("deny", "ask", "allow") if any(_decides(r, action, rule) for r in rules)), ""
        )
        by_action[action].append(rule)
    return CardHostRule(
        tuple(by_action["allow"]), tuple(by_action["deny"]), tuple(by_action["ask"]), tuple(by_action[""])
    )


def with_holds(rules: Sequence[HostRule]) -> tuple[HostRule, ...]:
    """Return a card's hosts, with the known forges and registries among them read only: pushes and publishes wait for
    the apply."""
    holds = [
        parse_rule(f"{host} {effects.requests}".rstrip(), "hold", rule.source)._replace(ports=rule.ports)
        for rule in rules
        for host, effects in EFFECTS.items()
        if rule.action == "allow" and covers(rule.pattern, host)
    ]
    return (*(rule for rule in rules if rule.action != "allow" or rule.pattern not in EFFECTS), *holds)


def _decides(rule: HostRule, action: str, card_rule: HostRule) -> bool:
    """Return whether a rule with this action covers all hosts and ports of ``card_rule``, for every request."""
    if rule.action != action or rule.methods or rule.paths or not covers(rule.pattern, card_rule.pattern):
        return False
    ports = rule.ports or (USUAL if action == "allow" else ())
    return not ports or set(card_rule.ports or USUAL) <= set(ports)


def covers(pattern: str, other: str) -> bool:
    """Return whether the canonical pattern ``pattern`` matches every host that ``other`` matches."""
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
