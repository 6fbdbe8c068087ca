"""A file that holds settings beside a login: its tokens go back to the host as a login does, and nothing else of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.core.home_change import tokens_in, with_renewed
from mudroom.ext.agents.core.login import ends_of
from mudroom.ext.agents.home.agent_settings import agent_settings
from mudroom.session import Session
from test_logins import MODES, WAYS, log_in, opened, python, told
from tiers import each, half

pytestmark = pytest.mark.both_users

AUTH = ".local/share/opencode/auth.json"
OLD = {
    "anthropic": {"type": "oauth", "access": "a0", "refresh": "r0", "expires": 1_700_000_000_000},
    "openai": {"type": "api", "key": "k"},
}
PROFILES = [(name, path.decode()) for name in Catalog().names() for path, _keys in Catalog().profile(name).renewed]


def renewed(number: int, **more: Any) -> dict[str, Any]:
    tokens = {"access": f"a{number}", "refresh": f"r{number}", "expires": 1_700_000_000_000 + number}
    return OLD | {"anthropic": {"type": "oauth", **tokens}} | more


def text(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def host_has(path: Path) -> Any:
    return json.loads(path.read_text())


def rows(session: Session) -> list[bytes]:
    return [change.path for _home, changes in agent_settings(session, "f") for change in changes]


@pytest.mark.parametrize(("level", "view"), half(mode for mode in MODES if mode != (0, "landlock")))
def test_every_way_of_writing_in_every_mode(place: Place, level: int, view: str) -> None:
    session, host = opened(place, "opencode", level, view), log_in(place, AUTH, text(OLD))
    for number, (way, code) in enumerate(WAYS.items(), 1):
        assert told(python(session, AUTH, code, new=text(renewed(number)))) == [], way
        assert host_has(host) == renewed(number), way
    assert host.stat().st_mode & 0o777 == 0o600
    assert AUTH.encode() not in rows(session)


def test_anything_but_its_tokens_stays_in_the_fork_and_is_shown(place: Place) -> None:
    session, host = opened(place, "opencode"), log_in(place, AUTH, text(OLD))
    evil = {"type": "wellknown", "key": "K", "token": "t", "access": "x"}
    written = renewed(1, evil=evil, openai={"type": "oauth", "key": "mine"})
    python(session, AUTH, WAYS["renamed"], new=json.dumps(written))
    assert host_has(host) == renewed(1)
    assert rows(session) == [AUTH.encode()]
    host.write_text(json.dumps(renewed(2)))  # bare meanwhile
    result = python(session, AUTH, "print(open(path).read())")
    assert json.loads(result.stdout) == renewed(2, evil=evil, openai={"type": "oauth", "key": "mine"})


@each("access", [{"command": "sh"}, ["x"], True, None, "", 0])
def test_a_token_is_a_text_or_a_number(access: Any) -> None:
    old, new = b'{"a": {"access": "1", "expires": 1}}', json.dumps({"a": {"access": access, "expires": 2}}).encode()
    assert json.loads(with_renewed(old, new, ("*.access", "*.expires"))) == {"a": {"access": "1", "expires": 2}}


def test_of_two_renewals_that_whose_tokens_end_later_is_the_newer() -> None:
    keys = ("*.access", "*.expires")
    ends = [ends_of(tokens_in(text(renewed(number)).encode(), text(OLD).encode(), keys) or b"") for number in (1000, 0)]
    assert ends == [1_700_000_001, 1_700_000_000]


def test_a_file_that_is_no_json_any_more_is_not_kept_and_that_is_said(place: Place) -> None:
    session, host = opened(place, "opencode"), log_in(place, AUTH, text(OLD))
    result = python(session, AUTH, 'open(path, "w").write("{\\"anthropic\\": ")')
    assert host_has(host) == OLD
    (note,) = told(result)
    assert "opencode's login ~/.local/share/opencode/auth.json was not kept: only a part of it was written" in note


@pytest.mark.parametrize(("agent", "path"), PROFILES)
def test_every_profile_renews_the_members_that_it_names(place: Place, agent: str, path: str) -> None:
    (keys,) = [keys for at, keys in Catalog().profile(agent).renewed if at.decode() == path]

    def document(token: str) -> dict[str, Any]:
        value: dict[str, Any] = {"settings": {"kept": True}}
        for key in keys:
            *above, name = ["any" if part == "*" else part for part in key.split(".")]
            below = value
            for part in above:
                below = below.setdefault(part, {})
            below[name] = token
        return value

    session, host = opened(place, agent), log_in(place, path, json.dumps(document("old")))
    inside = document("new") | {"settings": {"kept": False}}
    python(session, path, WAYS["renamed"], new=json.dumps(inside))
    assert host_has(host) == document("new")
