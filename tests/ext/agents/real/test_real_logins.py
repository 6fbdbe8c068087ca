"""A real agent whose token has expired renews it inside; each refresh token of the scripted vendor is good once."""

from __future__ import annotations

import base64
import json
import stat
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer
from real_agents import BY_NAME, Ended, RealAgent, Try
from scenario import Step

pytestmark = [pytest.mark.deep, pytest.mark.both_users, pytest.mark.limit(200)]

_SETTINGS = """\
model = "gpt-5"
model_provider = "scripted"
cli_auth_credentials_store = "file"

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
requires_openai_auth = true
supports_websockets = false
"""


def token(seconds: int) -> str:
    """Return a JWT that ends in so many seconds. Its signature is none."""
    claims = {
        "exp": int(time.time()) + seconds,
        "email": "user@example.org",
        "https://api.openai.com/auth": {"chatgpt_plan_type": "pro", "chatgpt_account_id": "account"},
    }
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join((*encoded, "c2ln"))


class Vendor:
    """An authorization server on loopback. ``used``: the refresh tokens of all requests, in order."""

    def __init__(self) -> None:
        self.used: list[str] = []
        self.good = "refresh-0"
        vendor = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def log_message(self, *_words: object) -> None:
                """Print no line for each request."""

            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                status, answer = vendor.answer(sent["refresh_token"])
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def answer(self, refresh: str) -> tuple[int, dict[str, Any]]:
        self.used.append(refresh)
        if refresh != self.good:
            return 401, {"error": {"code": "refresh_token_reused", "message": "used up"}}
        self.good = f"refresh-{len(self.used)}"
        return 200, {"id_token": token(3600), "access_token": token(3600), "refresh_token": self.good}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    vendor = Vendor()
    yield vendor
    vendor.close()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Try]:
    agent = BY_NAME["codex"]._replace(environment={}, files={".codex/config.toml": _SETTINGS})
    if not agent.version:
        pytest.skip(f"real agent absent: {agent.name} (dev/agents --fetch installs it)")
    here = Try(tmp_path, agent)
    yield here
    here.close()


def log_in(here: Try, agent: RealAgent) -> Path:
    login = here.home / ".codex/auth.json"
    login.parent.mkdir(exist_ok=True)
    tokens = {
        "id_token": token(-60), "access_token": token(-60), "refresh_token": "refresh-0", "account_id": "account",
    }  # fmt: skip
    login.write_text(json.dumps({"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": "2026-01-01T00:00:00Z"}))
    login.chmod(0o600)
    return login


def play(here: Try, vendor: Vendor, *options: str) -> Ended:
    with ModelServer((Step("look", "ls -la"), Step("finish", content="Done."))) as server:
        here.prepare(server)
        here.environ["CODEX_REFRESH_TOKEN_URL_OVERRIDE"] = f"http://127.0.0.1:{vendor.port}/oauth/token"
        here.mudroom("net", "allow", "--private", f"127.0.0.1:{vendor.port}")
        if options == ("bare",):
            ended = here.bare(server)
        else:
            ended = here.inside(server, "--env", "CODEX_REFRESH_TOKEN_URL_OVERRIDE", *options)
        assert server.played() == ["look", "finish"], (ended.output, vendor.used, server.errors)
    return ended


@pytest.mark.parametrize("options", [("bare",), (), ("--level", "0"), ("--view", "copy")], ids=" ".join)
def test_codex_renews_an_expired_login(here: Try, vendor: Vendor, options: tuple[str, ...]) -> None:
    login = log_in(here, here.agent)
    ended = play(here, vendor, *options)
    assert ended.code == 0, ended.output
    assert vendor.used == ["refresh-0"], ended.output
    assert json.loads(login.read_text())["tokens"]["refresh_token"] == vendor.good == "refresh-1"
    assert stat.S_IMODE(login.stat().st_mode) == 0o600
    assert "not kept" not in ended.output
