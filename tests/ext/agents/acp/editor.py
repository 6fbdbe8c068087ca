"""An editor for tests: starts ``mudroom acp`` with an agent, and speaks the protocol line by line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
from conftest import Place

AGENT = Path(__file__).with_name("scripted_agent.py")
PYTHON = os.path.realpath(sys.executable)
Answer = Callable[[dict[str, Any]], Any]


class Editor:
    """``received``: all messages; ``asked``: the permission requests among them."""

    def __init__(self, place: Place, *options: str, agent: tuple[str, ...] = ()) -> None:
        self.place = place
        self.received: list[dict[str, Any]] = []
        self.answer: Answer = chosen("allow_once")
        self._count = 0
        script = place.root / "agent" / AGENT.name
        script.parent.mkdir(exist_ok=True)
        shutil.copy(AGENT, script)
        words = agent or (PYTHON, str(script))
        reads = ("--read", str(script.parent), "--read", sys.base_prefix)
        self.process: subprocess.Popen[bytes] = forked.popen(
            ["acp", *reads, *options, "--", *words],
            cwd=place.project, env=environment(place), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Editor:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        errors = b""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is self.process.stderr and stream is not None and not stream.closed:
                errors = stream.read()
            if stream is not None:
                stream.close()
        assert b"Traceback" not in errors, errors.decode()

    def send_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def send(self, message: dict[str, Any]) -> None:
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def line(self) -> bytes:
        """Return the next line; empty at the end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def next(self) -> dict[str, Any]:
        """Return the next message, after permission requests are answered."""
        line = self.line()
        assert line, f"mudroom has ended: {self.errors()}"
        message: dict[str, Any] = json.loads(line)
        self.received.append(message)
        if message.get("method") == "session/request_permission":
            self.send({"id": message["id"], "result": self.answer(message["params"])})
        return message

    def begin(self, method: str, params: Any) -> int:
        self._count += 1
        self.send({"id": self._count, "method": method, "params": params})
        return self._count

    def wait(self, identifier: object) -> dict[str, Any]:
        """Return the answer to a request: the whole message."""
        while True:
            message = self.next()
            if message.get("id") == identifier and "method" not in message:
                return message

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        return self.wait(self.begin(method, params))

    def open(self, **more: Any) -> str:
        """Begin a session in the project, and return its identifier."""
        self.request("initialize", protocolVersion=1, clientCapabilities={})
        answer = self.request("session/new", cwd=str(self.place.project), mcpServers=[], **more)
        session: str = answer["result"]["sessionId"]
        return session

    def start_turn(self, *actions: list[Any]) -> int:
        """Send a prompt of actions for the scripted agent."""
        prompt = [{"type": "text", "text": json.dumps(actions)}]
        return self.begin("session/prompt", {"sessionId": "s1", "prompt": prompt})

    def turn(self, *actions: list[Any]) -> Any:
        """Return the results of actions."""
        before = len(self.received)
        answer = self.wait(self.start_turn(*actions))
        assert answer.get("result", {}).get("stopReason") in ("end_turn", "cancelled"), answer
        return json.loads(next(text for text in self.texts(before) if text.startswith("[")))

    def texts_until_end(self) -> str:
        """Return the results of the turn that was begun last."""
        self.wait(self._count)
        return next(text for text in self.texts() if text.startswith("["))

    def texts(self, since: int = 0) -> list[str]:
        """Return the texts of the messages that were shown."""
        updates = [message["params"]["update"] for message in self.updates(since)]
        return [update["content"]["text"] for update in updates if update["sessionUpdate"] == "agent_message_chunk"]

    def updates(self, since: int = 0) -> list[dict[str, Any]]:
        return [message for message in self.received[since:] if message.get("method") == "session/update"]

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [message for message in self.received if message.get("method") == "session/request_permission"]

    def leave(self) -> int:
        """Close the editor's end, and return mudroom's exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait()

    def errors(self) -> str:
        """Return what mudroom has printed, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


def environment(place: Place) -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(place.home), "MUDROOM_STATE": str(place.state),
        "MUDROOM_KEEPER": "0", "LC_ALL": "C.UTF-8", "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip


def mudroom(place: Place, *words: str, code: int = 0) -> str:
    """Return the output of a command of mudroom."""
    done: subprocess.CompletedProcess[str] = forked.run(
        words, cwd=place.project, env=environment(place),
        stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    assert done.returncode == code, (words, done)
    return done.stdout + done.stderr


def chosen(kind: str) -> Answer:
    """Return the answer that chooses the option of this kind."""

    def answer(params: dict[str, Any]) -> Any:
        option = next(option for option in params["options"] if option["kind"] == kind)
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}

    return answer
