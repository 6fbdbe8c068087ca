"""``mudroom serve`` and ``mudroom agent card``, as another agent, a user and an attacker meet them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import environment

import forked
from conftest import Place
from mudroom.cli.main import run
from mudroom.ext.web.server.registry import ServerRegistry

WELL_KNOWN, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"


def write_card(place: Place, agent: str, **more: Any) -> str:
    path = place.root / f"{abs(hash(agent))}.json"
    path.write_text(json.dumps({"agentId": agent, **more}))
    return str(path)


class Served:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.told: dict[str, Any] = json.loads(process.stdout.readline())
        self.port = int(self.told["url"].rsplit(":", 1)[1].strip("/"))

    def get(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def card(self, path: str) -> dict[str, Any]:
        status, text = self.get(path)
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.told['token']}"}


@contextmanager
def serving(place: Place, *words: str, ends_with: int = signal.SIGTERM) -> Iterator[Served]:
    process = forked.popen(
        ["serve", "--port", "0", "--json", *words],
        cwd=place.project,
        env=environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Served(process)
        process.send_signal(ends_with)
        _out, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.communicate()


def params(card: dict[str, Any]) -> dict[str, Any]:
    (extension,) = card["capabilities"]["extensions"]
    found: dict[str, Any] = extension["params"]
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_only_agent_is_at_the_root_too(place: Place, number: int) -> None:
    with serving(place, "--card", write_card(place, "team:x/y", name="X"), ends_with=number) as served:
        new, old = served.card(WELL_KNOWN), served.card(OLD)
        (row,) = served.told["agents"]
        path = row["url"].removeprefix(served.told["url"].rstrip("/"))
        assert path == "/agents/team%3Ax%2Fy"
        assert served.card(path + WELL_KNOWN) == new
        assert new["supportedInterfaces"][0]["url"] == old["url"] == row["url"] + "/a2a"
        assert (new["name"], params(new)["sandboxLevel"]) == ("X", 0)


def test_several_agents_have_a_place_each(place: Place) -> None:
    cards = [word for agent in ("a", "b") for word in ("--card", write_card(place, agent, name=agent.upper()))]
    with serving(place, *cards) as served:
        assert served.card("/agents/a" + WELL_KNOWN)["name"] == "A"
        assert served.card("/agents/b" + OLD)["name"] == "B"
        assert served.get(WELL_KNOWN)[0] == 401
        assert served.get(WELL_KNOWN, **served.bearer)[0] == 404
        status, text = served.get("/api/v1/agents", **served.bearer)
        assert (status, [row["agent"] for row in json.loads(text)["agents"]]) == (200, ["a", "b"])


def test_the_card_says_what_the_policy_says_now(place: Place) -> None:
    needs = {"needsNetwork": ["a.example", "b.example"], "needsKeychain": ["gh"]}
    (place.home / ".config/gh").mkdir(parents=True)
    with serving(place, "--card", write_card(place, "a", sandboxRequirements=needs)) as served:
        found = params(served.card(WELL_KNOWN))
        assert (found["sandboxLevel"], found["decidedBy"], found["credentials"]) == (0, "default", ["gh"])
        place.write(".mudroom/policy.yaml", "levels:\n  minimum: 1\nnetwork:\n  allow: [a.example]\n")
        found = params(served.card(WELL_KNOWN))
        assert (found["sandboxLevel"], found["decidedBy"]) == (1, "levels.minimum")
        assert found["network"] == {"mode": "gate", "hosts": ["a.example"]}
        place.write(".mudroom/policy.yaml", "levels:\n  agents: {a: refuse}\n")
        assert params(served.card(WELL_KNOWN))["isolation"] == "refused"
        place.write(".mudroom/policy.yaml", "levels: [\n")
        assert served.get(WELL_KNOWN)[0] == 503


def test_only_cards_are_for_everybody(place: Place) -> None:
    with serving(place, "--card", write_card(place, "a")) as served:
        task = '{"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}'
        assert served.get("/api/v1/agents")[0] == served.get("/nothing")[0] == 401
        assert served.get("/agents/a/a2a", "POST", task)[0] == 401
        status, text = served.get("/agents/a/a2a", "POST", task, **served.bearer)
        assert (status, json.loads(text)["error"]["code"]) == (200, -32004)
        status, text = served.get("/agents/a/a2a", "POST", "{", **served.bearer)
        assert (status, json.loads(text)["error"]["code"]) == (200, -32700)
        assert served.get("/agents/a/a2a", "POST", " " * (1 << 21), **served.bearer)[0] == 413
        assert served.get(WELL_KNOWN, "POST", "{}")[0] == 405
        assert served.get(WELL_KNOWN, Host="evil.example")[0] == 421
        assert served.get(WELL_KNOWN, Origin="http://evil.example")[0] == 403
        assert served.get("/nothing", **served.bearer)[0] == 404


def test_only_on_loopback(place: Place) -> None:
    with serving(place) as served:
        tables = [path for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if path.exists()]
        rows = [line.split() for path in tables for line in path.read_text().splitlines()[1:]]
        listening = {
            row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[1].endswith(f":{served.port:04X}")
        }
        assert listening - {"00000000000000000000000001000000"} == {"0100007F"}
        assert served.get("/")[0] == 200


def test_a_connection_that_says_nothing_does_not_keep_it_from_ending(place: Place) -> None:
    with serving(place, "--card", write_card(place, "a")) as served:
        idle = socket.create_connection(("127.0.0.1", served.port))
        half = socket.create_connection(("127.0.0.1", served.port))
        half.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert served.get(WELL_KNOWN)[0] == 200
    idle.close()
    half.close()


def test_bad_words(place: Place) -> None:
    def refused(*words: str) -> str:
        done = forked.run(words, cwd=place.project, env=environment(place))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), done.stderr
        return done.stderr

    card = write_card(place, "a")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port}: Address already in use" in refused("serve", "--port", port, "--card", card)
    assert "70000 is not a port" in refused("serve", "--port", "70000")
    assert "is no directory" in refused("serve", "--root", card)
    assert "two cards are of the same agent" in refused("serve", "--card", card, "--card", card)
    assert "No such file" in refused("serve", "--card", "none.json")
    told = "mudroom: '/a b' is not a prefix (as in --url-prefix /mudroom)\n"
    assert refused("serve", "--url-prefix", "/a b") == told
    without = "import sys; sys.modules['uvicorn'] = None; from mudroom.cli import main; main()"
    command = [sys.executable, "-c", without, "serve", "--port", "0"]
    done = subprocess.run(
        command, cwd=place.project, env=environment(place), capture_output=True, text=True, check=False
    )
    assert (done.returncode, "mudroom serve needs uvicorn (pip install starlette uvicorn)" in done.stderr) == (
        125,
        True,
    )


def test_a_server_that_runs_already(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    variables = {os.fsencode(name): os.fsencode(value) for name, value in environment(place).items()}
    with serving(place) as served:
        pid = served.process.pid
        assert run(["serve", "--port", "0", "--root", str(place.project)], variables) == 125
        assert capfd.readouterr().err == (
            f"mudroom: mudroom serve runs already (process {pid}, port {served.port}) "
            f"(kill {pid} ends it; mudroom serve --link prints an address of it)\n"
        )


def test_a_server_that_holds_its_place_and_does_not_answer(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As one that is stopped (Ctrl-Z)."""
    registry = ServerRegistry(os.fsencode(place.state) + b"/serve")
    place.state.mkdir(mode=0o700)
    assert registry.acquire()
    monkeypatch.setattr("mudroom.ext.web.cli.serve._START_SECONDS", 0.0)
    variables = {os.fsencode(name): os.fsencode(value) for name, value in environment(place).items()}
    assert run(["serve", "--port", "0"], variables) == 125
    assert capfd.readouterr().err == (
        "mudroom: another mudroom serve runs, and does not answer "
        "(pgrep -af 'mudroom serve' shows its process, which kill ends)\n"
    )
    registry.release()


def test_a_card_can_be_printed(place: Place) -> None:
    card = write_card(place, "a", sandboxLevel=1, version="3")
    words = ["agent", "card", card, "--url", "https://a.example/a2a"]
    done = forked.run(words, cwd=place.project, env=environment(place))
    found = json.loads(done.stdout)
    assert (found["version"], found["supportedInterfaces"][0]["url"]) == ("3", "https://a.example/a2a")
    assert params(found)["sandboxLevel"] == 1
    assert not place.state.exists()
