"""A login whose vendor takes each refresh token once: of each profile, inside and bare, and of two forks in turn."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from conftest import Place, act_as
from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.settings import Settings
from mudroom.ext.agents.catalog import Catalog
from mudroom.session import Session
from mudroom.session.confinement.host_approver import HostAnswers
from test_logins import WAYS, log_in, meanwhile, python
from tiers import half

pytestmark = pytest.mark.both_users

TURNS = 3


class Vendor:
    """``used``: the tokens of all requests, in order; a token is good once."""

    def __init__(self) -> None:
        self.used: list[str] = []
        vendor = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def log_message(self, *_words: object) -> None:
                """Print no line for each request."""

            def do_POST(self) -> None:
                vendor.used.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                is_good = vendor.used[-1] == f"refresh-{len(vendor.used) - 1}"
                self.send_response(200 if is_good else 401)
                self.end_headers()
                self.wfile.write(b"refresh-%d" % len(vendor.used))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    vendor = Vendor()
    yield vendor
    vendor.close()


AGENT = """
import json, os, time, urllib.request
for turn in range({turns}):
    while int(json.load(open(path))["token"].split("-")[1]) % 2 != {mine}:
        time.sleep(0.002)
    token = json.load(open(path))["token"].encode()
    answer = urllib.request.urlopen("http://127.0.0.1:{port}/", token).read().decode()
    open(path + ".tmp", "w").write(json.dumps({{"token": answer}})); os.rename(path + ".tmp", path)
"""
CARDS = {
    ".codex/auth.json": Catalog().profile("codex").card(1),
    ".npmrc": AgentCard("agent", 1, Requirements(keychain=("npm",))),
}


@pytest.mark.parametrize("file", CARDS)
def test_two_forks_renew_in_turn(place: Place, vendor: Vendor, file: str) -> None:
    host = log_in(place, file, '{"token": "refresh-0"}')

    def opened() -> Session:
        rules = [parse_rule(f"127.0.0.1:{vendor.port}", "allow", private=True)]
        session = place.session(Settings(network="gate"), hosts=HostAnswers(lambda: rules))
        act_as(session, card=CARDS[file])
        return session

    sessions = [opened(), opened()]

    def renew(number: int) -> None:
        python(sessions[number], file, AGENT.format(turns=TURNS, mine=number, port=vendor.port), f"f{number}")

    def other(_over: threading.Event) -> None:
        renew(1)

    meanwhile(lambda: renew(0), other)  # type: ignore[arg-type, return-value]
    assert vendor.used == [f"refresh-{number}" for number in range(2 * TURNS)]
    assert json.loads(host.read_text()) == {"token": f"refresh-{2 * TURNS}"}


NO_LOGIN = {"aider", "cn", "goose", "mini-swe-agent", "openhands"}
"""Their keys are variables, or lie in files that could set any other variable or setting: no token is renewed."""
HOW = {"gemini": "truncated", "gptme": "truncated", "cn": "truncated", "amp": "truncated", "copilot": "truncated"}
"""The way in which an agent writes; the others write a new file and rename it."""
LOGINS = [
    (name, os.fsdecode(path), keys[0] if keys else "token")
    for name in Catalog().names()
    for profile in (Catalog().profile(name),)
    for path, keys in (*((path, ()) for path in profile.tokens), *profile.renewed)
]

STAND_IN = """
import json, os, time, urllib.request
def at(value):
    for step in {steps}[:-1]:
        value = value[step]
    return value
def load():
    try:
        return json.load(open(path))
    except ValueError:
        return None
def renew():
    value = load()
    token = at(value)[{steps}[-1]].encode()
    at(value)[{steps}[-1]] = urllib.request.urlopen("http://127.0.0.1:{port}/", token).read().decode()
    global new
    new = json.dumps(value)
    {write}
renew()
while not (value := load()) or at(value)[{steps}[-1]] != "refresh-2":
    time.sleep(0.002)
renew()
"""


def test_profiles_without_a_login_are_named() -> None:
    assert {name for name, _path, _key in LOGINS} | NO_LOGIN == set(Catalog().names())
    assert not {name for name, _path, _key in LOGINS} & NO_LOGIN


@pytest.mark.parametrize(("agent", "file", "key"), half(LOGINS))
def test_a_login_of_each_profile_is_renewed_inside_and_bare(
    place: Place, vendor: Vendor, agent: str, file: str, key: str
) -> None:
    steps = [step.replace("*", "x") for step in key.split(".")]
    content: dict[str, Any] = {steps[-1]: "refresh-0", "kept": 1}
    for step in reversed(steps[:-1]):
        content = {step: content}
    host = log_in(place, file, json.dumps(content))
    rules = [parse_rule(f"127.0.0.1:{vendor.port}", "allow", private=True)]
    session = place.session(Settings(network="gate"), hosts=HostAnswers(lambda: rules))
    act_as(session, card=Catalog().profile(agent).card(1))

    def has(token: str) -> bool:
        return f'"{token}"' in host.read_text()

    def bare(over: threading.Event) -> None:
        while not has("refresh-1"):
            if over.wait(0.002):
                return
        vendor.used.append("refresh-1")  # what the agent does that runs beside it
        new = host.with_name("bare")
        new.write_text(host.read_text().replace('"refresh-1"', '"refresh-2"'))
        new.rename(host)

    code = STAND_IN.format(steps=steps, port=vendor.port, write=WAYS[HOW.get(agent, "renamed")].strip())
    result = meanwhile(lambda: python(session, file, code), bare)
    assert vendor.used == ["refresh-0", "refresh-1", "refresh-2"]
    assert has("refresh-3") and json.loads(host.read_text()) == json.loads(
        json.dumps(content).replace("refresh-0", "refresh-3")
    )
    assert [note for note in result.notes if "login" in note or "kept" in note] == []


@pytest.mark.parametrize(("agent", "file", "key"), half(LOGINS))
def test_a_login_inside_stays_in_its_fork_where_the_host_has_none(
    place: Place, agent: str, file: str, key: str
) -> None:
    session = place.session(Settings(network="none"))
    act_as(session, card=Catalog().profile(agent).card(1))
    code = "os.makedirs(os.path.dirname(path), exist_ok=True); " + WAYS["renamed"]
    result = python(session, file, code, new=json.dumps({key: "token"}))
    assert not (place.home / file).exists()
    assert any("no login is on this host; one inside stays in its fork" in note for note in result.notes), result.notes
    assert python(session, file, "print(open(path).read())").stdout.decode().strip() == json.dumps({key: "token"})
