"""A tool call of an agent: through ``mudroom mcp``, by the library, and by what has no server in between."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

from bench.limited import codex_sandbox
from bench.measure import Contestant, Finding, Lap, against, at_most_times, interleave, seconds_of
from bench.place import Scale, fill, new_place
from bench.small import program
from mudroom.ext.agents.tools.table import call
from mudroom.ext.agents.tools.workspace import ToolWorkspace

_LINE = "true"
_SESSION, _SUBPROCESS, _CODEX = "Session.run", "subprocess.run", "codex sandbox"


class _Client:
    """An MCP client on stdio. Used by one thread."""

    def __init__(self, fork: str, cwd: bytes, environ: dict[bytes, bytes]) -> None:
        words = [*program(), "mcp", "--fork", fork]
        self._server = subprocess.Popen(
            words, cwd=cwd, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        info = {"name": "bench", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})

    def ask(self, method: str, params: dict[str, Any]) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._server.stdin.write(json.dumps(message).encode() + b"\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        if "error" in answer or answer["result"].get("isError"):
            raise RuntimeError(str(answer)[:300])

    def call(self, tool: str, **arguments: Any) -> None:
        self.ask("tools/call", {"name": tool, "arguments": arguments})

    def close(self) -> None:
        self._server.communicate()


def tool_calls(base: bytes, scale: Scale) -> Iterator[Finding]:
    """``bash`` with ``true``, and a read and a write of a small file, each in a session that has run some commands."""
    with new_place(base, "tools") as place:
        fill(place.project, 10)
        environ = dict(place.environ)
        runs, writes = _Client("runs", place.project, environ), _Client("writes", place.project, environ)
        both = _Client("both", place.project, environ)
        try:
            with place.session() as session:
                workspace = ToolWorkspace(session, "library")
                shell = ["bash", "-c", _LINE]
                argv = [word.encode() for word in shell]

                def lap(name: str, action: Any) -> Contestant:
                    def contestant() -> Iterator[Lap]:
                        yield name, seconds_of(action)

                    return contestant

                def write_and_run() -> None:
                    both.call("write", path="small", content="x\n")
                    both.call("bash", command=_LINE)

                contestants: list[Contestant] = [
                    lap("mcp", lambda: runs.call("bash", command=_LINE)),
                    lap("library", lambda: call(workspace, "bash", {"command": _LINE})),
                    lap(_SESSION, lambda: session.run(argv, fork="session")),
                    lap(_SUBPROCESS, lambda: subprocess.run(shell, check=True)),
                    codex_sandbox(place, _CODEX, *shell),
                    lap("read", lambda: runs.call("read", path="small")),
                    lap("write", lambda: writes.call("write", path="small", content="x\n")),
                    lap("both", write_and_run),
                ]
                runs.call("write", path="small", content="x\n")
                found = interleave(contestants, scale.commands, warm_up=5)
        finally:
            runs.close()
            writes.close()
            both.close()
    budgets = {_SESSION: at_most_times(2)}
    others = (_SESSION, _SUBPROCESS, _CODEX)
    yield Finding("tools", "bash by MCP: true", found["mcp"], None, against(found, others, budgets))
    yield Finding("tools", "bash by the library's table: true", found["library"], None, against(found, others, budgets))
    yield Finding("tools", "read by MCP", found["read"], None, against(found, (_SUBPROCESS,)))
    yield Finding("tools", "write by MCP", found["write"], None, against(found, (_SUBPROCESS,)))
    yield Finding("tools", "write and bash by MCP, in turn", found["both"], None, against(found, (_SUBPROCESS,)))
