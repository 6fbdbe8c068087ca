"""The page's API as a page asks it, for tests: the application as ``mudroom serve`` builds it, without a socket."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from conftest import Place, tick
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import Terminal
from mudroom.ext.web.api.endpoint import id_of
from mudroom.ext.web.cli.page_server import environment_of
from mudroom.ext.web.server.app import build
from mudroom.ext.web.server.login import Login
from mudroom.ext.web.state.server_state import ServerState
from mudroom.vault.apply import transaction as apply_module
from mudroom.vault.apply.execution import Executor

PORT, TOKEN = 8765, "secret-token"
Json = dict[str, Any]


class PageSide:
    def __init__(self, place: Place) -> None:
        self.place = place
        environ = {
            **os.environb,
            b"HOME": os.fsencode(place.home),
            b"MUDROOM_STATE": os.fsencode(place.state),
            b"LC_ALL": b"C.UTF-8",
            b"MUDROOM_TRUST_POLICY": b"1",  # tests write policies as their own user would
        }
        context = Context(environ, Terminal(environ), as_json=True, project=None)
        place.state.mkdir(exist_ok=True)
        self.server = ServerState(environment_of(context, [os.fsencode(place.root)]))
        self._app: Any = build(self.server, {}, f"http://127.0.0.1:{PORT}", PORT, Login(PORT, TOKEN))

    def try_(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer, as JSON. From any thread."""
        return asyncio.run(_asked(self._app, method, "/api/v1" + path, b"" if body is None else _json(body)))

    def ask(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        """The answer. Fails if it has another status."""
        found, answer = self.try_(method, path, body)
        assert found == status, answer
        return answer

    def get(self, path: str, *, status: int = 200) -> Any:
        return self.ask("GET", path, status=status)

    def post(self, path: str, body: Any, *, status: int = 200) -> Any:
        return self.ask("POST", path, body, status=status)

    @property
    def project(self) -> str:
        """Of the only project there is."""
        (name,) = os.listdir(self.place.state / "vaults")
        return f"/projects/{name}"

    def job(self, path: str, body: Any) -> Json:
        """What has become of it in the end."""
        return self.ended(self.post(path, body, status=202))

    def ended(self, job: Json) -> Json:
        gate = threading.Event()
        until = time.monotonic() + 60
        while job["state"] == "running" and time.monotonic() < until:
            gate.wait(0.01)
            job = self.get(f"/jobs/{job['id']}")
        return job

    def landed(self, path: str, body: Any) -> Json:
        job = self.job(path, body)
        assert job["state"] == "done", job
        found: Json = job["landed"]
        return found

    # --- what a page does ---

    def fingerprint(self, fork: str) -> str:
        found: str = self.get(f"{self.project}/forks/{fork}/changes")["fingerprint"]
        return found

    def apply(self, fork: str, files: list[Json] | None = None, **more: Any) -> Json:
        reviewed = more.pop("reviewed", None) or self.fingerprint(fork)
        return self.landed(f"{self.project}/forks/{fork}/apply", {"reviewed": reviewed, "files": files, **more})


def changed(place: Place, script: str, fork: str = "agent-1") -> None:
    """What a command in a named fork does."""
    tick()
    session = place.session()
    if session.vault.find(fork) is None:
        session.forks.new(fork)
    assert session.run([b"sh", b"-c", script.encode()], fork=fork).exit_code == 0
    session.close()


def cut_off(place: Place, patch: pytest.MonkeyPatch, fork: str = "agent-1", *, begun: bool = True) -> None:
    """An apply of it is killed: when it was about to touch the project, or before that was certain (not ``begun``)."""

    def interrupted(*_words: Any, **_more: Any) -> None:
        raise KeyboardInterrupt

    where: tuple[object, str] = (Executor, "run") if begun else (apply_module, "keep_applied")
    session = place.session()
    with patch.context() as patched, session.alone("a test"), suppress(KeyboardInterrupt):
        patched.setattr(*where, interrupted)
        session.changes.apply(fork)


def pick(path: str | bytes, **more: Any) -> Json:
    return {"id": id_of(os.fsencode(path)), **more}


def _json(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


async def _asked(app: Any, method: str, path: str, body: bytes) -> tuple[int, Any]:
    """One request of ASGI's HTTP: https://asgi.readthedocs.io/en/latest/specs/www.html"""
    path, _mark, query = path.partition("?")
    headers = [(b"host", b"127.0.0.1:%d" % PORT), (b"authorization", b"Bearer " + TOKEN.encode())]
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path, "root_path": "",
        "raw_path": path.encode(), "query_string": query.encode(), "headers": headers,
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Json:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    answer = b"".join(one.get("body", b"") for one in sent[1:])
    return sent[0]["status"], json.loads(answer)
