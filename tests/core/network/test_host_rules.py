"""Which hosts may be reached: every way to write a rule, every way round one."""

from __future__ import annotations

import ipaddress
import re
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.network.host import parse_authority, parse_host
from mudroom.core.network.host_rules import (
    Action,
    HostDecision,
    HostRule,
    Request,
    covering,
    decide,
    parse_rule,
    show_rule,
    vet,
)
from tiers import each


def request(text: str, method: str = "", path: str = "") -> Request:
    host, port = parse_authority(text.encode(), 443)
    return Request(host.text, port, method, path)


def allow(*texts: str) -> list[HostRule]:
    return [parse_rule(text, "allow", "policy.yaml:1") for text in texts]


def action(text: str, *rules: HostRule) -> Action:
    return decide(request(text), rules).action


# --- rules ---


@each(
    ("text", "expected"),
    [
        ("example.com", HostRule("allow", "example.com")),
        ("EXAMPLE.com.", HostRule("allow", "example.com")),
        ("example.com:22", HostRule("allow", "example.com", (22,))),
        ("example.com:443,80,443", HostRule("allow", "example.com", (80, 443))),
        ("*.example.com", HostRule("allow", "*.example.com")),
        ("**.example.com:8443", HostRule("allow", "**.example.com", (8443,))),
        ("*", HostRule("allow", "*")),
        ("*:22", HostRule("allow", "*", (22,))),
        ("xn--bcher-kva.example", HostRule("allow", "xn--bcher-kva.example")),
        ("1.2.3.4", HostRule("allow", "1.2.3.4")),
        ("1.2.3.4:53", HostRule("allow", "1.2.3.4", (53,))),
        ("::ffff:1.2.3.4", HostRule("allow", "1.2.3.4")),
        ("2001:4860:0::8888", HostRule("allow", "2001:4860::8888")),
        ("[2001:4860::8888]", HostRule("allow", "2001:4860::8888")),
        ("[2001:4860::8888]:53", HostRule("allow", "2001:4860::8888", (53,))),
        ("8.8.8.0/24", HostRule("allow", "8.8.8.0/24")),
        ("8.8.8.0/24:53", HostRule("allow", "8.8.8.0/24", (53,))),
        ("2606:4700::/32", HostRule("allow", "2606:4700::/32")),
        ("[2606:4700::/32]:443", HostRule("allow", "2606:4700::/32", (443,))),
        # a private address that somebody writes down is meant
        ("127.0.0.1:5432", HostRule("allow", "127.0.0.1", (5432,), private=True)),
        ("10.0.0.0/8", HostRule("allow", "10.0.0.0/8", private=True)),
        ("[::1]:3000", HostRule("allow", "::1", (3000,), private=True)),
        # all of the internet is not
        ("0.0.0.0/0", HostRule("allow", "0.0.0.0/0")),
        ("localhost:3000", HostRule("allow", "localhost", (3000,), private=True)),
    ],
)
def test_a_rule(text: str, expected: HostRule) -> None:
    found = parse_rule(text, "allow")
    assert found == expected
    assert parse_rule(show_rule(found), "allow") == expected


@each(
    ("text", "reason"),
    [
        ("", "there is no host"),
        (":443", "there is no host"),
        ("https://example.com/x", "this is a URL; write the host alone: example.com"),
        ("https://u:p@example.com:8443/x", "write the host alone: example.com:8443"),
        ("example.com/x", "is no network"),
        ("example.com:", "there is no port; write HOST:22 or HOST:80,443"),
        ("example.com:ssh", "ssh is no port"),
        ("example.com:0", "0 is no port"),
        ("example.com:80-90", "80-90 is no port"),
        ("example.com:80,", "there is no port"),
        ("example.com:*", "* is no port"),
        ("**", "'*' stands alone"),
        ("*example.com", "'*' stands alone"),
        ("ex*mple.com", "'*' stands alone"),
        ("example.*", "'*' stands alone"),
        ("*.*.com", "'*' stands alone"),
        ("***.com", "'*' stands alone"),
        ("*.", "there is no host"),
        ("*..com", "a part of a name is empty"),
        ("*.1.2.3.4", "an address has no subdomains"),
        ("*.127.1", "do not end in a number"),
        ("127.1", "do not end in a number"),
        ("user@example.com", "a user before"),
        ("exa mple.com", "' ' is not for names"),
        ("b\u00fccher.example", "not ASCII"),
        ("a\0b", "control character"),
        ("\udcff", "not ASCII"),
        ("10.1.2.3/8", "the network is 10.0.0.0/8"),
        ("10.0.0.0/33", "is no network"),
        ("[10.0.0.1]:80", "an IPv6 address stands in brackets"),
        ("[::1]80", "an IPv6 address stands in brackets"),
        ("[::1", "an IPv6 address stands in brackets"),
        ("fe80::1%eth0", "zone"),
        ("169.254.169.254", "the metadata service of a cloud: no rule opens that"),
        ("[fd00:ec2::254]:80", "the metadata service of a cloud: no rule opens that"),
        ("metadata.google.internal", "no rule opens that"),
        ("169.254.0.0/16", "a link-local address: no rule opens that"),
        ("198.18.0.0/15", "no rule opens that"),
    ],
)
def test_what_is_no_rule(text: str, reason: str) -> None:
    for verb in ("allow", "ask"):
        with pytest.raises(ValueError, match=re.escape(reason)) as caught:
            parse_rule(text, verb)
        assert str(caught.value).isprintable()


