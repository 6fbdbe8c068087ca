"""An entry in a list of hosts: a host rule, or a preset's word (``@npm``), which stands for rules for its hosts.

The preset table is loaded where a word is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mudroom.core.network.host_pattern import PRESET
from mudroom.core.network.host_rules import ASKED, HostRule, RuleWord, held, parse_rule
from mudroom.core.network.preset import PRESETS, near_presets, rules_of
from mudroom.core.tree.path import show


class UnknownPreset(ValueError):
    """Raised for a word without a preset."""

    def __init__(self, problem: str, near: tuple[str, ...] = ()) -> None:
        """Initialise the error. ``near``: presets that may be meant."""
        super().__init__(problem + (f" (did you mean {PRESET}{near[0]}?)" if near else ""))
        self.problem, self.near = problem, near


def parse_entry(text: str, action: RuleWord, source: str = "", *, private: bool = False) -> HostRule:
    """Return an entry's rule. A preset's word gives a rule with the word as its pattern; ``expand`` replaces it by the
    hosts' rules. Raise ValueError as ``parse_rule`` does, UnknownPreset if there is no such preset."""
    if not text.startswith(PRESET):
        return parse_rule(text, action, source, private=private)

    name, shown = text[len(PRESET) :], show(text.encode("utf-8", "surrogateescape"))
    if name in PRESETS:
        rule = HostRule("allow" if action == "hold" else action, PRESET + name, private=private, source=source)
        return held(rule) if action == "hold" else rule
    host = name.partition(":")[0]
    if host in PRESETS:
        raise UnknownPreset(f"{shown}: a preset names its ports itself", (host,))
    raise UnknownPreset(f"there is no preset {shown}", near_presets(name.lower()))


def offered_rule(text: str) -> HostRule:
    """Return the rule of an answer (``preset.py:Offer``). Raise ValueError."""
    word, _space, entry = text.partition(" ")
    return parse_entry(entry, "hold" if word == "hold" else "allow", ASKED)


def expand(rules: Iterable[HostRule]) -> Iterator[HostRule]:
    """Yield the rules, with each preset's word replaced by rules for its hosts. Their ``source`` ends with the word:
    ``permissions.yaml:4 @npm``."""
    for rule in rules:
        if rule.pattern.startswith(PRESET):
            yield from rules_of(rule)
        else:
            yield rule


def preset_of(rule: HostRule) -> str:
    """Return the name of the preset that a rule stands for, or comes from; empty if neither."""
    word = rule.pattern if rule.pattern.startswith(PRESET) else rule.source.rpartition(" ")[2]
    return word[len(PRESET) :] if word.startswith(PRESET) else ""
