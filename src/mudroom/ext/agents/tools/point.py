"""``checkpoint``, ``rollback``, ``forks``."""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.core.tree import stack
from mudroom.core.tree.change import summarise
from mudroom.ext.agents.tools import schema
from mudroom.ext.agents.tools.change import require_no_background, require_point
from mudroom.ext.agents.tools.tool import Hints, Tool, ToolContext, ToolResult
from mudroom.ext.agents.tools.workspace import ToolWorkspace, words
from mudroom.typing import Any
from mudroom.vault.forks.damage import UNREADABLE

_LISTED = 200


def _checkpoint(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del context
    session, name = workspace.session, workspace.fork
    with workspace.edits:  # a checkpoint between the two halves of an edit would hold neither
        wanted = arguments["name"]
        point = require_point(wanted) if wanted else stack.free_name(session.vault.fork(name).state, "point")
        session.forks.checkpoint(name, point)
    line = f"checkpoint {point}: rollback returns to it, diff shows what has changed since"
    return ToolResult(line + "\n", {"checkpoint": point, "fork": name})


def _rollback(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del context
    session, name = workspace.session, workspace.fork
    require_no_background(workspace)
    wanted = arguments["checkpoint"]
    with workspace.edits:
        point = require_point(wanted) if wanted else session.forks.last_checkpoint(name)
        before = session.forks.rollback(name, point)
    undo = before.name if before is not None else None
    more = f"; what was dropped is in checkpoint {undo}" if undo else "; nothing had changed since"
    return ToolResult(f"rolled back to {point}{more}\n", {"checkpoint": point, "undo": undo, "fork": name})


def _forks(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del arguments, context

    session, own = workspace.session, workspace.fork
    rows, lines = list[dict[str, Any]](), list[str]()
    for fork in session.vault.forks()[-_LISTED:]:
        try:
            record = session.forks.known_record(fork.name)
            state = fork.state
        except UNREADABLE:
            rows.append({"fork": fork.name, "own": fork.name == own, "damaged": True, "files": 0})
            lines.append(f"{fork.name}  damaged")
            continue
        summary = summarise(record.changeset.changes if record is not None else ())
        command = words(record.command) if record is not None and record.command else ""
        rows.append(
            {
                "fork": fork.name,
                "own": fork.name == own,
                "damaged": False,
                "files": summary.files,
                "parent": state.parent,
                "agent": fork.agent,
                "command": command,
                "running": fork.interrupted is not None,
            }
        )
        mark = "  (yours)" if fork.name == own else ""
        files = "1 file" if summary.files == 1 else f"{summary.files:,} files"
        lines.append(f"{fork.name}{mark}  {files}  {command[:100]}".rstrip())
    return ToolResult("\n".join(lines) + "\n", {"forks": rows})


_STRING = {"type": "string"}

POINT_TOOLS = (
    Tool(
        "checkpoint",
        "Make a checkpoint",
        "Freeze all files of your fork under a name, at no cost. Make one before anything risky; rollback returns to "
        "it. Commands that the policy finds risky make one by themselves.",
        schema.of_object(
            {"name": schema.string("Letters, digits, - _ . Default: a free name.", most=200, default="")},
        ),
        schema.of_object({"checkpoint": _STRING, "fork": _STRING}, ("checkpoint", "fork"), is_open=True),
        Hints(),
        _checkpoint,
    ),
    Tool(
        "rollback",
        "Return to a checkpoint",
        "Return all files of your fork to a checkpoint, whatever commands and edits have done since, deleted files "
        "included. What is dropped is kept as another checkpoint, so a rollback can be rolled back.",
        schema.of_object(
            {"checkpoint": schema.string("Its name. Default: the newest.", most=200, default="")},
        ),
        schema.of_object(
            {"checkpoint": _STRING, "undo": {"type": ["string", "null"]}, "fork": _STRING},
            ("checkpoint", "undo", "fork"),
            is_open=True,
        ),
        Hints(),
        _rollback,
    ),
    Tool(
        "forks",
        "List forks",
        "List the forks of this project, yours marked: the lines of work of all agents, each apart from the others.",
        schema.of_object({}),
        schema.of_object(
            {"forks": {"type": "array", "items": {"type": "object"}}},
            ("forks",),
            is_open=True,
        ),
        Hints(read_only=True, idempotent=True),
        _forks,
    ),
)
