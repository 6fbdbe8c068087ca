"""The command that a refusal names: one that opens the host, or none."""

from __future__ import annotations

import shlex

import pytest

from mudroom.core.network.allowing import command_to_allow
from mudroom.core.network.host_entry import expand, parse_entry
from mudroom.core.network.host_rules import HostRule, Request, decide, parse_rule, vet


@pytest.mark.parametrize("host", ["a.example", "127.0.0.1", "::1", "10.0.0.1", "8.8.8.8"])
@pytest.mark.parametrize("port", [80, 443, 8377])
def test_the_command_of_a_refusal_allows_it(host: str, port: int) -> None:
    decision = decide(Request(host, port), ())
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    command = command_to_allow(where, decision.reason)
    rule = parse_rule(shlex.split(command)[-1], "allow")
    assert decide(Request(host, port), [rule]).action == "allow"


def test_a_private_address_of_a_name_needs_its_own_permission() -> None:
    rule = parse_rule("db.example:5432", "allow")
    decision = decide(Request("db.example", 5432), [rule])
    reason = vet(decision, [bytes((10, 1, 2, 3))])
    assert reason is not None
    assert command_to_allow("db.example:5432", reason) == "mudroom net allow --private db.example:5432"


@pytest.mark.parametrize(
    ("address", "about"),
    [((10, 1, 2, 3), "a private address"), ((192, 0, 2, 1), "an address for documentation, not a public address")],
)
def test_a_private_address_of_a_host_of_a_preset_is_opened_for_the_preset(address: tuple[int, ...], about: str) -> None:
    hosts = list(expand([parse_entry("@npm", "allow", "permissions.yaml:4")]))
    request = Request(hosts[0].pattern, 443)
    reason = vet(decide(request, hosts), [bytes(address)])
    shown = ".".join(map(str, address))
    assert reason == f"{shown} is {about}; @npm allows public addresses only"
    command = command_to_allow(f"{request.host}:443", reason)
    assert command == "mudroom net allow --private @npm"
    opened = list(expand([parse_entry("@npm", "allow", private=True)]))
    assert vet(decide(request, opened), [bytes(address)]) is None


@pytest.mark.parametrize(
    "reason", ["asked, and nobody has answered in 55 s", "the client, or the command, ended before it was answered"]
)
def test_a_question_without_an_answer_is_answered_by_a_rule(reason: str) -> None:
    assert command_to_allow("a.example:443", reason) == "mudroom net allow a.example"


@pytest.mark.parametrize(
    ("host", "rules"),
    [
        ("169.254.169.254", ()),
        ("metadata.google.internal", ()),
        ("a.example", (parse_rule("a.example", "deny", "policy.yaml:3"),)),
        ("a.example", (parse_rule("a.example", "ask", "policy.yaml:3"),)),
    ],
)
def test_no_command_is_named_that_would_not_help(host: str, rules: tuple[HostRule, ...]) -> None:
    assert command_to_allow(f"{host}:80", decide(Request(host, 80), rules).reason) == ""
