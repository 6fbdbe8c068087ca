"""What is wrong with rules that can be read: those that contradict each other, never matter, or leave nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from mudroom.core.command.policy import (
    BY_CLASS,
    CommandPolicy,
    CommandRule,
    class_actions,
    show_pattern,
)


class RuleProblem(NamedTuple):
    severity: Literal["error", "warning"]
    where: str
    """``policy.yaml:12``; empty: of all files together."""
    text: str
    hint: str = ""


def contradictions(rules: Sequence[CommandRule]) -> Iterator[RuleProblem]:
    """``rules``: of one file. The same commands with different actions: which of them was meant?"""
    seen: dict[tuple[object, ...], CommandRule] = {}
    for rule in rules:
        key = (rule.pattern, rule.exact, rule.agents)
        first = seen.setdefault(key, rule)
        if first.action != rule.action:
            text = f"{show_pattern(rule)} is {rule.action} here and {first.action} in {first.source}"
            yield RuleProblem("error", rule.source, text, "keep one of the two")
        elif first is not rule:
            yield RuleProblem("warning", rule.source, f"{show_pattern(rule)}: {first.source} says the same")


def pointless(rules: Sequence[CommandRule]) -> Iterator[RuleProblem]:
    """``rules``: of all files. What is milder than a denial of all that it is about never matters."""
    denials = [rule for rule in rules if rule.action == "deny"]
    for rule in rules:
        cover = next((deny for deny in denials if rule.action != "deny" and covers(deny, rule)), None)
        if cover is not None:
            text = f"{show_pattern(rule)} never matters: {cover.source} denies {show_pattern(cover)}"
            yield RuleProblem("warning", rule.source, text, "a denial wins, whatever is longer or nearer")


def covers(wide: CommandRule, narrow: CommandRule) -> bool:
    """Whether the first matches all that the second does, for everybody that the second is for."""
    if wide.agents and not (narrow.agents and set(narrow.agents) <= set(wide.agents)):
        return False
    if len(wide.pattern) > len(narrow.pattern):
        return False
    if wide.exact and not (narrow.exact and len(wide.pattern) == len(narrow.pattern)):
        return False
    return all(set(few) <= set(many) for few, many in zip(narrow.pattern, wide.pattern, strict=False))


def locked_out(policy: CommandPolicy) -> Iterator[RuleProblem]:
    """Everybody for whom every class is denied and no rule lets anything through."""
    agents: list[str | None] = [None, *dict.fromkeys(agent for agent, _role in policy.agents)]
    nobody = [agent for agent in agents if _nothing_is_left(policy, agent)]
    hint = "let one class through, such as commands: {classes: {read_only: allow}}, or a rule"
    if len(nobody) == len(agents):
        yield RuleProblem("error", "", "every command of every agent is denied: nobody can do anything", hint)
        return
    for agent in nobody:
        who = f"the agent {agent}" if agent is not None else "agents without a role"
        yield RuleProblem("warning", "", f"every command of {who} is denied", hint)


def _nothing_is_left(policy: CommandPolicy, agent: str | None) -> bool:
    if any(class_actions(policy, agent)[name].action != "deny" for name in BY_CLASS):
        return False
    role = policy.role_of(agent)
    who = {agent, role.name if role else None} - {None}
    denials = [rule for rule in policy.rules if rule.action == "deny"]
    return not any(
        rule.action != "deny" and not rule.floor and (not rule.agents or who.intersection(rule.agents))
        for rule in policy.rules
        if not any(covers(deny, rule) for deny in denials)
    )


def unused_roles(policy: CommandPolicy) -> Iterator[RuleProblem]:
    used = {role for _agent, role in policy.agents}
    for role in policy.roles:
        if role.name not in used:
            text = f"no agent has the role {role.name}"
            yield RuleProblem("warning", role.source, text, f"agents: {{AGENT: {role.name}}}")
