"""The tool interface that front doors for agents share: ``mudroom mcp`` and the library.

    workspace = ToolWorkspace(session, "try-1")                    # one fork in an open session
    tool = TOOLS["edit"]                                       # table.py
    tool.name, tool.description, tool.input_schema, tool.output_schema, tool.hints
    result = call(workspace, "edit", {"path": "a.py", "old_string": "1", "new_string": "2"})
    result.text, result.data, result.is_error

Rules of this folder:
1. A tool works on its workspace's fork only. Nothing reaches the project: no tool applies.
2. ``call`` never raises for a model's input: an unknown tool, invalid arguments, a refused command and a missing file
   are results with ``is_error`` and a text that says what is allowed instead. An exception is a mudroom failure
   (MudroomError, OSError), which ``call`` turns into such a result, too; only ``Cancelled`` and exceptions that are not
   an ``Exception`` pass through.
3. ``text`` is for a model, ``data`` for programs; each is complete without the other. ``data`` fits ``output_schema``
   unless ``is_error`` is set.
4. A result is bounded (``excerpt.py``), and says how to get the rest.
5. Arguments are checked by the schema before a tool sees them (``schema.py``); unknown names are refused.
6. Paths are relative to the project, or absolute inside it. They are resolved in the fork's view alone (``path.py``).
7. Any number of threads may call one workspace's tools at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.approval.approval import CommandApprover
    from mudroom.ext.agents.tools.workspace import ToolWorkspace
    from mudroom.sandbox.client.cancellation import Cancellation


Schema = Mapping[str, Any]
"""A JSON Schema in the subset that ``schema.py`` checks."""


class Hints(NamedTuple):
    """A tool's properties, as MCP's annotations with the same names."""

    read_only: bool = False
    destructive: bool = False
    """Whether it may remove data from the fork that no checkpoint holds."""
    idempotent: bool = False


class ToolResult(NamedTuple):
    text: str
    data: Mapping[str, Any] = {}
    is_error: bool = False


class ToolContext(NamedTuple):
    """A call's caller."""

    cancellation: Cancellation | None = None
    """Ends the call's command. None: it cannot be cancelled."""
    approver: CommandApprover | None = None
    """Asked if the policy wants a command approved; None: the session's approver."""
    on_output: Callable[[str, bytes], None] | None = None
    """Called with ``stdout`` or ``stderr`` and the bytes that a command has printed, in the call's thread."""
    on_progress: Callable[[str], None] | None = None
    """Called with a line about the call's present step."""

    def say(self, line: str) -> None:
        if self.on_progress is not None:
            self.on_progress(line)

    @property
    def is_cancelled(self) -> bool:
        return self.cancellation is not None and self.cancellation.is_set


ALONE = ToolContext()
"""For a caller that only waits for the result."""


class Tool(NamedTuple):
    name: str
    title: str
    description: str
    """For a model: what it does, that it is staged, and its limits."""
    input_schema: Schema
    output_schema: Schema
    hints: Hints
    function: Callable[[ToolWorkspace, Mapping[str, Any], ToolContext], ToolResult]
    """Called with arguments that fit the schema, defaults filled in."""


# --- bounded texts ---

MOST = 30_000
"""Characters in a result's text. Claude Code warns when an MCP tool returns 10,000 tokens, and cuts at 25,000."""
_HEAD = 10_000
LONGEST_LINE = 2_000
"""Characters of a line that ``read`` and ``grep`` show."""


def middle_out(text: str, rest: str) -> tuple[str, bool]:
    """Return the text and whether it was cut. ``rest``: how to get the rest, with ``{start}`` for the first omitted
    character."""
    if len(text) <= MOST:
        return text, False
    start = text.rfind("\n", _HEAD // 2, _HEAD) + 1 or _HEAD
    tail = len(text) - (MOST - start)
    end = text.find("\n", tail, tail + (MOST - start) // 2) + 1 or tail
    how = rest.format(start=start)
    return f"{text[:start]}[… {end - start:,} characters are left out: {how}]\n{text[end:]}", True


def first_part(text: str, rest: str, most: int = MOST) -> tuple[str, bool]:
    """Return whole lines from the beginning, and whether the text was cut. ``rest``: how to get the rest."""
    if len(text) <= most:
        return text, False
    end = text.rfind("\n", 0, most) + 1 or most
    return f"{text[:end]}[… {len(text) - end:,} characters are left out: {rest}]\n", True


def short_line(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:LONGEST_LINE]}… ({len(line) - LONGEST_LINE:,} characters more)"


def decoded(data: bytes) -> str:
    """Return output or file content as text that JSON can hold."""
    return data.decode("utf-8", "replace")
