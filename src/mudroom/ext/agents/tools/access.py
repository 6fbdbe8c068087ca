"""``why``: whether a command would be allowed, a path be visible, a host be reached, and by which rule."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mudroom.core.network.allowing import command_to_allow
from mudroom.core.network.host_reason import look_at_host
from mudroom.core.network.host_rules import show_rule
from mudroom.core.tree.path import show
from mudroom.ext.agents.core.fork_consent import look_at_names
from mudroom.ext.agents.links.fork_dial import look_at_dial
from mudroom.ext.agents.tools import schema
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.tool import Hints, Tool, ToolContext, ToolResult
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.typing import Any

_QUESTIONS = ("command", "path", "host")


def _why(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del context
    given = [name for name in _QUESTIONS if arguments[name]]
    if len(given) != 1:
        raise ToolError("why takes one of command, path and host", 'such as {"host": "pypi.org"}')
    asked = arguments[given[0]]
    if "\0" in asked:
        raise ToolError(f"{given[0]}: a NUL cannot be in it")
    data = {"command": _of_command, "path": _of_path, "host": _of_host}[given[0]](workspace, asked)
    lines = [f"{data['verdict']}: {data['reason']}", f"rule: {data['rule']}" if data["rule"] else ""]
    lines.append(f"instead: {data['instead']}" if data["instead"] else "")
    return ToolResult("\n".join(filter(None, lines)) + "\n", {"asked": asked, **data})


def _of_command(workspace: ToolWorkspace, line: str) -> dict[str, Any]:
    words = [b"bash", b"-c", line.encode("utf-8", "replace")]
    verdict = workspace.session.approval.decide_on(words, actor=workspace.actor, at_level=True)
    return {
        "verdict": verdict.action,
        "reason": f"{', '.join(verdict.classes)}: {verdict.reason}" if verdict.classes else verdict.reason,
        "rule": verdict.rule,
        "instead": verdict.instead,
    }


def _of_path(workspace: ToolWorkspace, path: str) -> dict[str, Any]:
    session = workspace.session
    raw = path.encode("utf-8", "surrogatepass")
    absolute = os.path.normpath(raw if raw.startswith(b"/") else session.project + b"/" + raw)
    reason = session.why_path(absolute)
    return {"verdict": reason.verdict, "reason": f"{reason.subject}: {reason.reason}", "rule": "", "instead": ""}


def _of_host(workspace: ToolWorkspace, host: str) -> dict[str, Any]:
    session = workspace.session
    actor = workspace.actor or session.actor
    mode = actor.settings.network_at(session.machine.granted(actor).level)
    if mode != "gate":
        verdict, reason = {
            "none": ("deny", "commands have no network at all"),
            "open": ("allow", "commands have the host's network, whatever rules say"),
        }[mode]
        return {"verdict": verdict, "reason": reason, "rule": "network.mode", "instead": ""}
    rules = session.machine.host_answers[0]()
    raw = host.encode("utf-8", "replace")

    def of_fork(label: str, port: int) -> tuple[bool, str]:
        name = workspace.fork_or_none
        fork = session.vault.find(name) if name is not None else None
        if fork is None:
            return look_at_names(label, port, actor.settings.fork_rules, actor.settings.agent_links)
        return look_at_dial(session.vault, fork, actor.settings, label, port)

    authority, decision = look_at_host(raw, rules, of_fork)
    refused = decision.action != "allow" and authority is not None
    command = command_to_allow(str(authority), decision.reason) if refused else ""
    instead = f"the user can allow it: {command}" if command else ""
    rule = show_rule(decision.rule) if decision.rule is not None else ""
    return {"verdict": decision.action, "reason": f"{show(raw)}: {decision.reason}", "rule": rule, "instead": instead}


_STRING = {"type": "string"}

ACCESS_TOOLS = (
    Tool(
        "why",
        "Ask what is allowed",
        "Ask what the user's policy says about a shell command, a path or a host, before you try or after a refusal. "
        "Nothing is run.",
        schema.of_object(
            {
                "command": schema.string("A line for the shell.", most=200_000, default=""),
                "path": schema.string("Absolute, or relative to the project.", most=4_096, default=""),
                "host": schema.string("host or host:port.", most=300, default=""),
            }
        ),
        schema.of_object(
            {"asked": _STRING, "verdict": _STRING, "reason": _STRING, "rule": _STRING, "instead": _STRING},
            ("asked", "verdict", "reason", "rule"),
            is_open=True,
        ),
        Hints(read_only=True, idempotent=True),
        _why,
    ),
)