def test_what_is_never_reached_can_be_denied_in_writing() -> None:
    for text in ("169.254.169.254", "169.254.0.0/16", "metadata.goog"):
        assert parse_rule(text, "deny").pattern == text


# --- what a rule matches ---

MATCHES = [
    ("example.com", "example.com", True),
    ("example.com", "EXAMPLE.COM.", True),
    ("example.com", "www.example.com", False),
    ("example.com", "notexample.com", False),
    ("example.com", "example.com.evil.com", False),
    ("example.com", "example.comm", False),
    ("example.com", "xample.com", False),
    ("*.example.com", "www.example.com", True),
    ("*.example.com", "a.b.example.com", True),
    ("*.example.com", "example.com", False),  # strictly below
    ("*.example.com", "notexample.com", False),  # the boundary of a label
    ("*.example.com", "www.example.com.evil.com", False),
    ("*.example.com", "www-example.com", False),
    ("**.example.com", "example.com", True),
    ("**.example.com", "a.b.example.com", True),
    ("**.example.com", "notexample.com", False),
    ("*", "anything.example", True),
    ("*", "localhost", True),
    ("*", "8.8.8.8", False),  # a wildcard is for names
    ("*", "[2606:4700::1]", False),
    ("*.8", "8.8.8.8", None),  # is no rule at all
    ("8.8.8.8", "8.8.8.8", True),
    ("8.8.8.8", "[::ffff:8.8.8.8]", True),
    ("8.8.8.8", "[::ffff:808:808]", True),
    ("8.8.8.8", "8.8.8.80", False),
    ("8.8.8.0/24", "8.8.8.255", True),
    ("8.8.8.0/24", "[::ffff:8.8.8.8]", True),
    ("8.8.8.0/24", "8.8.9.0", False),
    ("0.0.0.0/0", "1.2.3.4", True),
    ("0.0.0.0/0", "[2606:4700::1]", False),
    ("::/0", "[2606:4700::1]", True),
    ("::/0", "1.2.3.4", False),
    ("0.0.0.0/0", "example.com", False),  # a network is not for names
    ("2606:4700::1", "[2606:4700:0:0::1]", True),
    ("2606:4700::/32", "[2606:4701::1]", False),
    ("8.8.8.8", "8.8.8.8.example.com", False),
    ("xn--e1awd7f.com", "epic.com", False),
    ("epic.com", "xn--e1awd7f.com", False),
]


@each(("pattern", "host", "matched"), MATCHES)
def test_matching(pattern: str, host: str, matched: bool | None) -> None:
    if matched is None:
        with pytest.raises(ValueError, match="number"):
            parse_rule(pattern, "allow")
        return
    authority = host if host.startswith("[") else host + ":443"
    assert (action(authority, parse_rule(pattern, "allow")) == "allow") is matched
    assert (action(authority, parse_rule(pattern, "deny")) == "deny") is matched


@pytest.mark.parametrize(
    ("rule", "allowed", "denied"),
    [
        ("example.com", {80, 443}, {1, 22, 80, 443, 8080}),
        ("example.com:22", {22}, {22}),
        ("example.com:22,443", {22, 443}, {22, 443}),
    ],
)
def test_ports(rule: str, allowed: set[int], denied: set[int]) -> None:
    ports = {1, 22, 80, 443, 8080}
    opened = {p for p in ports if decide(Request("example.com", p), [parse_rule(rule, "allow")]).action == "allow"}
    closed = {p for p in ports if decide(Request("example.com", p), [parse_rule(rule, "deny")]).action == "deny"}
    asked = {p for p in ports if decide(Request("example.com", p), [parse_rule(rule, "ask")]).rule is not None}
    assert (opened, closed, asked) == (allowed, denied, denied)


