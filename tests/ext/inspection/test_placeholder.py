"""Placeholders: what they look like, where they are replaced, where they are refused."""

from __future__ import annotations

import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.network.inspection import Credential
from mudroom.ext.inspection.placeholder import (
    MARK,
    SHORTEST,
    CredentialRule,
    MisusedPlaceholder,
    PlaceholderScan,
    check_path,
    insert_credentials,
    make_placeholder,
    parse_credential,
    with_value,
)
from tiers import each

REAL = "ghp_" + "R" * 36


@pytest.fixture
def one() -> Credential:
    return with_value(parse_credential("TOKEN", "api.example.com"), REAL, bytes(range(32)))


@each(
    ("arguments", "wanted"),
    [
        (
            ("TOKEN", "API.Example.com."),
            CredentialRule("TOKEN", "api.example.com", 443, "authorization", "env", "TOKEN"),
        ),
        (
            ("A", "a.example:8443", "X-Api-Key", "env:B"),
            CredentialRule("A", "a.example", 8443, "x-api-key", "env", "B"),
        ),
        (
            ("A", "a.example", "PRIVATE-TOKEN", "file:~/.t"),
            CredentialRule("A", "a.example", 443, "private-token", "file", "~/.t"),
        ),
        (("A", "a.example", "x", "keyring:git/ada"), CredentialRule("A", "a.example", 443, "x", "keyring", "git/ada")),
    ],
)
def test_entries_are_read(arguments: tuple[str, ...], wanted: CredentialRule) -> None:
    assert parse_credential(*arguments) == wanted


@each(
    ("arguments", "why"),
    [
        (("A-B", "a.example"), "not the name of a variable"),
        (("A", "a b"), "is not for names"),
        (("A", "*.example"), "is not for names"),
        (("A", "a.example", "X Y"), "not a header"),
        (("A", "a.example", "Host"), "not a header"),
        (("A", "a.example", "x", "vault:x"), "write env"),
        (("A", "a.example", "x", "file:"), "write env"),
        (("A", "a.example", "x", "keyring:x"), "write env"),
    ],
)
def test_entries_that_make_no_sense_are_refused(arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_credential(*arguments)


@each("value", ["", " \n", "a\nb", "a\0", "ä", "\udc80"])
def test_a_value_that_cannot_be_in_a_header_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(ValueError, match="the credential TOKEN") as caught:
        with_value(parse_credential("TOKEN", "a.example"), value + "secret" * bool(value.strip()), bytes(32))
    assert "secret" not in str(caught.value)


@given(st.from_regex(r"[!-~]{1,300}", fullmatch=True), st.binary(min_size=20, max_size=40))
def test_a_placeholder_looks_like_a_token_and_gives_nothing_away(value: str, randomness: bytes) -> None:
    made = make_placeholder(value, randomness + b"\1")
    assert MARK in made
    assert len(made) == max(len(value), SHORTEST) or len(made) >= SHORTEST
    assert made.replace("-", "").replace("_", "").isalnum()


def test_a_placeholder_begins_and_is_as_long_as_the_real_one(one: Credential) -> None:
    assert one.placeholder.startswith("ghp_mudroom")
    assert len(one.placeholder) >= len(REAL)
    assert one.placeholder != with_value(parse_credential("TOKEN", "a.example"), REAL, bytes(32) + b"1").placeholder
    with pytest.raises(ValueError, match="random bytes"):
        make_placeholder(REAL, b"few")


def test_what_is_shown_of_a_credential_holds_neither_value(one: Credential) -> None:
    for shown in (repr(one), str(one), f"{one}", repr([one])):
        assert REAL not in shown
        assert one.placeholder not in shown


def test_it_is_put_in_for_host_and_header_only(one: Credential) -> None:
    field = (b"Authorization", b"Bearer " + one.placeholder.encode())
    other = (b"Accept", b"*/*")
    found = insert_credentials([other, field], [one], "api.example.com", 443, secure=True)
    assert found == [other, (b"Authorization", b"Bearer " + REAL.encode())]
    for host, port, secure in (
        ("x.example", 443, True),
        ("api.example.com", 8443, True),
        ("api.example.com", 443, False),
    ):
        with pytest.raises(MisusedPlaceholder, match=r"is for api\.example\.com only"):
            insert_credentials([field], [one], host, port, secure=secure)
    with pytest.raises(MisusedPlaceholder, match="is for the header authorization"):
        insert_credentials([(b"Cookie", field[1])], [one], "api.example.com", 443, secure=True)
    with pytest.raises(MisusedPlaceholder, match="in the name"):
        insert_credentials([(b"x-" + one.placeholder.encode(), b"")], [one], "api.example.com", 443, secure=True)


def test_it_is_put_into_the_password_of_basic_authentication(one: Credential) -> None:
    pair = binascii.b2a_base64(b"ada:" + one.placeholder.encode(), newline=False)
    ((_name, value),) = insert_credentials(
        [(b"authorization", b"basic " + pair)], [one], "api.example.com", 443, secure=True
    )
    assert binascii.a2b_base64(value.removeprefix(b"basic ")) == b"ada:" + REAL.encode()
    with pytest.raises(MisusedPlaceholder, match="only"):
        insert_credentials([(b"authorization", b"Basic " + pair)], [one], "other.example", 443, secure=True)
    odd = [(b"authorization", b"Basic ?!"), (b"authorization", b"Basic")]
    assert insert_credentials(odd, [one], "other.example", 443, secure=True) == odd


def test_it_is_refused_in_paths(one: Credential) -> None:
    check_path(b"/user?q=1", [one])
    with pytest.raises(MisusedPlaceholder, match="in the path"):
        check_path(b"/user?token=" + one.placeholder.encode(), [one])


@given(st.integers(1, 60), st.integers(0, 100))
def test_it_is_found_in_bodies_however_they_are_cut(size: int, before: int) -> None:
    one = with_value(parse_credential("TOKEN", "api.example.com"), REAL, bytes(range(32)))
    body = b"x" * before + one.placeholder.encode() + b"y" * 10
    watch, passed = PlaceholderScan([one]), b""
    with pytest.raises(MisusedPlaceholder, match="in the body"):
        for at in range(0, len(body), size):
            watch.see(body[at : at + size])
            passed += body[at : at + size]
    assert one.placeholder.encode() not in passed


def test_bodies_without_it_pass(one: Credential) -> None:
    for watch in (PlaceholderScan([one]), PlaceholderScan([])):
        for _ in range(100):
            watch.see(one.placeholder[:-1].encode())
