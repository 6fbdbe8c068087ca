"""Consent of two forks: neither, one or both sides, by the policy and by the user's grants."""

from __future__ import annotations

import itertools

import pytest

from mudroom.core.network.fork_host import AgentLink
from mudroom.core.network.fork_rule import ForkIdentity, ForkRule, parse_forks
from mudroom.ext.agents.core.fork_consent import ConsentSide, ForkGrants, ReachedPort, ShownPort, consent, look_at_names
from tiers import each

A, B = ForkIdentity("planner", "1.1", "claude"), ForkIdentity("coder", "2.2", "codex")
REACH, SHOW = parse_forks(["coder:8000"], "reach"), parse_forks([8000], "show")


def given(reach: str, show: str) -> tuple[list[ForkRule], ConsentSide, ConsentSide]:
    """Return the policy and both sides, each by: nothing, the policy, a grant, or a rule for another port."""
    rules = (REACH if reach == "policy" else []) + (SHOW if show == "policy" else [])
    rules += parse_forks(["coder:9"], "reach") if reach == "other" else []
    rules += parse_forks([9], "show") if show == "other" else []
    near = ForkGrants(reaches=(ReachedPort(B, 8000),)) if reach == "grant" else ForkGrants()
    far = ForkGrants(shows=(ShownPort(8000),)) if show == "grant" else ForkGrants()
    return rules, ConsentSide(A, near, name="planner"), ConsentSide(B, far, name="coder")


def test_the_matrix_of_both_sides() -> None:
    ways = ("nothing", "policy", "grant", "other")
    for reach, show in itertools.product(ways, ways):
        rules, near, far = given(reach, show)
        answer = consent(rules, (), near, far, 8000)
        has = {"reach": reach in ("policy", "grant"), "show": show in ("policy", "grant")}
        assert answer.is_given is all(has.values()), (reach, show)
        reason = answer.reason
        assert ("mudroom net reach coder:8000 --fork planner" in reason) is not has["reach"], (reach, show, reason)
        assert ("mudroom net show 8000 --fork coder" in reason) is not has["show"], (reach, show, reason)
        back = consent(rules, (), far, near, 8000)
        assert not back.is_given, "consent has a direction"


def test_a_new_fork_of_the_name_does_not_inherit() -> None:
    rules, near, far = given("grant", "policy")
    assert consent(rules, (), near, far, 8000).is_given
    for other in (B._replace(identity="3.3"), B._replace(agent="somebody"), B._replace(agent="")):
        answer = consent(rules, (), near, far._replace(fork=other), 8000)
        assert not answer.is_given
        assert "another fork than the one of that name before" in answer.reason


def test_a_name_of_the_policy_is_the_fork_that_was_reached_first() -> None:
    rules, near, far = given("policy", "policy")
    first = consent(rules, (), near, far, 8000)
    assert (first.is_given, first.is_met) == (True, False)
    near = near._replace(grants=ForkGrants(met=(B,)))
    assert consent(rules, (), near, far, 8000).is_met
    new = far._replace(fork=B._replace(identity="3.3"))
    assert not consent(rules, (), near, new, 8000).is_given
    pattern = parse_forks(["cod*:8000"], "reach") + SHOW
    assert consent(pattern, (), near, new, 8000).is_given, "a pattern is for later forks, too"


def test_an_agent_can_be_part_of_the_rule() -> None:
    rules = parse_forks(["coder@codex:8000"], "reach") + SHOW
    _rules, near, far = given("nothing", "nothing")
    assert consent(rules, (), near, far, 8000).is_given
    assert not consent(rules, (), near, far._replace(fork=B._replace(agent="other")), 8000).is_given
    assert str(rules[0]) == "coder@codex:8000"


def test_the_strictest_show_counts() -> None:
    rules, near, far = given("grant", "grant")
    assert not consent(rules, (), near, far, 8000).http
    assert consent([*rules, *parse_forks(["8000/http"], "show")], (), near, far, 8000).http


def test_a_link_is_the_consent_of_both() -> None:
    _rules, near, far = given("nothing", "nothing")
    link = AgentLink("planner", "coder", 8000)
    answer = consent((), (link,), near, far, 8000)
    assert (answer.is_given, answer.rule) == (True, "network.agents: planner -> coder:8000")
    assert not consent((), (link,), near, far, 8001).is_given
    assert not consent((), (link,), far, near, 8000).is_given


def test_port_80_leads_to_the_endpoint_if_its_port_is_shown() -> None:
    rules = parse_forks(["coder"], "reach") + SHOW
    _rules, near, far = given("nothing", "nothing")
    served = far._replace(endpoint=8000)
    assert (consent(rules, (), near, served, 80).port, consent(rules, (), near, served, 80).is_given) == (8000, True)
    assert not consent(rules, (), near, far._replace(endpoint=8001), 80).is_given
    assert not consent(rules, (), near, served, 8000).is_given, "the rule names port 80 alone"


def test_no_fork_reaches_itself_by_its_name() -> None:
    rules = parse_forks(["planner:8000"], "reach") + SHOW
    assert not consent(rules, (AgentLink("*", "planner", 8000),), ConsentSide(A), ConsentSide(A), 8000).is_given


@each(
    ("side", "value"),
    [
        ("show", 8000),
        ("show", [True]),
        ("show", [0]),
        ("show", [65536]),
        ("show", ["x"]),
        ("show", [3128]),
        ("show", ["8000/https"]),
        ("show", ["Coder:8000"]),
        ("reach", ["*:8000"]),
        ("reach", [8000]),
        ("reach", [":8000"]),
        ("reach", ["a*b:8000"]),
        ("reach", ["127.0.0.1:8000"]),
        ("reach", ["[::1]:8000"]),
        ("reach", ["10.0.0.0/8:8000"]),
        ("reach", ["c\u00f6der:8000"]),
        ("reach", ["a.b:8000"]),
        ("reach", ["coder@:8000"]),
        ("reach", ["coder:0"]),
        ("both", [8000]),
    ],
)
def test_no_rule(side: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_forks(value, side)


def test_rules_are_shown_as_they_are_written() -> None:
    for text in ("8000", "8000/http", "coder:9", "db-*:5432/http"):
        assert str(parse_forks([text], "show")[0]) == text
    for text in ("coder:8000", "db-*:5432", "coder@a/b:c:8000"):
        assert str(parse_forks([text], "reach")[0]) == text


def test_a_question_about_no_fork_in_particular() -> None:
    assert look_at_names("coder", 8000, REACH + SHOW, ())[0]
    assert not look_at_names("coder", 8000, REACH, ())[0]
    assert look_at_names("coder", 80, (), (AgentLink("planner", "coder"),)) == (
        True,
        "from the fork planner, by network.agents",
    )
