"""The hosts that a card names, against the rules there are."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.network.host import parse_host
from mudroom.core.network.host_pattern import matches, parse_pattern
from mudroom.core.network.host_rules import HostRule, Request, decide, holding, parse_rule, show_rule
from mudroom.core.network.preset import EFFECTS
from mudroom.ext.agents.core.card_hosts import covers, sort_hosts, with_holds
from tiers import each

ALLOW = parse_rule("api.example.com", "allow")


def rules(allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = ()) -> list[HostRule]:
    found = [parse_rule(one, "allow") for one in allow] + [parse_rule(one, "ask") for one in ask]
    return found + [parse_rule(one, "deny") for one in deny]


@each(
    ("host", "there", "where"),
    [
        ("api.example.com", rules(), "open"),
        ("api.example.com", rules(["api.example.com"]), "allowed"),
        ("API.Example.Com.", rules(["api.example.com"]), "allowed"),
        ("api.example.com", rules(["*.example.com"]), "allowed"),
        ("api.example.com", rules(["*"]), "allowed"),
        ("api.example.com:8443", rules(["api.example.com"]), "open"),
        ("api.example.com:443", rules(["api.example.com"]), "allowed"),
        ("api.example.com", rules(["api.example.com:443"]), "open"),
        ("*.example.com", rules(["api.example.com"]), "open"),
        ("*.example.com", rules(["**.example.com"]), "allowed"),
        ("*", rules(["**.example.com"]), "open"),
        ("api.example.com", rules(["*"], deny=["*.example.com"]), "denied"),
        ("api.example.com", rules(deny=["api.example.com:22"]), "open"),
        ("*.example.com", rules(deny=["api.example.com"]), "open"),
        ("api.example.com", rules(["*"], ask=["api.example.com"]), "asked"),
        ("10.1.2.3", rules(["*"]), "open"),
        ("10.1.2.3", rules(["10.0.0.0/8"]), "allowed"),
        ("10.0.0.0/8", rules(["10.1.0.0/16"]), "open"),
        ("api.example.com", [ALLOW._replace(methods=("GET",))], "open"),
        ("api.example.com", [ALLOW._replace(action="deny", paths=("/x",))], "open"),
    ],
)
def test_where_a_host_belongs(host: str, there: list[HostRule], where: str) -> None:
    found = sort_hosts("helper", [host, host], there)
    assert {name: len(rows) for name, rows in found._asdict().items() if rows} == {where: 1}
    (rule,) = getattr(found, where)
    assert (rule.action, rule.source) == ("allow", "card helper")


@each(
    ("host", "expected"),
    [
        ("api.example.com", ["api.example.com"]),
        ("github.com", ["hold github.com"]),
        ("github.com:443", ["hold github.com:443"]),
        ("api.github.com", ["hold api.github.com DELETE PATCH POST=.head PUT"]),
        ("*.npmjs.org", ["*.npmjs.org", "hold registry.npmjs.org"]),
        ("*", ["*", *sorted(f"hold {host} {effects.requests}".rstrip() for host, effects in EFFECTS.items())]),
    ],
)
def test_pushes_to_a_card_s_hosts_wait_for_the_apply(host: str, expected: list[str]) -> None:
    found = with_holds(sort_hosts("helper", [host], []).open)
    assert [f"{'hold ' if rule.hold else ''}{show_rule(rule)}" for rule in found] == expected
    assert {rule.source for rule in found} == {"card helper"}
    assert holding(found, "github.com", 443) is not None or host not in ("github.com", "*")


PATTERNS = ["*", "a.b", "*.a.b", "**.a.b", "x.a.b", "*.x.a.b", "b", "**.b", "*.b", "1.2.3.4", "1.2.0.0/16", "::1"]
HOSTS = ["a.b", "x.a.b", "y.x.a.b", "b", "c.b", "ba.b", "xa.b", "1.2.3.4", "1.2.9.9", "::1", "c"]


@given(st.sampled_from(PATTERNS), st.sampled_from(PATTERNS))
def test_covers_says_yes_only_if_nothing_is_left_out(one: str, other: str) -> None:
    one, other = parse_pattern(one.encode())[0], parse_pattern(other.encode())[0]
    if covers(one, other):
        hosts = [parse_host(host.encode()) for host in HOSTS]
        assert all(matches(one, host) for host in hosts if matches(other, host))


@given(st.sampled_from(PATTERNS), st.sampled_from(PATTERNS), st.sampled_from(HOSTS))
def test_what_is_denied_stays_denied_whatever_a_card_says(denied: str, named: str, host: str) -> None:
    deny = parse_rule(denied, "deny")
    found = sort_hosts("helper", [named], [deny])
    request = Request(str(parse_host(host.encode())), 443)
    before = decide(request, [deny])
    if before.rule is not None:
        assert decide(request, [deny, *found.open]).action == "deny"