def test_nothing_is_allowed_by_no_rules() -> None:
    """An empty list that allows everything has been a hole of others."""
    for host in ("example.com:443", "localhost:80", "8.8.8.8:443", "[2606:4700::1]:443"):
        assert decide(request(host), []) == HostDecision("ask", None, "no rule names it")
    assert action("example.com:443", HostRule("allow", "")) == "ask"


@each("rules", list(permutations([("allow", "**.example.com"), ("ask", "*"), ("deny", "*.example.com")])))
def test_a_deny_beats_an_ask_beats_an_allow(rules: tuple[tuple[Action, str], ...]) -> None:
    found = [parse_rule(text, verb, "policy.yaml:3") for verb, text in rules]
    assert action("a.example.com", *found) == "deny"
    assert action("example.com", *found) == "ask"
    without = [rule for rule in found if rule.action != "ask"]
    decision = decide(request("example.com"), without)
    assert (decision.action, decision.reason) == ("allow", "policy.yaml:3: **.example.com allows it")


@each(
    ("host", "rules", "said"),
    [
        ("a.com:443", ["a.com"], "policy.yaml:1: a.com allows it"),
        ("a.com:22", ["a.com"], "no rule names port 22 of it; policy.yaml:1: a.com is for other ports"),
        ("b.com:22", ["a.com"], "no rule names it"),
        ("169.254.169.254:80", ["0.0.0.0/0"], "the metadata service of a cloud"),
        ("10.0.0.1:80", ["0.0.0.0/0"], "a private address; a rule that names the address opens it"),
        ("198.18.0.5:80", ["0.0.0.0/0"], "an address that stands for a name in a sandbox"),
        ("metadata.google.internal:80", ["*", "*.internal"], "the metadata service of Google's cloud"),
    ],
)
def test_reasons(host: str, rules: list[str], said: str) -> None:
    assert decide(request(host), allow(*rules)).reason == said


@each(
    ("host", "rule", "expected"),
    [
        ("127.0.0.1:80", "0.0.0.0/0", "deny"),
        ("127.0.0.1:80", "127.0.0.1", "allow"),
        ("127.0.0.1:80", "127.0.0.0/8", "allow"),
        ("[::ffff:127.0.0.1]:80", "127.0.0.1", "allow"),
        ("[::ffff:127.0.0.1]:80", "0.0.0.0/0", "deny"),
        ("[64:ff9b::7f00:1]:80", "::/0", "deny"),
        ("[2002:7f00:1::]:80", "::/0", "deny"),
        ("[2001:0:808:808:0:0:80ff:fffe]:80", "::/0", "deny"),
        ("[::1]:80", "::/0", "deny"),
        ("[::1]:80", "::1", "allow"),
        ("[fe80::1]:80", "::/0", "deny"),
        ("[::7f00:1]:80", "::/0", "deny"),
        ("0.0.0.0:80", "0.0.0.0/0", "deny"),
        ("10.0.0.1:80", "example.com", "deny"),  # and nobody is asked about it
        ("8.8.8.8:80", "example.com", "ask"),
    ],
)
def test_addresses_that_clients_name(host: str, rule: str, expected: Action) -> None:
    assert action(host, *allow(rule)) == expected


def test_a_private_address_that_is_asked_about() -> None:
    rule = parse_rule("10.0.0.5:22", "ask")
    assert action("10.0.0.5:22", rule) == "ask"
    assert action("10.0.0.6:22", rule) == "deny"


def test_a_private_name_that_is_asked_about() -> None:
    ask = parse_rule("db.corp:5432", "ask")
    private = parse_rule("db.corp:5432", "allow", private=True)
    inside = bytes((10, 0, 0, 5))
    for rules, opens in (([ask], False), ([ask, private], True), ([private, ask], True)):
        decision = decide(Request("db.corp", 5432), rules)
        assert decision.action == "ask"
        answered = decision._replace(action="allow")
        assert (vet(answered, [inside], rules=rules, port=5432) is None) is opens
        assert vet(answered, [bytes((169, 254, 169, 254))], rules=rules, port=5432) is not None


