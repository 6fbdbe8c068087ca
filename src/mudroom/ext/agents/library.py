"""A fork's tools for a model, the registry's row ``tools``: definitions in its API's form, and answers to its calls.

    tools = room.tools("openai", fork="try-1")
    reply = client.chat.completions.create(model=…, messages=messages, tools=tools.definitions)
    messages += [tools.reply(call) for call in reply.choices[0].message.tool_calls]

The tools and their promises are those of ``mudroom mcp`` (``ext/agents/tools/tool.py``). No tool applies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from mudroom.errors import UsageError
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.table import TOOLS, call, failed
from mudroom.ext.agents.tools.tool import Tool, ToolContext, ToolResult
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.library.argument import name_of
from mudroom.library.life import Life, own_cancellation
from mudroom.library.satellite import ToolReply
from mudroom.session import Session
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.library.satellite import Json, JsonObject, ToolFormat, ToolSet

AGENT = "agent"
"""The agent name for a room without an agent: the policy judges its commands."""


class ToolFormatRow(NamedTuple):
    definition: Callable[[Tool], JsonObject]
    parts: Callable[[object], tuple[object, object, object]]
    """Return name, arguments and id from a model's call."""
    message: Callable[[ToolReply, object], JsonObject]


def tools(life: Life, format: ToolFormat, fork: str | None, only: Sequence[str] | None) -> ToolSet:  # noqa: A002
    """Return tools for a room's fork. Raise UsageError if there is no such format or tool."""
    with life.call() as session:
        return RoomTools(life, session, format, name_of(fork), only)


class RoomTools:
    """A room's ``ToolSet``. Its attributes are never rebound."""

    def __init__(
        self,
        life: Life,
        session: Session,
        format: ToolFormat,  # noqa: A002
        fork: str | None,
        only: Sequence[str] | None,
    ) -> None:
        if format not in FORMATS:
            raise UsageError(f"there are no tools for {format!r}", f"write one of: {', '.join(map(repr, FORMATS))}")
        unknown = [name for name in only or () if name not in TOOLS]
        if unknown or isinstance(only, str):
            raise UsageError(
                f"there is no tool {unknown[0] if unknown else only!r}", f"the tools are {', '.join(TOOLS)}"
            )
        self._life, self._row = life, FORMATS[format]
        self.names = tuple(name for name in TOOLS if only is None or name in only)
        actor = session.actor if session.actor.agent is not None else session.actor._replace(agent=AGENT)
        self._workspace = ToolWorkspace(session, fork, actor=actor)

    def __repr__(self) -> str:
        return f"<mudroom tools {', '.join(self.names)}>"

    @property
    def fork(self) -> str:
        with self._life.call():
            return self._workspace.fork

    @property
    def definitions(self) -> list[JsonObject]:
        return [self._row.definition(TOOLS[name]) for name in self.names]

    def call(self, name: str, arguments: Mapping[str, Json] | str | None = None) -> ToolReply:
        return self._call(name, arguments)

    def reply(self, call: object) -> JsonObject:
        name, arguments, identity = self._row.parts(call)
        return self._row.message(self._call(str(name), arguments), identity)

    def _call(self, name: str, arguments: object) -> ToolReply:
        with closing(own_cancellation()) as cancellation, self._life.call(cancellation):
            context = ToolContext(cancellation, self._life.approver(cancellation))
            return _reply(self._result(name, arguments, context))

    def _result(self, name: str, arguments: object, context: ToolContext) -> ToolResult:
        if name not in self.names:
            return failed(ToolError(f"there is no tool {ascii(name)[:80]}", f"the tools are {', '.join(self.names)}"))
        if isinstance(arguments, str):
            import json

            try:
                arguments = json.loads(arguments or "{}")
            except (ValueError, RecursionError) as error:
                return failed(ToolError(f"{name}: the arguments are not JSON: {error}", "send one JSON object"))
        return call(self._workspace, name, arguments, context)


def _reply(result: ToolResult) -> ToolReply:
    return ToolReply(result.text, result.data, result.is_error)


# --- forms ---


def _plain(schema: object) -> Json:
    """Return a copy of a schema in plain dicts and lists."""
    if isinstance(schema, Mapping):
        return {str(name): _plain(value) for name, value in schema.items()}
    if isinstance(schema, (list, tuple)):
        return [_plain(value) for value in schema]
    assert schema is None or isinstance(schema, (str, int, float))
    return schema


def _openai(tool: Tool) -> JsonObject:
    """https://platform.openai.com/docs/api-reference/chat/create: ``tools``."""
    about: JsonObject = {"name": tool.name, "description": tool.description, "parameters": _plain(tool.input_schema)}
    return {"type": "function", "function": about}


def _responses(tool: Tool) -> JsonObject:
    """https://platform.openai.com/docs/api-reference/responses/create: ``tools``. ``strict``, the default there, would
    require every argument."""
    about: JsonObject = {"name": tool.name, "description": tool.description, "parameters": _plain(tool.input_schema)}
    return {"type": "function", **about, "strict": False}


def _anthropic(tool: Tool) -> JsonObject:
    """https://docs.anthropic.com/en/api/messages: ``tools``."""
    return {"name": tool.name, "description": tool.description, "input_schema": _plain(tool.input_schema)}


def _mcp(tool: Tool) -> JsonObject:
    """https://modelcontextprotocol.io/specification: ``Tool``."""
    hints: JsonObject = {
        "readOnlyHint": tool.hints.read_only,
        "destructiveHint": tool.hints.destructive,
        "idempotentHint": tool.hints.idempotent,
        "openWorldHint": False,
    }
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": _plain(tool.input_schema),
        "outputSchema": _plain(tool.output_schema),
        "annotations": hints,
    }


def _field(call: object, name: str) -> object:
    """Return a field of a model's call, which is a client object or JSON; None if it is missing."""
    return call.get(name) if isinstance(call, Mapping) else getattr(call, name, None)


def _chat_parts(call: object) -> tuple[object, object, object]:
    function = _field(call, "function")
    return _field(function, "name"), _field(function, "arguments"), _field(call, "id")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


FORMATS: Mapping[str, ToolFormatRow] = {
    "openai": ToolFormatRow(
        _openai,
        _chat_parts,
        lambda reply, identity: {"role": "tool", "tool_call_id": _text(identity), "content": reply.text},
    ),
    "openai-responses": ToolFormatRow(
        _responses,
        lambda call: (_field(call, "name"), _field(call, "arguments"), _field(call, "call_id")),
        lambda reply, identity: {"type": "function_call_output", "call_id": _text(identity), "output": reply.text},
    ),
    "anthropic": ToolFormatRow(
        _anthropic,
        lambda call: (_field(call, "name"), _field(call, "input"), _field(call, "id")),
        lambda reply, identity: {
            "type": "tool_result",
            "tool_use_id": _text(identity),
            "content": reply.text,
            "is_error": reply.is_error,
        },
    ),
    "mcp": ToolFormatRow(
        _mcp,
        lambda call: (_field(call, "name"), _field(call, "arguments"), None),
        lambda reply, _identity: {
            "content": [{"type": "text", "text": reply.text}],
            "isError": reply.is_error,
            **({} if reply.is_error else {"structuredContent": reply.data}),
        },
    ),
}
