"""Hosts under ``network.hold`` in policy files and among this machine's answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.core.network.host_rules import Request, decide, holding, parse_rule, show_rule
from mudroom.errors import UsageError
from mudroom.policy.host_answers import drop, keep, load
from mudroom.policy.host_answers import parse as parse_answers
from mudroom.policy.parse import parse, settings_from
from mudroom.policy.trust import mark
from tiers import each


def test_a_hold_allows_inspects_and_holds_whatever_else_allows() -> None:
    data = b"network:\n  hold: [git.example, '@gitlab']\n  allow: [git.example]\n"
    rules = settings_from(parse(data, "policy.yaml")).hosts
    rule = holding(rules, "git.example", 443)
    assert rule is not None and rule.inspect and rule.action == "allow"
    assert holding(rules, "gitlab.com", 443) is not None
    decision = decide(Request("git.example", 443), rules)
    assert (decision.action, decision.rule) == ("allow", rule)
    told = "git.example allows reading, holds pushes, publishes until the apply, and refuses other changes"
    assert decision.reason == f"policy.yaml:2: {told}"
    assert decide(Request("git.example", 443), [*rules, parse_rule("git.example", "deny")]).action == "deny"
    assert decide(Request("git.example", 443), [*rules, parse_rule("git.example", "ask")]).action == "ask"


def test_an_answer_holds_too() -> None:
    (rule,) = parse_answers(b"hold:\n  - git.example:8443\n", "permissions.yaml")
    assert rule.hold and rule.inspect and rule.ports == (8443,)


def test_a_hold_names_the_requests_that_wait_too() -> None:
    rows = b"api.example:8443 put Post=.order.id", b"'**.example:8443'", b"api.example:443 PATCH"
    data = b"network:\n  hold:\n" + b"".join(b"    - %s\n" % row for row in rows)
    rules = settings_from(parse(data, "policy.yaml")).hosts
    rule = holding(rules, "api.example", 8443)
    assert rule is not None and rule.requests == ("POST=.order.id", "PUT")
    assert show_rule(rules[0]) == "api.example:8443 POST=.order.id PUT"
    assert parse_rule(show_rule(rules[0]), "hold", rules[0].source) == rules[0]
    assert decide(Request("api.example", 8443), rules).reason == (
        "policy.yaml:3: api.example:8443 POST=.order.id PUT allows reading, holds pushes, publishes, mail, "
        "POST with .order.id, PUT until the apply, and refuses other changes"
    )
    assert (found := holding(rules, "other.example", 8443)) is not None and not found.requests
    assert (found := holding(rules, "api.example", 443)) is not None and found.requests == ("PATCH",)


@each(
    ("text", "why"),
    [
        (
            "api.example POST",
            "POST cannot be held; PUT, PATCH, DELETE, POST=Idempotency-Key (a header) or POST=.id can",
        ),
        ("api.example GET", "GET cannot be held"),
        ("api.example PUT=Key", "PUT=Key cannot be held"),
        ("api.example POST=.", "POST=. cannot be held"),
        ("api.example  PUT", " cannot be held"),
        ("'*.example PUT'", "*.example: PUT is held for a host that is named in full"),
        ("10.0.0.0/8 DELETE", "10.0.0.0/8: DELETE is held for a host that is named in full"),
        ("'@npm PUT'", "there is no preset @npm PUT"),
    ],
)
def test_a_request_that_no_rule_can_hold_is_an_error(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"network:\n  hold: [{text}]\n".encode(), "policy.yaml")
    assert str(caught.value).startswith("policy.yaml:2: network.hold: ") and why in str(caught.value)


@pytest.mark.parametrize("section", ["allow", "ask", "deny", "private"])
def test_only_a_hold_takes_requests(section: str) -> None:
    with pytest.raises(UsageError, match="PUT"):
        parse(f"network:\n  {section}: [api.example PUT]\n".encode(), "policy.yaml")


def test_more_requests_need_trust_again() -> None:
    """The mark of an item has its requests: a project cannot widen a rule that was trusted."""
    marks = [mark(item) for item in parse(b"network:\n  hold: [a.example, a.example PUT, a.example PUT DELETE]\n", "p")]
    assert len(set(marks)) == 3


def test_an_answer_with_other_requests_replaces_the_one_before(tmp_path: Path) -> None:
    project, state = os.fsencode(tmp_path / "project"), os.fsencode(tmp_path / "state")
    (tmp_path / "project").mkdir()
    keep(project, parse_rule("a.example", "allow"), state=state)
    first = keep(project, parse_rule("a.example DELETE PUT", "hold"), state=state)
    assert [rule.action for rule in first.replaced] == ["allow"] and not first.there
    again = keep(project, parse_rule("a.example PUT", "hold"), state=state)
    assert [rule.requests for rule in again.replaced] == [("DELETE", "PUT")] and not again.there
    assert [show_rule(rule) for rule in load(project, state)] == ["a.example PUT"]
    assert keep(project, parse_rule("a.example PUT", "hold"), state=state) == (True, ())
    assert [show_rule(rule) for rule in drop(project, "a.example", state=state)] == ["a.example PUT"]
    assert load(project, state) == ()
