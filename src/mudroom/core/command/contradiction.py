"""Problems with rules that parse: rules that contradict each other, never apply, or deny everything. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mudroom.core.command.policy import (
    BY_CLASS,
    CommandPolicy,
    CommandRule,
    class_actions,
    show_pattern,
)
from mudroom.typing import Literal, NamedTuple


class RuleProblem(NamedTuple):
    severity: Literal["error", "warning"]
    where: str
    """File and line, such as ``policy.yaml:12``; empty: the problem lies in all files together."""
    text: str
    hint: str = ""


def contradictions(rules: Sequence[CommandRule]) -> Iterator[RuleProblem]:
    """Yield rules in a single file that give the same commands different actions, or repeat each other."""
    seen: dict[tuple[object, ...], CommandRule] = {}
    for rule in rules:
        key = (rule.pattern, rule.exact, rule.agents, rule.bound)
        first = seen.setdefault(key, rule)
        if first.action != rule.action:
            text = f"{show_pattern(rule)} is {rule.action} here and {first.action} in {first.source}"
            yield RuleProblem("error", rule.source, text, "keep one of the two")
        elif first is not rule:
            yield RuleProblem("warning", rule.source, f"{show_pattern(rule)}: {first.source} has the same rule")


def unreachable_rules(rules: Sequence[CommandRule]) -> Iterator[RuleProblem]:
    """Yield the rules that never apply because a deny rule covers them. ``rules``: from all files."""
    denials = [rule for rule in rules if rule.action == "deny"]
    for rule in rules:
        cover = next((deny for deny in denials if rule.action != "deny" and covers(deny, rule)), None)
        if cover is not None:
            text = f"{show_pattern(rule)} never applies: {cover.source} denies {show_pattern(cover)}"
            yield RuleProblem(
                "warning", rule.source, text, "a denial wins over a longer pattern and over a nearer source"
            )


def covers(wide: CommandRule, narrow: CommandRule) -> bool:
    """Return whether ``wide`` matches all commands that ``narrow`` matches, for all of ``narrow``'s agents."""
    if wide.agents and not (narrow.agents and set(narrow.agents) <= set(wide.agents)):
        return False
    if len(wide.pattern) > len(narrow.pattern):
        return False
    if wide.exact and not (narrow.exact and len(wide.pattern) == len(narrow.pattern)):
        return False
    return all(set(few) <= set(many) for few, many in zip(narrow.pattern, wide.pattern, strict=False))


def locked_out(policy: CommandPolicy) -> Iterator[RuleProblem]:
    """Yield each agent for which every class is denied and no rule allows anything."""
    agents: list[str | None] = [None, *dict.fromkeys(agent for agent, _role in policy.agents)]
    denied = [agent for agent in agents if _denies_everything(policy, agent)]
    hint = "let one class through, such as commands: {classes: {read_only: allow}}, or a rule"
    if len(denied) == len(agents):
        yield RuleProblem("error", "", "every command of every agent is denied: no command can run", hint)
        return
    for agent in denied:
        subject = f"the agent {agent}" if agent is not None else "agents without a role"
        yield RuleProblem("warning", "", f"every command of {subject} is denied", hint)


def _denies_everything(policy: CommandPolicy, agent: str | None) -> bool:
    if any(class_actions(policy, agent)[name].action != "deny" for name in BY_CLASS):
        return False
    role = policy.role_of(agent)
    names = {agent, role.name if role else None} - {None}
    denials = [rule for rule in policy.rules if rule.action == "deny"]
    return not any(
        rule.action != "deny" and not rule.floor and (not rule.agents or names.intersection(rule.agents))
        for rule in policy.rules
        if not any(covers(deny, rule) for deny in denials)
    )


def unused_roles(policy: CommandPolicy) -> Iterator[RuleProblem]:
    used = {role for _agent, role in policy.agents}
    for role in policy.roles:
        if role.name not in used:
            text = f"no agent has the role {role.name}"
            yield RuleProblem("warning", role.source, text, f"agents: {{AGENT: {role.name}}}")
