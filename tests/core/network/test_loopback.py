"""Places of this machine's loopback: which rules open them, and what ``net why`` says about them."""

from __future__ import annotations

from mudroom.core.network.host_rules import Action, HostRule, Request, decide, parse_rule
from mudroom.core.network.loopback import (
    MOST,
    OWN_PORTS,
    LoopbackPlace,
    about_rule,
    is_loopback,
    look_at_loopback,
    loopback_places,
)
from mudroom.sandbox.linux.plan import PROXY_PORT, REDIRECTED
from tiers import each


def rules(*texts: str) -> list[HostRule]:
    """``-`` in front of a rule denies, ``?`` asks, ``+`` allows a host that may be private."""
    actions: dict[str, Action] = {"-": "deny", "?": "ask"}
    return [
        parse_rule(text.lstrip("-?+"), actions.get(text[0], "allow"), "p.yaml:1", private=text[0] == "+")
        for text in texts
    ]


def shown(*texts: str) -> list[str]:
    return [str(place) for place in loopback_places(rules(*texts))]


@each(
    ("texts", "places"),
    [
        (["127.0.0.1:8377"], ["127.0.0.1:8377"]),
        (["[::1]:8377"], ["[::1]:8377"]),
        (["127.0.0.53:5353"], ["127.0.0.53:5353"]),
        (["localhost:1234"], ["127.0.0.1:1234", "[::1]:1234"]),
        (["127.0.0.1"], ["127.0.0.1:80", "127.0.0.1:443"]),
        (["127.0.0.1:8377,8000"], ["127.0.0.1:8000", "127.0.0.1:8377"]),
        (["?127.0.0.1:8377"], ["127.0.0.1:8377"]),
        (["?127.0.0.1"], []),
        # a name that may resolve there, a wildcard and a network are no rule for the address
        (["+devbox.example:8377"], []),
        (["+*:8377"], []),
        (["+**.localhost:8377"], []),
        (["127.0.0.0/8:8377"], []),
        (["10.0.0.1:8377"], []),
        # a deny beats every allow, whatever it names the place by
        (["127.0.0.1:8377", "-127.0.0.1"], []),
        (["127.0.0.1:8377", "-localhost:8377"], []),
        (["127.0.0.1:8377", "-127.0.0.0/8"], []),
        (["localhost:8377", "-127.0.0.1:8377"], ["[::1]:8377"]),
        (["127.0.0.1:8377", "-127.0.0.1:9"], ["127.0.0.1:8377"]),
        (["127.0.0.1:8377", "-*"], ["127.0.0.1:8377"]),
        # mudroom's own listeners are there
        (["127.0.0.1:1,53,3128,3129"], ["127.0.0.1:3129"]),
    ],
)
def test_which_rules_open_a_place(texts: list[str], places: list[str]) -> None:
    assert shown(*texts) == places


def test_a_rule_for_some_requests_only_opens_its_place() -> None:
    partial = rules("127.0.0.1:8377")[0]._replace(paths=("/api",))
    assert loopback_places([partial]) == [LoopbackPlace("127.0.0.1", 8377)]
    assert look_at_loopback("127.0.0.1", 8377, [partial]).action == "allow"
    allow, deny = rules("127.0.0.1:8377", "-127.0.0.1:8377")
    assert loopback_places([allow, deny._replace(paths=("/api/pull",))]) == [LoopbackPlace("127.0.0.1", 8377)]


def test_a_name_needs_a_permission_of_its_own() -> None:
    """A rule for the address is none for a name, and ``localhost`` is no other name."""
    allowed = rules("localhost:8377")
    assert decide(Request("127.0.0.1", 8377), allowed).action == "allow"
    assert decide(Request("::1", 8377), allowed).action == "allow"
    assert decide(Request("127.0.0.2", 8377), allowed).action == "deny"
    for host in ("devbox.example", "a.localhost", "localhost.example"):
        assert decide(Request(host, 8377), rules("localhost:8377", "127.0.0.1:8377")).action == "ask"