@each("host", ["Example.com", "example.com.", "127.1", "::FFFF:1.2.3.4", "[::1]", "", "a\0.b", "\udcff"])
def test_only_canonical_hosts_are_decided_about(host: str) -> None:
    with pytest.raises(ValueError, match=r"canonical|do not end in a number|no IPv6|no host|control|not ASCII"):
        decide(Request(host, 443), allow("*", "**.example.com"))


# --- methods and paths ---

READ = HostRule("allow", "a.com", methods=("GET", "HEAD"), paths=("/repo", "/v2/"))
NO_WRITE = HostRule("deny", "a.com", methods=("POST",))
NO_ADMIN = HostRule("deny", "a.com", paths=("/admin",))
READ_ONE_WAY = (
    "x-y_z~1.tar.gz", "@scope", "a+b,c", "(1)!$&'*=:", "%40scope", "a%20b", "%C3%A9", "%E6%97%A5%E6%9C%AC", "%5B0%5D",
    "e%CC%81", "%3Cx%3E", "v1:batch", "%D9%A3",
)  # fmt: skip
READ_OTHERWISE = (
    "%c0%ae", "%c0%ae%c0%ae", "%c0%af", "%c1%9c", "%e0%80%ae", "%f0%80%80%ae",  # overlong (RFC 3629 3)
    "%u002e", "%u002f", "%uff0e", "%zz", "%", "%2", "%ff", "%ed%a0%80",
    "%ef%bc%8e", "%ef%bc%8f", "%ef%bc%bc", "%e2%80%a4", "%e2%80%a5", "%e2%88%95", "%e2%81%84", "%e2%92%88", "%ef%bd%81",
    "%e2%84%aa", "%c5%bf",  # compatibility forms of a dot, a slash, a letter
    "%00", "%0d%0a", "%09", "%7f", "%c2%85", "%c2%a0", "%e2%80%8b", "%e2%80%ae", "%f3%a0%80%ae",
    "%61", "%41", "%31", "%2d", "%7e", "%5f", "%2e", "%2f", "%5c", "%3f", "%23", "%3b", "%25",
    "...", ". .", "..%20", "%20", "..%20.", "a|b", "a{b}", "a^b", "a`b", 'a"b', "a<b>", "a;b", "a\\b", "",
)  # fmt: skip


@each(
    ("rules", "method", "path", "expected"),
    [
        ([READ], "GET", "/repo", "allow"),
        ([READ], "GET", "/repo/x?y=../z", "allow"),
        ([READ], "GET", "/v2/", "allow"),
        ([READ], "GET", "/v2", "ask"),
        ([READ], "GET", "/repository", "ask"),
        ([READ], "POST", "/repo", "ask"),
        ([READ], "get", "/repo", "ask"),
        ([READ], "", "/repo", "ask"),
        ([READ], "GET", "", "ask"),
        ([READ], "GET", "/repo/../admin", "ask"),
        ([READ], "GET", "/repo/%2e%2E/admin", "ask"),
        ([READ], "GET", "/repo/..%2fadmin", "ask"),
        ([READ], "GET", "/repo//x", "ask"),
        ([READ], "GET", "/repo/.\\x", "ask"),
        ([READ], "GET", "/repo/%252e%252e/x", "ask"),
        ([READ], "GET", "/repo/;/../x", "ask"),
        ([READ], "GET", "http://a.com/repo", "ask"),
        ([READ], "GET", "/repo/\u00e9", "ask"),
        *(([READ], "GET", f"/repo/{part}", "allow") for part in READ_ONE_WAY),
        *(([READ], "GET", f"/repo/{part}/x", "ask") for part in READ_OTHERWISE),
        *(([*allow("a.com"), NO_ADMIN], "GET", f"/x/{part}/admin", "deny") for part in READ_OTHERWISE),
        ([*allow("a.com"), NO_ADMIN], "GET", "/%61dmin", "deny"),
        ([*allow("a.com"), NO_ADMIN._replace(paths=("/a:b c",))], "GET", "/a%3Ab%20c", "deny"),
        ([HostRule("allow", "a.com", paths=("/a%20b",))], "GET", "/a%20b/c", "allow"),
        ([*allow("a.com"), NO_WRITE], "GET", "/", "allow"),
        ([*allow("a.com"), NO_WRITE], "POST", "/", "deny"),
        ([*allow("a.com"), NO_WRITE], "post", "/", "deny"),
        ([*allow("a.com"), NO_WRITE], "", "", "deny"),  # a tunnel could hold a POST
        ([*allow("a.com"), NO_ADMIN], "GET", "/x", "allow"),
        ([*allow("a.com"), NO_ADMIN], "GET", "/admin/x", "deny"),
        ([*allow("a.com"), NO_ADMIN], "GET", "/administer", "allow"),
        ([*allow("a.com"), NO_ADMIN], "GET", "/x/../admin", "deny"),
        ([*allow("a.com"), NO_ADMIN], "", "", "deny"),
    ],
)
def test_methods_and_paths(rules: list[HostRule], method: str, path: str, expected: Action) -> None:
    assert decide(Request("a.com", 443, method, path), rules).action == expected


