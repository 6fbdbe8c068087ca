"""A scripted model: a server on loopback that speaks the protocols of model vendors and plays a scenario.

    with ModelServer(steps) as server:
        run an agent whose base URL is server.url
    server.results  # what came back from each step's tool

Protocols: Anthropic Messages (and count_tokens), OpenAI chat completions and responses, Gemini generateContent and
streamGenerateContent; each whole and as server-sent events.

The conversation in a request says which step is next: as many as it has results of tools. So a repeated request gets
the same answer. A request without tools (a title, a summary) is answered by a text and plays no step. A request whose
tools are unknown is answered with status 400, which names them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from model_protocols import PROTOCOLS, Answer, Protocol, Request
from scenario import NoTool, Step, call_of


class Reply(NamedTuple):
    """A request that played a step."""

    step: int
    asked: float
    """time.monotonic() of the request."""
    answered: float


class ModelServer:
    """Serve from ``with`` to its end. ``results``: texts by the step's number; ``errors``: of requests that could not
    be answered; ``finished``: the last step was played; ``texts``: answers to requests without tools, in order."""

    def __init__(self, steps: Sequence[Step], texts: Sequence[str] = ()) -> None:
        self.steps = tuple(steps)
        self.texts = list(texts)
        self.results: dict[int, str] = {}
        self.errors: list[str] = []
        self.paths: list[str] = []
        """Method and path of all requests."""
        self.withheld: set[str] = set()
        """Paths that GET does not find."""
        self.asked: list[str] = []
        """The bodies of the requests that played a step, in order."""
        self.finished = False
        self.replies: list[Reply] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def played(self) -> list[str]:
        """Return the names of the steps whose result came back, and of the last if it was sent."""
        with self._lock:
            names = [self.steps[number].name for number in sorted(self.results) if number < len(self.steps)]
            return [*names, self.steps[-1].name] if self.finished else names

    def tool_seconds(self) -> list[float]:
        """Return the seconds between each answer with a call and the next request, which brings its result."""
        with self._lock:
            first = {reply.step: reply for reply in reversed(self.replies)}
        return [first[step + 1].asked - first[step].answered for step in sorted(first) if step + 1 in first]

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request. Raise NoTool if it offers no tool that can play the step."""
        asked = time.monotonic()
        with self._lock:
            for number, result in enumerate(request.results):
                self.results.setdefault(number, result)
        if not request.tools:
            return Answer(text=self.texts.pop(0) if self.texts else "A short title")
        number = min(len(request.results), len(self.steps) - 1)
        step = self.steps[number]
        call = call_of(step, request.tools) if step.command else None
        with self._lock:
            self.finished |= number == len(self.steps) - 1
            self.replies.append(Reply(number, asked, time.monotonic()))
        return Answer(step.content, call, number) if call is None else Answer("", call, number)

    def fail(self, message: str) -> None:
        with self._lock:
            self.errors.append(message)

    def note(self, path: str) -> None:
        with self._lock:
            self.paths.append(path)


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def log_message(self, *_words: object) -> None:
            """Print no line for each request."""

        def do_HEAD(self) -> None:  # the name is of BaseHTTPRequestHandler
            server.note(f"HEAD {self.path}")
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            server.note(f"GET {self.path}")
            if self.path in server.withheld:
                self._send(404, {})
                return
            models = [{"id": "scripted", "object": "model", "type": "model", "name": "models/scripted"}]
            self._send(200, {"object": "list", "data": models, "models": [], "has_more": False})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            server.note(f"POST {self.path}")
            try:
                message = json.loads(body or b"{}")
            except ValueError as error:
                self._refuse(400, f"{path}: the body is not JSON: {error}")
                return
            if path.endswith(("/count_tokens", ":countTokens")):
                self._send(200, {"input_tokens": len(body) // 4, "totalTokens": len(body) // 4})
                return
            protocol = next((protocol for protocol in PROTOCOLS if protocol.serves(path)), None)
            if protocol is None:
                self._refuse(404, f"{path}: no protocol of this server")
                return
            self._answer(protocol, protocol.request(message, path), message, body)

        def _answer(self, protocol: Protocol, request: Request, message: dict[str, Any], body: bytes) -> None:
            try:
                answer = server.answer(request)
            except NoTool as error:
                self._refuse(400, str(error))
                return
            if request.tools:
                server.asked.append(body.decode())
            model = str(message.get("model", "scripted"))
            if not request.is_stream:
                self._send(200, protocol.whole(answer, model))
                return
            self._send_events(protocol.events(answer, model))

        def _refuse(self, status: int, message: str) -> None:
            server.fail(message)
            error = {"type": "invalid_request_error", "message": message, "code": status, "status": "INVALID_ARGUMENT"}
            self._send(status, {"type": "error", "error": error})

        def _send(self, status: int, content: dict[str, Any]) -> None:
            self._write(status, "application/json", json.dumps(content).encode())

        def _send_events(self, events: Iterator[tuple[str, Any]]) -> None:
            lines = []
            for name, data in events:
                text = data if isinstance(data, str) else json.dumps(data)
                lines.append((f"event: {name}\n" if name else "") + f"data: {text}\n\n")
            self._write(200, "text/event-stream", "".join(lines).encode())

        def _write(self, status: int, kind: str, content: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the agent has ended

    return Handler