@each(
    ("texts", "host", "port", "action", "reason"),
    [
        (["127.0.0.1:8377"], "127.0.0.1", 8377, "allow", "p.yaml:1: 127.0.0.1:8377 allows it"),
        (["127.0.0.1:8377"], "localhost", 8377, "allow", "p.yaml:1: 127.0.0.1:8377 allows it"),
        (["localhost:8377"], "127.0.0.1", 8377, "allow", "p.yaml:1: localhost:8377 allows it"),
        (["[::1]:8377"], "localhost", 8377, "allow", "p.yaml:1: [::1]:8377 allows it"),
        (["[::1]:8377"], "127.0.0.1", 8377, "deny", "to allow it: mudroom net allow 127.0.0.1:8377"),
        (["127.0.0.1:8377"], "127.0.0.1", 8378, "deny", "to allow it: mudroom net allow 127.0.0.1:8378"),
        ([], "::1", 8378, "deny", "to allow it: mudroom net allow '[::1]:8378'"),
        (["127.0.0.1:8377", "-localhost"], "127.0.0.1", 8377, "deny", "p.yaml:1: localhost denies it"),
        (["127.0.0.0/8:8377"], "127.0.0.1", 8377, "deny", "by the gate's proxy only; to allow it: mudroom net allow"),
        (["127.0.0.1:3128"], "127.0.0.1", 3128, "deny", "port 3128 inside is the gate's own"),
        (["?127.0.0.1:8377"], "127.0.0.1", 8377, "ask", "wants it asked about"),
    ],
)
def test_why(texts: list[str], host: str, port: int, action: str, reason: str) -> None:
    decision = look_at_loopback(host, port, rules(*texts))
    assert decision.action == action
    assert reason in decision.reason


@each(
    ("text", "line"),
    [
        ("127.0.0.1:8377", "commands reach it at 127.0.0.1:8377; a server of their own cannot listen there"),
        (
            "localhost:1234",
            "commands reach it at 127.0.0.1:1234, [::1]:1234; a server of their own cannot listen there",
        ),
        ("127.0.0.1:3128", "port 3128 inside is the gate's own: what listens there on this machine is not reached"),
        (
            "127.0.0.0/16",
            "this opens the gate's proxy only; to reach a server at its address, name that: 127.0.0.1:PORT",
        ),
        *(
            (stars + suffix, f"anybody can have a name below {suffix}: what a command reads can be sent to any of them")
            for stars in ("*.", "**.")
            for suffix in ("com", "co.uk", "github.io", "s3.amazonaws.com", "pages.dev", "xn--p1ai")
        ),
        ("*.example.com", ""),
        ("*.example.co.uk", ""),
        ("*.someone.github.io", ""),
        ("*.internal", ""),
        ("github.io", ""),
        ("-*.co.uk", ""),
        ("-127.0.0.1:8377", ""),
        ("10.0.0.0/8", ""),
        ("+devbox.example:8377", ""),
    ],
)
def test_what_is_said_about_a_new_rule(text: str, line: str) -> None:
    assert about_rule(rules(text)[0]) == line


def test_the_rest_of_too_many_is_told() -> None:
    many = rules("127.0.0.1:" + ",".join(str(8000 + number) for number in range(MOST + 1)))
    assert look_at_loopback("127.0.0.1", 8000, many).action == "allow"
    last = look_at_loopback("127.0.0.1", 8000 + MOST, many)
    assert (last.action, last.reason) == (
        "deny",
        f"rules name more than {MOST} ports of this machine; this one is left out",
    )


@each(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.255.0.9", True), ("::1", True), ("localhost", True),
        ("127.0.0.0/8", False), ("128.0.0.1", False), ("127.example", False), ("a.localhost", False), ("::2", False),
    ],
)  # fmt: skip
def test_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_the_ports_of_the_gates_own_listeners() -> None:
    assert set(OWN_PORTS) == {PROXY_PORT, REDIRECTED, 53}
