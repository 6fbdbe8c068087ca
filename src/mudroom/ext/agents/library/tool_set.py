"""The tools of a fork for a model: definitions in the form of its API, and the answers to its calls.

    tools = room.tools("openai", fork="try-1")
    reply = client.chat.completions.create(model=…, messages=messages, tools=tools.definitions)
    messages += [tools.reply(call) for call in reply.choices[0].message.tool_calls]

The tools, and the promises about them, are those of ``mudroom mcp`` (``ext/agents/tools/tool.py``). No tool applies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mudroom.errors import UsageError
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.table import TOOLS, call, failed
from mudroom.ext.agents.tools.tool import Tool, ToolContext, ToolResult
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.library.life import Life
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.session import Session
from mudroom.typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    ToolFormat: TypeAlias = Literal["openai", "openai-responses", "anthropic", "mcp"]
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
    JsonObject: TypeAlias = dict[str, Json]

AGENT = "agent"
"""The agent whose commands they are if the room has none: the policy judges them."""


class ToolReply(NamedTuple):
    """The result of a tool."""

    text: str
    """For the model."""
    data: Mapping[str, Json]
    """For the program: it fits the tool's output schema, unless ``is_error`` is set."""
    is_error: bool


class ToolFormatRow(NamedTuple):
    definition: Callable[[Tool], JsonObject]
    parts: Callable[[object], tuple[object, object, object]]
    """Return name, arguments and id of a model's call."""
    message: Callable[[ToolReply, object], JsonObject]


class ToolSet:
    """Thread-safe: its attributes are never rebound. ``definitions`` are new values that the caller may change."""

    def __init__(
        self,
        life: Life,
        session: Session,
        format: ToolFormat,  # noqa: A002
        fork: str | None,
        only: Sequence[str] | None,
    ) -> None:
        """``Room.tools`` makes it."""
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
        """The fork's name. Without one given, it is made at the first call."""
        with self._life.call():
            return self._workspace.fork

    @property
    def definitions(self) -> list[JsonObject]:
        """The tools as the API takes them."""
        return [self._row.definition(TOOLS[name]) for name in self.names]

    def call(self, name: str, arguments: Mapping[str, Json] | str | None = None) -> ToolReply:
        """Call a tool. ``arguments``: an object, or its JSON text. What a model has sent wrongly is a reply, too; an
        exception is a failure of the caller's, such as a room that is closed."""
        return self.call_until(name, arguments, Cancellation())

    def call_until(self, name: str, arguments: object, cancellation: Cancellation) -> ToolReply:
        try:
            with self._life.call(cancellation):
                context = ToolContext(cancellation, self._life.approver(cancellation))
                return _reply(self._result(name, arguments, context))
        finally:
            cancellation.close()

    def reply(self, call: object) -> JsonObject:
        """Answer a model's call, as its API or its Python client gives it, with a message for that API."""
        name, arguments, identity = self.parts(call)
        return self.message(self.call_until(str(name), arguments, Cancellation()), identity)

    def parts(self, call: object) -> tuple[object, object, object]:
        return self._row.parts(call)

    def message(self, reply: ToolReply, identity: object) -> JsonObject:
        return self._row.message(reply, identity)

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
    """https://platform.openai.com/docs/api-reference/responses/create: ``tools``. ``strict`` would be the default, and
    would want every argument to be required."""
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
    """Return a field of a model's call: of an object of its client, or of JSON. None if it is missing."""
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
