"""Hosts under ``network.hold`` in policy files and among this machine's answers."""

from __future__ import annotations

from mudroom.core.network.host_rules import Request, decide, holding, parse_rule
from mudroom.policy.host_answers import parse as parse_answers
from mudroom.policy.parse import parse, settings_from


def test_a_hold_allows_inspects_and_holds_whatever_else_allows() -> None:
    data = b"network:\n  hold: [git.example, '@gitlab']\n  allow: [git.example]\n"
    rules = settings_from(parse(data, "policy.yaml")).hosts
    rule = holding(rules, "git.example", 443)
    assert rule is not None and rule.inspect and rule.action == "allow"
    assert holding(rules, "gitlab.com", 443) is not None
    decision = decide(Request("git.example", 443), rules)
    assert (decision.action, decision.rule) == ("allow", rule)
    assert (
        decision.reason
        == "policy.yaml:2: git.example allows reading, and holds pushes and publishes until the fork is applied"
    )
    assert decide(Request("git.example", 443), [*rules, parse_rule("git.example", "deny")]).action == "deny"
    assert decide(Request("git.example", 443), [*rules, parse_rule("git.example", "ask")]).action == "ask"


def test_an_answer_holds_too() -> None:
    (rule,) = parse_answers(b"hold:\n  - git.example:8443\n", "permissions.yaml")
    assert rule.hold and rule.inspect and rule.ports == (8443,)
