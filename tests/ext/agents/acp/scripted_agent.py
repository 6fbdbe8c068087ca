"""An agent that does what it is told: the text of a prompt is a list of actions in JSON, and its results come back as
one message. Without libraries, so it runs in any sandbox.

Run as a program; ``editor.py`` starts it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any


class Agent:
    def __init__(self) -> None:
        self._count = 0
        self._cwd = ""
        self._session = "s1"
        self._known: dict[str, Any] = {}
        self.cancelled: list[Any] = []
        self.seen: list[bytes] = []

    def send(self, message: Any) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        os.write(1, line + b"\n")

    def receive(self) -> Any:
        line = sys.stdin.buffer.readline()
        if not line:
            sys.exit(0)
        self.seen.append(line)
        return json.loads(line)

    def begin(self, method: str, params: Any) -> str:
        self._count += 1
        identifier = f"a{self._count}"
        self.send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
        return identifier

    def wait(self, identifier: str) -> Any:
        while identifier not in self._known:
            message = self.receive()
            if "method" in message:
                self.cancelled.append(message)
            else:
                self._known[message["id"]] = message.get("result", message.get("error"))
        return self._known.pop(identifier)

    def call(self, method: str, **params: Any) -> Any:
        return self.wait(self.begin(method, {"sessionId": self._session, **params}))

    def run(self) -> None:
        while True:
            message = self.receive()
            method, params = message.get("method"), message.get("params", {})
            if method == "initialize":
                self.answer(message, {"protocolVersion": 1, "agentCapabilities": {}, "_meta": {"got": params}})
            elif method in ("session/new", "session/load"):
                self._cwd = params["cwd"]
                self.answer(message, {"sessionId": self._session, "_meta": {"got": params}})
            elif method == "session/prompt":
                self.prompt(message, json.loads(params["prompt"][0]["text"]))
            elif "id" in message and method is not None:
                self.answer(message, {"method": method, "params": params})

    def answer(self, message: Any, result: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def say(self, text: str) -> None:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        self.notify("session/update", {"sessionId": self._session, "update": update})

    def notify(self, method: str, params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def prompt(self, message: Any, actions: list[list[Any]]) -> None:
        self.cancelled.clear()
        results = [self.perform(name, words) for name, *words in actions]
        self.say(json.dumps(results))
        self.answer(message, {"stopReason": "cancelled" if self.cancelled else "end_turn"})

    def perform(self, name: str, words: list[Any]) -> Any:
        return getattr(self, f"do_{name}")(*words)

    # --- actions ---

    def do_call(self, method: str, params: Any) -> Any:
        return self.call(method, **params)

    def do_read(self, path: str, more: dict[str, Any] | None = None) -> Any:
        return self.call("fs/read_text_file", path=os.path.join(self._cwd, path), **(more or {}))

    def do_write(self, path: str, content: str) -> Any:
        return self.call("fs/write_text_file", path=os.path.join(self._cwd, path), content=content)

    def do_lines(self) -> list[str]:
        """Return all lines of the editor so far."""
        return [line.decode() for line in self.seen]

    def do_own_write(self, path: str, content: str) -> None:
        with open(os.path.join(self._cwd, path), "w", encoding="utf-8") as stream:
            stream.write(content)

    def do_own_read(self, path: str) -> str:
        with open(os.path.join(self._cwd, path), encoding="utf-8") as stream:
            return stream.read()

    def do_shell(self, command: str, *args: str) -> Any:
        """Run a command to its end, and return its output with how it ended."""
        made = self.call("terminal/create", command=command, args=list(args))
        if "terminalId" not in made:
            return made
        terminal = made["terminalId"]
        ended = self.call("terminal/wait_for_exit", terminalId=terminal)
        shown = self.call("terminal/output", terminalId=terminal)
        self.call("terminal/release", terminalId=terminal)
        return {**shown, "end": ended}

    def do_shown_shell(self, command: str) -> Any:
        """The same, and a tool call shows the terminal."""
        terminal = self.call("terminal/create", command=command)["terminalId"]
        update = {
            "sessionUpdate": "tool_call",
            "toolCallId": "shown",
            "title": command,
            "content": [{"type": "terminal", "terminalId": terminal}],
        }
        self.notify("session/update", {"sessionId": self._session, "update": update})
        self.call("terminal/wait_for_exit", terminalId=terminal)
        self.call("terminal/release", terminalId=terminal)
        return terminal

    def do_long_shell(self, command: str) -> Any:
        """Start a command, tell its first output, kill it when the turn is cancelled."""
        terminal = self.call("terminal/create", command=command)["terminalId"]
        while not self.call("terminal/output", terminalId=terminal)["output"]:
            pass
        self.say("running")
        while not self.cancelled:
            self.cancelled.append(self.receive())
        killed = self.call("terminal/kill", terminalId=terminal)
        ended = self.call("terminal/wait_for_exit", terminalId=terminal)
        return [killed, ended]

    def do_many_waits(self, count: int) -> Any:
        """Wait for one command so often at once, then end it. Return the answers."""
        terminal = self.call("terminal/create", command="sleep 300")["terminalId"]
        params = {"sessionId": self._session, "terminalId": terminal}
        waits = [self.begin("terminal/wait_for_exit", params) for _wait in range(count)]
        self.call("terminal/output", terminalId=terminal)
        self.say("waiting")
        self.call("session/request_permission", toolCall={"toolCallId": "go"}, options=[])
        self.call("terminal/kill", terminalId=terminal)
        return [self.wait(identifier) for identifier in waits]

    def do_many_shells(self, count: int) -> Any:
        """Run so many commands and release none. Return the first and the last output."""
        made: list[Any] = []
        for number in range(count):
            terminal = self.call("terminal/create", command="echo", args=[str(number)])
            self.call("terminal/wait_for_exit", **terminal)
            made.append(terminal)
        return [self.call("terminal/output", **made[0]), self.call("terminal/output", **made[-1])]

    def do_calls_beside(self, command: str, count: int) -> Any:
        """Begin a command and so many writes and reads at once, then end it. Return its end, and the errors."""
        made = self.begin("terminal/create", {"sessionId": self._session, "command": command})
        calls = []
        for number in range(count):
            place = {"sessionId": self._session, "path": os.path.join(self._cwd, f"beside-{number % 3}")}
            calls.append(self.begin("fs/write_text_file", {**place, "content": str(number)}))
            calls.append(self.begin("fs/read_text_file", place))
        terminal = self.wait(made)
        results = [self.wait(identifier) for identifier in calls]
        self.call("terminal/kill", **terminal)
        end = self.call("terminal/wait_for_exit", **terminal)
        return [end, [result for result in results if result and set(result) != {"content"}]]

    def do_cancelled_wait(self, command: str) -> Any:
        """Wait for a command, and cancel that call."""
        terminal = self.call("terminal/create", command=command)["terminalId"]
        waiting = self.begin("terminal/wait_for_exit", {"sessionId": self._session, "terminalId": terminal})
        self.notify("$/cancel_request", {"requestId": waiting})
        answer = self.wait(waiting)
        self.call("terminal/release", terminalId=terminal)
        return answer

    def do_permission(self, title: str, command: Any, **more: Any) -> Any:
        call = {"toolCallId": title, "title": title, "kind": "execute", "rawInput": {"command": command}, **more}
        options = [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        return self.call("session/request_permission", toolCall=call, options=options)

    def do_permissions(self, count: int) -> Any:
        """Ask so often at once, then take the answers."""
        params = {
            "sessionId": self._session,
            "toolCall": {"toolCallId": "many", "title": "t", "rawInput": {"command": "ls"}},
            "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
        }
        asked = [self.begin("session/request_permission", params) for _time in range(count)]
        return [self.wait(identifier)["outcome"]["optionId"] for identifier in asked].count("yes")

    def do_send(self, line: str) -> None:
        self.send(line.encode("utf-8", "surrogateescape"))

    def do_seen(self) -> str:
        """Return the last line of the editor that is not an answer to a call of ours."""
        return self.seen[-1].decode()

    def do_receive(self) -> Any:
        return self.receive()

    def do_exit(self, code: int) -> None:
        os.write(2, b"the last words of the agent\n")
        sys.exit(code)

    def do_die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def do_pid(self) -> int:
        return os.getpid()


if __name__ == "__main__":
    Agent().run()
