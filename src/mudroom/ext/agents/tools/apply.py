"""``apply``: bring the fork's changes into the project. Not in the table: only for a caller whose user has allowed it
(``mcp.apply`` in the policy)."""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.core.result import conflicts_to_json, text
from mudroom.core.tree.change import summarise
from mudroom.core.tree.path import show
from mudroom.ext.agents.tools import schema
from mudroom.ext.agents.tools.change import changed_paths
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.tool import Hints, Tool, ToolContext, ToolResult
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.typing import Any


def _apply(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    session, name = workspace.session, workspace.fork
    workspace.require_idle()
    paths = [path for path in changed_paths(workspace, arguments["paths"] or []) if path]
    with workspace.edits, session.alone("mudroom mcp: apply", stopping=lambda: context.say("other agents are paused")):
        look = session.changes.review(name, at_rest=True)
        if not look.changeset.changes:
            raise ToolError("there is nothing to apply", "diff shows what the fork holds")
        landed = session.changes.apply(name, paths, reviewed=look.fingerprint)
    applied, conflicts = landed.applied, landed.conflicts
    failed = landed.verified is not None and landed.verified.exit_code != 0
    summary = summarise(look.changeset.changes)
    lines = [f"applied as {applied.name}" if applied.name and not failed else "nothing was applied"]
    if landed.verified is not None:
        lines.append(f"the policy's verify command ended with {landed.verified.exit_code}")
    lines += [f"conflict: {show(conflict.path)}: {conflict.reason}" for conflict in conflicts]
    lines += [f"not applied: {show(path)}" for path in list(landed.kept)[:20]]
    lines += [f"{show(remark.path)} {remark.text}" for remark in applied.remarks[:20]]
    data = {
        "apply": applied.name or None,
        "files": summary.files,
        "conflicts": conflicts_to_json(conflicts),
        "kept": [text(path) for path in list(landed.kept)[:200]],
        "verify_exit_code": landed.verified.exit_code if landed.verified is not None else None,
    }
    return ToolResult("\n".join(lines) + "\n", data, is_error=failed)


APPLY = Tool(
    "apply",
    "Apply to the project",
    "Bring your fork's changes into the user's project, all or only some paths, merged with what the user has changed "
    "meanwhile. The user's policy allows you this. Ask first unless you were told to; mudroom undo takes it back.",
    schema.of_object(
        {"paths": schema.array("Only at and below these.", schema.string("A path.", most=4_096), most=200)}
    ),
    schema.of_object(
        {
            "apply": {"type": ["string", "null"]},
            "files": {"type": "integer"},
            "conflicts": {"type": "array", "items": {"type": "object"}},
            "kept": {"type": "array", "items": {"type": "string"}},
        },
        ("apply", "files", "conflicts"),
        is_open=True,
    ),
    Hints(destructive=True),
    _apply,
)
