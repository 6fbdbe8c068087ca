"""The decision of a filter about one call. A profile is data: the calls that it refuses, and rules with conditions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mudroom.sandbox.linux.bare_plan import RULES
from mudroom.sandbox.linux.syscall import DENY, ERROR_NAMES, NO_NAMESPACES, NO_NETWORK, Cond, SyscallRule

ALLOWED = "yes"


class Rule(NamedTuple):
    call: str
    error: str
    conditions: tuple[Cond, ...]


class Profile(NamedTuple):
    title: str
    version: str
    date: str
    read: str
    """The settings for which the profile was read."""
    foreign: str
    """What happens to 32-bit calls."""
    rules: tuple[Rule, ...]


def ours(title: str, read: str, rules: Sequence[SyscallRule]) -> Profile:
    table = tuple(Rule(rule.syscall, ERROR_NAMES[rule.action], rule.conditions) for rule in rules)
    return Profile(title, "this repository", "", read, "killed", table)


OWN = (
    ours("mudroom 1", "level 1", DENY),
    ours("mudroom 1, L", "level 1 without namespaces and network", (*NO_NETWORK, *NO_NAMESPACES, *DENY)),
    ours("mudroom 0", "level 0", RULES),
)


def load() -> tuple[tuple[str, ...], tuple[Profile, ...]]:
    """Return the calls of x86-64 by number, and the profiles of the others."""
    data = json.loads(Path(__file__).with_name("profiles.json").read_text())
    return tuple(data["calls"]), tuple(_profile(one) for one in data["profiles"])


def _profile(data: Mapping[str, Any]) -> Profile:
    plain = [Rule(call, error, ()) for error, calls in data["refused"].items() for call in calls]
    rules = [Rule(call, error, tuple(Cond(*cond) for cond in conditions)) for call, error, conditions in data["rules"]]
    return Profile(data["title"], data["version"], data["date"], data["read"], data["foreign"], (*plain, *rules))


def decide(profile: Profile, call: str, arguments: Sequence[int]) -> str:
    """Return ``yes``, or the error of the first rule whose conditions all hold."""
    for rule in profile.rules:
        if rule.call == call and all(_holds(cond, arguments) for cond in rule.conditions):
            return rule.error
    return ALLOWED


def _holds(cond: Cond, arguments: Sequence[int]) -> bool:
    value = arguments[cond.arg] if cond.arg < len(arguments) else 0
    return ((value & 0xFFFFFFFF & cond.mask) == cond.value) is (cond.op == "==")


def is_conditional(profiles: Sequence[Profile], call: str) -> bool:
    """Return whether the answer of any profile depends on the arguments of a call."""
    return any(rule.call == call and rule.conditions for profile in profiles for rule in profile.rules)
