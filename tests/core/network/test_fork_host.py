"""Names of forks for each other, and the links of the policy."""

from __future__ import annotations

import pytest

from mudroom.core.network.fork_host import (
    NO_NAME,
    AgentLink,
    decide_fork,
    fork_host,
    fork_of,
    is_fork_host,
    label_of,
    names_of,
    parse_link,
)
from mudroom.core.network.host import parse_host
from mudroom.core.network.host_rules import Request, parse_rule
from tiers import each

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


@each(
    "text",
    [
        "", "a", "a ->", "-> b", "a -> a", "a -> b:0", "a -> b:65536", "a -> b:3128", "a -> b:x", "a -> B",
        "a -> b c", "a -> *",
    ],
)  # fmt: skip
def test_no_link(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_link(text)


def test_a_name_leads_back_to_its_fork() -> None:
    assert fork_host("coder") == HOST
    assert fork_of(HOST) == "coder"
    assert fork_host("Coder_2.b") == "coder-2-b.mudroom.internal"
    for name in ("", "a b", "-", "agents", "Agents", "c\u00f6der", "a" * 64):
        with pytest.raises(ValueError, match="cannot be part of a host's name"):
            fork_host(name)


def test_two_forks_of_one_label() -> None:
    assert names_of("coder-2", ["coder", "Coder_2", "coder.2", "planner"]) == ["Coder_2", "coder.2"]
    assert names_of("agents", ["agents"]) == []
    assert names_of("", [""]) == []


def test_every_spelling_of_the_zone_is_reserved() -> None:
    for raw in (HOST, "CODER.MudRoom.Internal", HOST + ".", "mudroom.internal", "a.b." + HOST, "MUDROOM.INTERNAL."):
        assert is_fork_host(parse_host(raw.encode()).text), raw
    for raw in (
        "coder.mudroom.internal\u3002",
        "coder\uff0emudroom.internal",
        "coder.\uff4dudroom.internal",
        HOST + "..",
    ):
        with pytest.raises(ValueError, match=r"."):
            parse_host(raw.encode())
    for host in (
        "xmudroom.internal",
        "coder.mudroom.internal.example.com",
        "coder.example.com",
        "xn--mudroom.internal",
    ):
        assert not is_fork_host(host)


def test_only_a_deny_counts_at_the_gate() -> None:
    """The host decides about the rest."""
    assert decide_fork(Request(HOST, 8080), []).action == "allow"
    for host in ("mudroom.internal", "a." + HOST):
        decision = decide_fork(Request(host, 8080), [parse_rule("*:8080", "allow")])
        assert (decision.action, decision.reason) == ("deny", NO_NAME)
    for rule in ("*", "**.mudroom.internal:8080", HOST):
        assert decide_fork(Request(HOST, 8080), [parse_rule(rule, "deny")]).action == "deny"
    assert decide_fork(Request(HOST, 8080), [parse_rule(HOST, "ask")]).rule is None, "nobody is asked"


def test_a_label_is_a_part_of_a_host() -> None:
    short = ("coder", "a", "9", "0x1", "a-b", "xn--a", "-a", "a-", "", "a b", "\u00e9", "\u2460", "a\n")
    for name in (*short, "a" * 63, "b" * 64):
        try:
            is_host = parse_host(f"{name}.mudroom.internal".encode()).text == f"{name}.mudroom.internal"
        except ValueError:
            is_host = False
        assert bool(label_of(name)) is is_host, name
