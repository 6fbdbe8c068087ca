"""Two versions of a login: which of them is to be on both sides."""

from __future__ import annotations

import base64
import json
from typing import Any

from mudroom.ext.agents.core.login import LoginVersion, compared, ends_of, is_cut_off
from tiers import each


def version(text: str | bytes, time: int = 0) -> LoginVersion:
    content = text.encode() if isinstance(text, str) else text
    return LoginVersion(content, repr(content), time)


def jwt(claims: Any) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{part}.c2ln"


OLD, NEW = version("old"), version("new")


@each(
    ("base", "inside", "outside", "act"),
    [
        (OLD, OLD, OLD, "none"),
        (OLD, NEW, NEW, "none"),
        (OLD, NEW, OLD, "to the host"),
        (OLD, OLD, NEW, "to the fork"),
        (OLD, version("a", 2), version("b", 1), "newer inside"),
        (OLD, version("a", 1), version("b", 2), "newer on the host"),
        (OLD, version("a", 1), version("b", 1), "newer on the host"),
        (version(""), NEW, OLD, "newer on the host"),
    ],
)
def test_a_side_that_has_not_changed_takes_the_other_s(
    base: LoginVersion, inside: LoginVersion, outside: LoginVersion, act: str
) -> None:
    assert compared(base.digest, inside, outside) == act


def test_without_a_base_equal_sides_are_left_and_others_are_by_time() -> None:
    assert compared("", NEW, NEW) == "none"
    assert compared("", version("a", 2), version("b", 1)) == "newer inside"


def test_the_end_of_a_token_counts_more_than_the_time_of_writing() -> None:
    early, late = json.dumps({"expiresAt": 1_800_000_000_000}), json.dumps({"expiresAt": 1_800_000_001_000})
    assert compared("x", version(early, 9), version(late, 1)) == "newer on the host"
    assert compared("x", version(late, 1), version(early, 9)) == "newer inside"
    assert compared("x", version(early, 1), version("{}", 9)) == "newer on the host"


@each(
    ("value", "ends"),
    [
        ({"claudeAiOauth": {"expiresAt": 1_800_000_000_000, "expires_in": 9e12}}, 1_800_000_000.0),
        ({"expiry_date": 1_800_000_000_123}, 1_800_000_000.123),
        ({"tokens": {"id_token": jwt({"exp": 5}), "access_token": jwt({"exp": 7}), "refresh_token": "x"}}, 7.0),
        (
            {"servers": [{"token": {"expires": 1_700_000_000}}, {"token": {"expires-at": 1_700_000_001}}]},
            1_700_000_001.0,
        ),
        ({"exp": True, "expires": "2026-01-01", "expiry": -1}, None),
        ({"expires": 1e300, "token": "e30.!.x", "other": jwt([1]), "more": jwt({"exp": "soon"})}, None),
        ([1], None),
    ],
)
def test_when_the_last_token_ends(value: Any, ends: float | None) -> None:
    assert ends_of(json.dumps(value).encode()) == ends


@each("content", [b"", b"\xff\xfe", b"token\n", b"[" * 200_000, b'{"exp": ' + b"9" * 5000 + b"}", b'{"a": "e30.A.x"}'])
def test_a_text_that_tells_no_end(content: bytes) -> None:
    assert ends_of(content) is None


def test_a_part_of_a_json_object_and_an_empty_file_are_no_login() -> None:
    assert is_cut_off(b"", b"token") and is_cut_off(b'{"a"', b"{}") and is_cut_off(b"[]", b"{}")
    assert not is_cut_off(b"token", b"old token") and not is_cut_off(b"{}", b"{}")
