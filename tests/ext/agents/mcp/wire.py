"""A server of ``mudroom mcp`` in a process of its own, and a client that speaks to it by hand. No test is here."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import forked
from conftest import Place, environment

Message = dict[str, Any]


def mudroom(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a verb as the user does."""
    return forked.run(
        words,
        cwd=place.project,
        env=environment(place),
        stdin=subprocess.DEVNULL,
        timeout=80,
    )


class Stdio:
    """A client on a server's stdin and stdout. Used by one thread."""

    def __init__(self, place: Place, *words: str) -> None:
        self.process = forked.popen(
            ["mcp", *words],
            cwd=place.project,
            env=environment(place),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._count = 0
        self.heard: list[Message] = []
        """Messages that were no answer to a request."""

    def raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def say(self, message: Message) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def hear(self) -> Message:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read().decode() if self.process.stderr is not None else ""
        message: Message = json.loads(line)
        return message

    def begin(self, method: str, **params: Any) -> int:
        """Send a request; return its id."""
        self._count += 1
        self.say({"id": self._count, "method": method, "params": params})
        return self._count

    def answer(self, identity: Any) -> Message:
        """Return the answer to a request. Others are kept, in ``heard``."""
        while True:
            message = self.hear()
            if message.get("id") == identity and "method" not in message:
                return message
            self.heard.append(message)

    def ask(self, method: str, **params: Any) -> Any:
        answer = self.answer(self.begin(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, **params: Any) -> Any:
        return self.answer(self.begin(method, **params))["error"]

    def initialize(self, revision: str = "2025-06-18", name: str = "tester", **capabilities: Any) -> Any:
        result = self.ask(
            "initialize",
            protocolVersion=revision,
            capabilities=capabilities,
            clientInfo={"name": name, "version": "1"},
        )
        self.say({"method": "notifications/initialized"})
        return result

    def start(self, tool: str, /, **arguments: Any) -> int:
        return self.begin("tools/call", name=tool, arguments=arguments)

    def call(self, tool: str, /, **arguments: Any) -> Any:
        return self.ask("tools/call", name=tool, arguments=arguments)

    def hang_up(self) -> int:
        """Close stdin; return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(60)
        self.close()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def server(place: Place, *words: str) -> Iterator[Stdio]:
    """Yield a client of a server that is not initialized yet."""
    client = Stdio(place, *words)
    try:
        yield client
    finally:
        client.close()


class Web:
    """A server on HTTP. Requests are made by hand."""

    def __init__(self, place: Place, *words: str) -> None:
        self.process = forked.popen(
            ["mcp", "--http", "0", "--json", *words],
            cwd=place.project,
            env=environment(place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.report: Message = json.loads(self.process.stdout.readline())
        self.url, self.token = self.report["url"], self.report["token"]
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])
        self.headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }

    def send(
        self, body: bytes | Message, method: str = "POST", path: str = "/mcp", /, **headers: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body. A header of None is left out."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        every = {name: value for name, value in (self.headers | named).items() if value is not None}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if isinstance(body, bytes) else json.dumps({"jsonrpc": "2.0", **body}).encode()
            connection.request(method, path, data, every)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def initialize(self, revision: str = "2025-06-18") -> str:
        """Open a session; return its id."""
        client = {"name": "web", "version": "1"}
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": client}
        status, headers, _body = self.send({"id": 0, "method": "initialize", "params": params})
        assert status == 200
        return headers["mcp-session-id"]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def web(place: Place, *words: str) -> Iterator[Web]:
    served = Web(place, *words)
    try:
        yield served
    finally:
        served.close()
