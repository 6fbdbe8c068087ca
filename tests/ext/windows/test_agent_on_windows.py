"""``mudroom agent run`` in a Windows Python: a scripted agent beside a scripted model on this machine's loopback,
which it reaches through the gate; by a profile, by a card. Run by ``dev/wine``."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from test_session_on_windows import Place, place

__all__ = ["place"]

AGENT = """\
import json, os, subprocess, sys, urllib.request
os.environ.pop("NO_PROXY")  # on Windows this machine's loopback is behind the proxy, as a note says
seen = {"task": sys.argv[1], "key": os.environ.get("SCRIPTED_KEY"), "token": os.environ.get("OTHER_TOKEN")}
while True:
    data = json.dumps(seen).encode()
    with urllib.request.urlopen(urllib.request.Request(os.environ["SCRIPTED_URL"], data), timeout=60) as answer:
        step = json.load(answer)
    if "write" in step:
        with open(step["write"], "wb") as stream:
            stream.write(step["content"].encode())
        seen = {"wrote": step["write"]}
    elif "run" in step:
        ended = subprocess.run(step["run"], shell=True, capture_output=True, text=True)
        seen = {"code": ended.returncode, "output": ended.stdout}
    else:
        print(step["say"])
        sys.exit(step["code"])
"""
STEPS = (
    {"write": "made.txt", "content": "one\r\n"},
    {"run": "type made.txt& del sub\\b.bin& exit 4"},
    {"say": "done", "code": 0},
)
PROFILE = """\
format = 1
name = "scripted"
about = "A scripted agent"
programs = ["scripted"]
install = "pipx install scripted"
store = "claude"
tokens = ["~/.claude/.credentials.json"]
[network]
allow = ["127.0.0.1:{port}"]
[environment]
pass = ["SCRIPTED_URL", "SCRIPTED_KEY"]
"""


class Model:
    """Answers with one step after the other, and keeps what it was told."""

    def __init__(self) -> None:
        self.heard = heard = list[dict[str, Any]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                body = json.dumps(STEPS[len(heard) - 1]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - of its base
                del format, arguments

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def model(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    made = Model()
    programs = place.root / "programs"
    programs.mkdir()
    (programs / "agent.py").write_text(AGENT)
    (programs / "scripted.bat").write_text(f'@"{sys.executable}" "%~dp0agent.py" %*\n')
    monkeypatch.setenv("PATH", str(programs), prepend=";")
    monkeypatch.setenv("SCRIPTED_URL", f"http://127.0.0.1:{made.port}/v1")
    monkeypatch.setenv("SCRIPTED_KEY", "the-key")
    monkeypatch.setenv("OTHER_TOKEN", "another's")
    yield made
    made.close()


def profile(place: Place, port: int) -> None:
    directory = place.root / "home" / "mudroom" / "agents"
    directory.mkdir(parents=True)
    (directory / "scripted.toml").write_text(PROFILE.format(port=port))


def card(place: Place, **more: Any) -> str:
    path = place.root / "card.json"
    path.write_text(json.dumps({"agentId": "carded", **more}))
    return str(path)


AFTER = {"a.txt": b"one\r\ntwo\r\n", "made.txt": b"one\r\n"}


def test_an_agent_of_a_profile_from_its_first_word_to_the_project(place: Place, model: Model) -> None:
    profile(place, model.port)
    before = place.files()
    said = place.say("agent", "run", "--", "Scripted.bat", "a task")
    assert said.code == 0 and said.out == "done\r\n", said
    assert "A scripted agent; variables passed: SCRIPTED_URL, SCRIPTED_KEY; not passed: OTHER_TOKEN" in said.err
    assert "not opened on Windows: claude (--env NAME passes the variable of a key)" in said.err, said.err
    assert model.heard == [
        {"task": "a task", "key": "the-key", "token": None},
        {"wrote": "made.txt"},
        {"code": 4, "output": "one\n"},
    ]
    assert place.files() == before and "its fork" not in said.err
    assert place.say("apply", "--yes", "scripted").code == 0
    assert place.files() == AFTER
    events = [json.loads(line) for line in place.say("log", "--json").out.splitlines()]
    flows = [(event["data"]["host"], event["data"]["verdict"]) for event in events if event["kind"] == "flow"]
    assert flows == [("127.0.0.1", "allow")] * 3, flows
    states = [event["data"]["state"] for event in events if event["kind"] == "agent"]
    assert states == ["started", "ended"]
    assert "scripted" in place.say("agent", "ls").out
    assert place.say("agent", "settings", "scripted").code == 0


@pytest.mark.slow
def test_an_agent_of_a_card_gets_what_the_user_allows(place: Place, model: Model) -> None:
    """Its files go where the user says; no host that its card names is open without a word of the user's."""
    needs = {"needsNetwork": [f"127.0.0.1:{model.port}"], "needsKeychain": True}
    written = card(place, sandboxLevel=1, sandboxRequirements=needs, artifacts=["made.*"])
    run = ("agent", "run", written, "--env", "SCRIPTED_URL")
    said = place.say(*run, "--", "scripted", "x")
    assert said.code == 1 and "refused, nobody can be asked" in said.err and model.heard == [], said
    out = place.root / "out"
    said = place.say(*run, "--allow-card-network", "--artifacts", str(out), "--", "scripted", "x")
    assert said.code == 0 and len(model.heard) == 3 and "artefacts: 1 file" in said.err, said
    assert (out / "files" / "made.txt").read_bytes() == b"one\r\n"
    checked = place.say("agent", "check", written)
    assert checked.code == 0 and "credentials  none" in checked.out and "not opened on Windows" in checked.out, checked


@pytest.mark.slow
def test_what_is_wrong_or_closed_is_said_in_one_line(
    place: Place, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(place, model.port)
    bare = card(place, sandboxLevel=1)
    shown = str(place.project / "inside")
    (place.root / "home" / "bin").mkdir()
    (place.root / "home" / "bin" / "homely.exe").write_bytes(Path(sys.executable).read_bytes()[:64])
    below = "homely, which is installed below your home, needs rights of the sandbox on its files; found: "
    for words, code, says in (
        (("run",), 125, "installed: mudroom agent run -- scripted"),
        (("run", "--", "no-such-agent"), 127, "no-such-agent: no such program on PATH"),
        (("run", "missing.json", "--", "cmd"), 125, "missing.json"),
        (("run", bare, "--artifacts", shown, "--", "cmd", "/c", "exit"), 125, "is in the project"),
        (("run", bare, "--checked", "0123456789", "--", "cmd"), 126, "not the one that was checked"),
        (("run", bare, "--level", "2", "--", "cmd"), 125, "needs a container of Linux; found: Windows"),
        (("run", "--", str(place.root / "home" / "bin" / "homely.exe")), 125, below),
        (("show", "nobody"), 125, "no profile of an agent"),
    ):
        said = place.say("agent", *words)
        assert said.code == code and says in said.err.splitlines()[-1] and "Traceback" not in said.err, said
    place.certify(fell=("bridge",))
    said = place.say("agent", "run", "--", "scripted", "x")
    assert said.code == 125 and "bridge fell" in said.err.splitlines()[-1], said
    assert model.heard == [] and set(place.files()) == {"a.txt", "sub/b.bin"}
    monkeypatch.setenv("PATH", "")
    assert "scripted        not installed: pipx install scripted" in place.say("agent", "ls").out