# --- what a name resolves to ---


def packed(*texts: str) -> list[bytes]:
    return [ipaddress.ip_address(text).packed for text in texts]


NAME = HostRule("allow", "db.example")


@each(
    ("rule", "addresses", "said"),
    [
        (NAME, ["8.8.8.8"], None),
        (NAME, ["8.8.8.8", "2606:4700::1"], None),
        (NAME, [], "it has no address"),
        (NAME, ["10.0.0.1"], "10.0.0.1 is a private address"),
        (NAME, ["8.8.8.8", "127.0.0.1"], "127.0.0.1 is an address of this machine"),
        (NAME, ["8.8.8.8", "::1"], "::1 is an address of this machine"),
        (NAME, ["169.254.169.254"], "169.254.169.254 is the metadata service of a cloud"),
        (NAME, ["9.9.9.9"], "9.9.9.9 is an address of this machine"),
        (NAME, ["::ffff:127.0.0.1"], "::ffff:7f00:1 is an IPv4 address inside of"),
        (NAME._replace(private=True), ["10.0.0.1", "127.0.0.1", "::1", "9.9.9.9"], None),
        (NAME._replace(private=True), ["169.254.169.254"], "169.254.169.254 is the metadata service of a cloud"),
        (NAME._replace(private=True), ["fe80::1"], "fe80::1 is a link-local address"),
        (NAME._replace(private=True), ["198.18.0.1"], "198.18.0.1 is an address that stands for a name in a sandbox"),
        (None, ["8.8.8.8"], None),
        (None, ["10.0.0.1"], "10.0.0.1 is a private address"),
    ],
)  # fmt: skip
def test_vetting(rule: HostRule | None, addresses: list[str], said: str | None) -> None:
    decision = HostDecision("allow" if rule else "ask", rule, "")
    found = vet(decision, packed(*addresses), packed("9.9.9.9"))
    assert (found is None) is (said is None)
    assert (found or "").startswith(said or "")


@each(
    ("denied", "port", "said"),
    [
        ("8.8.8.0/24", 443, "8.8.8.8 is denied: policy.yaml:2: 8.8.8.0/24"),
        ("8.8.8.8:443", 443, "8.8.8.8 is denied: policy.yaml:2: 8.8.8.8:443"),
        ("8.8.8.8:443", 22, None),
        ("8.8.9.0/24", 443, None),
        ("2606:4700::/32", 443, "2606:4700::1 is denied: policy.yaml:2: 2606:4700::/32"),
        ("*", 443, None),  # of names; that was decided before
    ],
)
def test_a_denied_address_is_denied_by_any_name(denied: str, port: int, said: str | None) -> None:
    rules = [NAME, parse_rule(denied, "deny", "policy.yaml:2")]
    assert vet(HostDecision("allow", NAME, ""), packed("8.8.8.8", "2606:4700::1"), rules=rules, port=port) == said
    allowing = [NAME, parse_rule(denied, "allow")]
    assert vet(HostDecision("allow", NAME, ""), packed("8.8.8.8"), rules=allowing, port=port) is None


def test_what_was_denied_stays_denied() -> None:
    assert vet(HostDecision("deny", None, "no rule names it"), packed("8.8.8.8")) == "no rule names it"


# --- properties ---

LABELS = st.sampled_from(["a", "b", "com", "example", "xn--e1awd7f", "x-y", "_s"])
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
ADDRESSES = st.ip_addresses().map(lambda one: parse_host(str(one).encode()).text)
HOSTS = st.one_of(NAMES, ADDRESSES)
TEXTS = st.one_of(
    NAMES, NAMES.map("*.{}".format), NAMES.map("**.{}".format), st.just("*"), st.just("0.0.0.0/0"), st.just("::/0")
)
ACTIONS: st.SearchStrategy[Action] = st.sampled_from(["allow", "ask", "deny"])
PORTS = st.sampled_from([22, 80, 443, 8080])


