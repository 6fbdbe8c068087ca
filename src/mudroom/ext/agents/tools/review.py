"""``remarks``: what the user has said about the fork's changes, and the agent's answers.

Only remarks that the user has sent are shown (``mudroom send FORK --wait``), never those that are being written.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.core.registry import part
from mudroom.ext.agents.tools import schema
from mudroom.ext.agents.tools.tool import Hints, Tool, ToolContext, ToolResult
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.typing import Any


def remarks_of(workspace: ToolWorkspace) -> Any:
    """Return the ``Remarks`` of the workspace's fork (``ext/remarks/session.py``)."""
    return part("remarks", "session", "the user's remarks").Remarks(workspace.session, workspace.fork)


def _remarks(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del context
    remarks, answers = remarks_of(workspace), arguments["answers"] or []
    for answer in answers:
        remarks.answer(answer["name"], answer["text"], is_agent=True)
    text = remarks.fetched(again=arguments["again"])
    told = f"{len(answers)} answered\n" if answers else ""
    return ToolResult(
        told + (text or "[no remarks wait for you]\n"), {"remarks": text, "answered": [one["name"] for one in answers]}
    )


REVIEW_TOOLS = (
    Tool(
        "remarks",
        "Read the user's remarks",
        "Read the remarks of the user about the changes in your fork that wait for you, and answer them. Ask when your "
        "work is done and when the user says that there are remarks.",
        schema.of_object(
            {
                "answers": schema.array(
                    "What you have done about each, shown to the user beside it.",
                    schema.of_object(
                        {
                            "name": schema.string("The remark's name, such as r1.", most=64),
                            "text": schema.string("One or two sentences.", most=4_000),
                        },
                        ("name", "text"),
                    ),
                    most=200,
                ),
                "again": schema.flag("Those that you have had, too, unless the user has settled them."),
            },
            (),
        ),
        schema.of_object(
            {
                "remarks": {"type": "string", "description": "With the lines that they are about; empty: none wait."},
                "answered": {"type": "array", "items": {"type": "string"}},
            },
            ("remarks", "answered"),
            is_open=True,
        ),
        Hints(),
        _remarks,
    ),
)
