"""Names of forks for each other, and the links of the policy."""

from __future__ import annotations

import pytest

from mudroom.core.network.fork_host import (
    SOURCE,
    UNLINKED,
    AgentLink,
    decide_fork,
    fork_host,
    fork_of,
    is_fork_host,
    link_rules,
    links_of,
    parse_link,
)
from mudroom.core.network.host_rules import Request, parse_rule

HOST = "coder.mudroom.internal"


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("planner -> coder", AgentLink("planner", "coder")),
        ("planner->coder:8080", AgentLink("planner", "coder", 8080)),
        ("* -> coder-2 ", AgentLink("*", "coder-2")),
    ],
)
def test_a_link(text: str, link: AgentLink) -> None:
    assert parse_link(text) == link
    assert parse_link(str(link)) == link


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a ->",
        "-> b",
        "a -> a",
        "a -> b:0",
        "a -> b:65536",
        "a -> b:3128",
        "a -> b:x",
        "a -> B",
        "a -> b c",
        "a -> *",
    ],
)
def test_no_link(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_link(text)


def test_a_name_leads_back_to_its_fork() -> None:
    assert fork_host("coder") == HOST
    assert fork_of(HOST) == "coder"
    assert is_fork_host(HOST)
    assert not is_fork_host("mudroom.internal") and not is_fork_host("coder.example.com")
    for name in ("", "Coder", "a b", "-"):
        with pytest.raises(ValueError, match="cannot be part of a host's name"):
            fork_host(name)


def test_links_lead_from_their_fork_alone() -> None:
    links = [AgentLink("a", "b"), AgentLink("*", "c", 9), AgentLink("b", "a")]
    assert links_of(links, "a") == [links[0], links[1]]
    assert links_of(links, "c") == []


def test_only_a_rule_for_that_very_name_opens_a_fork() -> None:
    rules = link_rules([AgentLink("a", "coder", 8080)])
    assert [rule.source for rule in rules] == [SOURCE]
    assert decide_fork(Request(HOST, 8080), rules).action == "allow"
    for other in (Request(HOST, 8081), Request("other.mudroom.internal", 8080)):
        assert decide_fork(other, rules).action == "deny"
    wide = [parse_rule(text, "allow") for text in ("*:8080", "**.mudroom.internal:8080")]
    decision = decide_fork(Request(HOST, 8080), wide)
    assert (decision.action, decision.reason) == ("deny", UNLINKED)
    assert decide_fork(Request(HOST, 8080), [parse_rule(HOST, "ask")]).action == "deny", "nobody is asked"
    assert decide_fork(Request(HOST, 8080), [*rules, parse_rule("*", "deny")]).action == "deny"