@st.composite
def rules(draw: st.DrawFn) -> HostRule:
    rule = parse_rule(draw(TEXTS), draw(ACTIONS), draw(st.sampled_from(["", "policy.yaml:1", "@npm"])))
    return rule._replace(
        ports=tuple(draw(st.lists(PORTS, max_size=2, unique=True).map(sorted))), private=draw(st.booleans())
    )


@given(HOSTS, PORTS, st.lists(rules(), max_size=6), st.randoms())
def test_the_order_of_rules_does_not_matter(host: str, port: int, given_rules: list[HostRule], random: object) -> None:
    first = decide(Request(host, port), given_rules)
    shuffled = list(given_rules)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert decide(Request(host, port), shuffled) == first
    assert decide(Request(host, port), given_rules + shuffled) == first


@given(HOSTS, PORTS, st.lists(rules(), max_size=6), rules())
def test_a_rule_more_opens_only_if_it_allows(host: str, port: int, given_rules: list[HostRule], more: HostRule) -> None:
    order = ["allow", "ask", "deny"]
    before = order.index(decide(Request(host, port), given_rules).action)
    after = order.index(decide(Request(host, port), [*given_rules, more]).action)
    if after < before:
        assert more.action == "allow" or more.private


@given(rules())
def test_a_rule_is_read_as_it_is_shown(rule: HostRule) -> None:
    found = parse_rule(show_rule(rule), rule.action, rule.source, private=rule.private)
    assert found == rule
    assert show_rule(found) == show_rule(rule)


@given(st.text(max_size=30), ACTIONS)
def test_any_text_is_a_rule_or_a_plain_reason(text: str, verb: Action) -> None:
    try:
        found = parse_rule(text, verb)
    except ValueError as error:
        assert str(error).isprintable()
    else:
        assert parse_rule(show_rule(found), verb) == found


@given(ADDRESSES, PORTS)
def test_no_wildcard_opens_an_address(host: str, port: int) -> None:
    wide = [parse_rule(text, "allow") for text in ("*:22,80,443,8080", "**.com:22,80,443,8080")]
    assert decide(Request(host, port), wide).action != "allow"


def test_one_rule_permits_private_addresses_and_another_inspects() -> None:
    rules = [HostRule("allow", "db.example", private=True), HostRule("allow", "db.example", inspect=True)]
    for order in (rules, rules[::-1]):
        decision = decide(Request("db.example", 443), order)
        assert decision.rule is not None
        assert decision.rule.private
        assert vet(decision, [bytes((10, 0, 0, 1))]) is None


def test_a_rule_with_only_denies_what_no_such_rule_allows() -> None:
    common = parse_rule("api.example", "allow", "preset forge")
    reads = HostRule("allow", "api.example", methods=("GET",), inspect=True, only=True, source="policy.yaml:3")
    writes = reads._replace(methods=("POST",), paths=("/me",))
    decided = {
        (method, path): decide(Request("api.example", 443, method, path), rules).action
        for rules in permutations([common, reads, writes])
        for method, path in (("GET", "/x"), ("POST", "/me/x"), ("POST", "/x"), ("", ""), ("GET", "/me/../x"))
    }
    assert decided == {
        ("GET", "/x"): "allow",
        ("POST", "/me/x"): "allow",
        ("POST", "/x"): "deny",
        ("", ""): "deny",
        ("GET", "/me/../x"): "allow",
    }
    decision = decide(Request("api.example", 443, "POST", "/x"), [common, reads])
    assert decision.reason == "policy.yaml:3: api.example allows only some requests there"
    assert decide(Request("www.example", 443, "POST", "/x"), [common, reads]).action == "ask"
    for other in ("api.example:8443", "*.example"):
        assert decide(Request("api.example", 8443, "POST"), [parse_rule(other, "allow"), reads]).action in (
            "allow",
            "ask",
        )


def test_a_connection_to_a_bound_host_is_opened() -> None:
    from mudroom.core.network.inspection import connection_rules

    reads = HostRule("allow", "api.example", methods=("GET",), inspect=True, only=True)
    for rules in ([reads], [reads, parse_rule("api.example", "allow")]):
        assert decide(Request("api.example", 443), connection_rules("api.example", 443, rules)).action == "allow"


def test_covering_rules_are_those_that_allow_or_ask() -> None:
    rules = [parse_rule("api.example", action) for action in ("allow", "ask", "deny")]
    assert covering(Request("api.example", 443), rules) == rules[:2]
    assert covering(Request("www.example", 443), rules) == []
