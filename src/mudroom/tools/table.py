"""The table of tools, and the call of one by its name. ``tool.py`` has the rules."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mudroom.errors import MudroomError
from mudroom.sandbox.client.cancellation import Cancelled
from mudroom.tools.access import ACCESS_TOOLS
from mudroom.tools.change import CHANGE_TOOLS
from mudroom.tools.command import COMMAND_TOOLS
from mudroom.tools.error import ToolError
from mudroom.tools.file import FILE_TOOLS, failing
from mudroom.tools.point import POINT_TOOLS
from mudroom.tools.schema import checked
from mudroom.tools.search import SEARCH_TOOLS
from mudroom.tools.tool import ALONE, Tool, ToolContext, ToolResult
from mudroom.tools.workspace import ToolWorkspace

TOOLS: Mapping[str, Tool] = MappingProxyType(
    {
        tool.name: tool
        for tool in (*COMMAND_TOOLS, *FILE_TOOLS, *SEARCH_TOOLS, *CHANGE_TOOLS, *POINT_TOOLS, *ACCESS_TOOLS)
    }
)


def call(workspace: ToolWorkspace, name: str, arguments: object, context: ToolContext = ALONE) -> ToolResult:
    """Return the result of a tool. ``arguments``: an object as parsed from JSON; None: no arguments. Raise Cancelled
    if the call was cancelled before its command was started; every other failure is a result."""
    tool = TOOLS.get(name)
    try:
        if tool is None:
            raise ToolError(f"there is no tool {ascii(name)[:80]}", f"the tools are {', '.join(TOOLS)}")
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
