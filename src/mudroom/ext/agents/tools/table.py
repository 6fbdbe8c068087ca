"""The tool table, and calls by a tool's name. ``tool.py`` has the rules."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mudroom.errors import MudroomError
from mudroom.ext.agents.tools.access import ACCESS_TOOLS
from mudroom.ext.agents.tools.change import CHANGE_TOOLS
from mudroom.ext.agents.tools.command import COMMAND_TOOLS
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.file import FILE_TOOLS, failing
from mudroom.ext.agents.tools.point import POINT_TOOLS
from mudroom.ext.agents.tools.review import REVIEW_TOOLS
from mudroom.ext.agents.tools.schema import checked
from mudroom.ext.agents.tools.search import SEARCH_TOOLS
from mudroom.ext.agents.tools.tool import ALONE, Tool, ToolContext, ToolResult
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.sandbox.client.cancellation import Cancelled

_ALL = (
    *COMMAND_TOOLS, *FILE_TOOLS, *SEARCH_TOOLS, *CHANGE_TOOLS, *POINT_TOOLS, *ACCESS_TOOLS, *REVIEW_TOOLS,
)  # fmt: skip
TOOLS: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in _ALL})


def call(
    workspace: ToolWorkspace,
    name: str,
    arguments: object,
    context: ToolContext = ALONE,
    tools: Mapping[str, Tool] = TOOLS,
) -> ToolResult:
    """Return a tool's result. ``arguments``: an object as parsed from JSON; None: no arguments. Raise Cancelled if the
    call was cancelled before its command was started; every other failure is a result."""
    tool = tools.get(name)
    try:
        if tool is None:
            raise ToolError(f"there is no tool {ascii(name)[:80]}", f"the tools are {', '.join(tools)}")
        return tool.function(workspace, checked(tool.input_schema, arguments or {}, name), context)
    except ToolError as error:
        return failed(error)
    except Cancelled:
        raise
    except MudroomError as error:
        return failed(ToolError(error.message, error.hint))
    except OSError as error:
        return failed(failing(error))


def failed(error: ToolError) -> ToolResult:
    text = f"{error.message}\n{error.instead}" if error.instead else error.message
    return ToolResult(text, {"error": error.message, "instead": error.instead, **error.data}, is_error=True)
