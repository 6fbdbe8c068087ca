"""What is looked into, and what a connection that is to be looked into may be opened by."""

from __future__ import annotations

from typing import Any

import pytest

from mudroom.core.network.host_rules import HostRule, Request, decide, parse_rule
from mudroom.core.network.inspection import (
    Credential,
    Inspection,
    connection_rules,
    is_inspected,
    parse_header,
    uninspected,
)
from tiers import each

API = "api.example.com"
LOOKS = HostRule("allow", "*.example.com", inspect=True)
CREDENTIAL = Credential("TOKEN", API, 443, "authorization", "a-placeholder", "secret-one")


def test_a_rule_that_inspects_makes_a_host_inspected_unless_it_is_excluded() -> None:
    assert is_inspected(API, 443, [LOOKS], None)
    assert not is_inspected(API, 8443, [LOOKS], None)
    assert not is_inspected("example.com", 443, [LOOKS], None)
    assert not is_inspected(API, 443, [LOOKS._replace(inspect=False)], None)
    assert not is_inspected(API, 443, [LOOKS._replace(action="deny")], None)
    for never, inspected in (("api.example.com", False), ("**.example.com:443", False), ("*.example.com:8443", True)):
        assert is_inspected(API, 443, [LOOKS], Inspection("", (parse_rule(never, "deny"),))) is inspected


def test_a_credential_makes_its_host_inspected() -> None:
    inspection = Inspection("", credentials=(CREDENTIAL,))
    assert is_inspected(API, 443, [], inspection)
    assert is_inspected(API, 22, [], inspection), "on every port: a command has its own credentials for the others"
    mild = inspection._replace(credentials=(CREDENTIAL._replace(foreign="allow"),))
    assert is_inspected(API, 443, [], mild)
    assert not is_inspected(API, 22, [], mild)
    assert not is_inspected("www.example.com", 443, [], inspection)
    assert "secret-one" not in repr(inspection) + str(inspection)


def test_the_host_of_a_credential_is_no_tunnel() -> None:
    allowing = CREDENTIAL._replace(foreign="allow")
    inspection = Inspection("", (parse_rule("**.example.com", "deny"),), (CREDENTIAL,))
    assert "the credential TOKEN is for it" in uninspected(Request(API, 443), (), inspection)
    assert "the credential TOKEN is for it" in uninspected(Request(API, 22), (), inspection)
    assert not uninspected(Request("www.example.com", 443), (), inspection)
    assert not uninspected(Request(API, 443), (), inspection._replace(never=()))
    assert not uninspected(Request(API, 443), (), inspection._replace(credentials=(allowing,)))
    assert not uninspected(Request(API, 443), (), None)


def test_headers_that_rules_change_are_checked() -> None:
    assert parse_header("X-Team", "blue sky") == ("x-team", "blue sky")
    assert parse_header("X-Team") == ("x-team", "")
    for name in ("Host", "Content-Length", "Transfer-Encoding", "a b", "", "x\r\ny"):
        with pytest.raises(ValueError, match="not a header"):
            parse_header(name)
    for value in ("", "s3cret\r\nX: 1", "\0", " a", "ä"):
        with pytest.raises(ValueError, match="the value of x-a") as caught:
            parse_header("x-a", value)
        assert "s3cret" not in str(caught.value)


def test_what_is_to_be_excluded_is_a_pattern() -> None:
    with pytest.raises(ValueError, match="URL"):
        parse_rule("https://example.com/", "deny")


ALLOW, DENY, ASK = (HostRule(action, API) for action in ("allow", "deny", "ask"))
SOME: Any = {"methods": ("GET",)}


@each(
    ("rules", "action"),
    [
        ([ALLOW], "allow"),
        ([ALLOW._replace(**SOME)], "allow"),
        ([ALLOW._replace(paths=("/open",))], "allow"),
        ([ALLOW, DENY], "deny"),
        ([ALLOW, DENY._replace(**SOME)], "allow"),
        ([DENY._replace(**SOME)], "ask"),
        ([ALLOW, ASK], "ask"),
        ([ALLOW, ASK._replace(**SOME)], "allow"),
        ([ASK._replace(**SOME)], "ask"),
        ([], "ask"),
    ],
)
def test_a_connection_is_opened_if_a_request_might_be_allowed(rules: list[HostRule], action: str) -> None:
    assert decide(Request(API, 443), connection_rules(API, 443, rules)).action == action
