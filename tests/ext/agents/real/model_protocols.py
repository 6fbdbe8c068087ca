"""The protocols of model vendors, as far as agents use them: a request is read, an answer written.

Anthropic: https://platform.claude.com/docs/en/api/messages; OpenAI: https://platform.openai.com/docs/api-reference;
Gemini: https://ai.google.dev/api/generate-content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from typing import Protocol as TypingProtocol

from scenario import Call, Tool

Message = dict[str, Any]


class Request(NamedTuple):
    tools: tuple[Tool, ...]
    results: tuple[str, ...]
    """Of all calls of tools so far, in their order."""
    is_stream: bool
    said: str = ""
    """Everything that the agent has said so far, where a test looks for it."""


class Answer(NamedTuple):
    text: str
    call: Call | None = None
    step: int = 0


class Protocol(TypingProtocol):
    def serves(self, path: str) -> bool: ...

    def request(self, message: Message, path: str) -> Request: ...

    def whole(self, answer: Answer, model: str) -> Message: ...

    def events(self, answer: Answer, model: str) -> Iterator[tuple[str, Any]]:
        """Yield the name and data of each server-sent event; an empty name is left out."""
        ...


def text_of(content: Any) -> str:
    """Return the text in a result of a tool: a string, or parts and objects that contain strings."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return "\n".join(text_of(part) for key, part in content.items() if key != "type")
    if isinstance(content, Iterable):
        return "\n".join(text_of(part) for part in content)
    return "" if content is None else str(content)


def _tool(name: str, schema: Any) -> Tool:
    schema = schema if isinstance(schema, Mapping) else {}
    return Tool(name, schema.get("properties") or {}, tuple(schema.get("required") or ()))


class Anthropic:
    def serves(self, path: str) -> bool:
        return path.endswith("/messages")

    def request(self, message: Message, _path: str) -> Request:
        tools = tuple(_tool(tool["name"], tool.get("input_schema")) for tool in message.get("tools") or ())
        contents = [turn.get("content") for turn in message.get("messages") or ()]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        results = tuple(text_of(block.get("content")) for block in blocks if block.get("type") == "tool_result")
        return Request(tools, results, bool(message.get("stream")), text_of(contents))

    def whole(self, answer: Answer, model: str) -> Message:
        return {
            **self._start(answer, model),
            "content": [self._block(answer)],
            "stop_reason": "tool_use" if answer.call else "end_turn",
        }

    def events(self, answer: Answer, model: str) -> Iterator[tuple[str, Any]]:
        block = self._block(answer)
        if answer.call:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(answer.call.arguments)}
        else:
            empty = {**block, "text": ""}
            delta = {"type": "text_delta", "text": answer.text}
        stop = {"stop_reason": "tool_use" if answer.call else "end_turn", "stop_sequence": None}
        for event in (
            {"type": "message_start", "message": self._start(answer, model)},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ):
            yield str(event["type"]), event

    def _start(self, answer: Answer, model: str) -> Message:
        return {
            "id": f"msg_{answer.step:02d}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 9, "output_tokens": 9},
        }

    def _block(self, answer: Answer) -> Message:
        if answer.call is None:
            return {"type": "text", "text": answer.text}
        return {
            "type": "tool_use",
            "id": f"toolu_{answer.step:02d}",
            "name": answer.call.tool,
            "input": answer.call.arguments,
        }


class OpenAIChat:
    def serves(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def request(self, message: Message, _path: str) -> Request:
        functions = [tool["function"] for tool in message.get("tools") or () if tool.get("type") == "function"]
        tools = tuple(_tool(function["name"], function.get("parameters")) for function in functions)
        turns = message.get("messages") or ()
        results = tuple(text_of(turn.get("content")) for turn in turns if turn.get("role") == "tool")
        return Request(tools, results, bool(message.get("stream")))

    def whole(self, answer: Answer, model: str) -> Message:
        turn: Message = {"role": "assistant", "content": answer.text or None}
        if answer.call:
            turn["tool_calls"] = [self._call(answer, answer.call)]
        return {
            **self._start(answer, model, "chat.completion"),
            "choices": [{"index": 0, "message": turn, "finish_reason": self._end(answer)}],
            "usage": _CHAT_USAGE,
        }

    def events(self, answer: Answer, model: str) -> Iterator[tuple[str, Any]]:
        start = self._start(answer, model, "chat.completion.chunk")
        delta: Message = {"role": "assistant", "content": answer.text}
        if answer.call:
            delta = {"role": "assistant", "tool_calls": [{"index": 0, **self._call(answer, answer.call)}]}
        yield "", {**start, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield "", {**start, "choices": [{"index": 0, "delta": {}, "finish_reason": self._end(answer)}]}
        yield "", {**start, "choices": [], "usage": _CHAT_USAGE}
        yield "", "[DONE]"

    def _start(self, answer: Answer, model: str, kind: str) -> Message:
        return {"id": f"chatcmpl-{answer.step:02d}", "object": kind, "created": 1, "model": model}

    def _end(self, answer: Answer) -> str:
        return "tool_calls" if answer.call else "stop"

    def _call(self, answer: Answer, call: Call) -> Message:
        function = {"name": call.tool, "arguments": json.dumps(call.arguments)}
        return {"id": f"call_{answer.step:02d}", "type": "function", "function": function}


_CHAT_USAGE = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}


class OpenAIResponses:
    def serves(self, path: str) -> bool:
        return path.endswith("/responses")

    def request(self, message: Message, _path: str) -> Request:
        offered = message.get("tools") or ()
        tools = [_tool(tool["name"], tool.get("parameters")) for tool in offered if tool.get("type") == "function"]
        for space in offered:  # codex offers the tools of an MCP server so
            inside = space.get("tools") or () if space.get("type") == "namespace" else ()
            tools += [_tool(f"{space['name']}__{tool['name']}", tool.get("parameters")) for tool in inside]
        if any(tool.get("type") == "local_shell" for tool in offered):
            tools.append(Tool("local_shell", {"command": {"type": "array"}}))
        items = message.get("input")
        items = items if isinstance(items, list) else []
        ends = ("function_call_output", "local_shell_call_output")
        results = tuple(text_of(item.get("output")) for item in items if item.get("type") in ends)
        return Request(tuple(tools), results, bool(message.get("stream")))

    def whole(self, answer: Answer, model: str) -> Message:
        return {**self._start(answer, model), "status": "completed", "output": [self._item(answer)]}

    def events(self, answer: Answer, model: str) -> Iterator[tuple[str, Any]]:
        item = self._item(answer)
        here = {"item_id": item["id"], "output_index": 0}
        events: list[Message] = [
            {"type": "response.created", "response": {**self._start(answer, model), "status": "in_progress"}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        ]
        if item["type"] == "message":
            part = {"type": "output_text", "text": answer.text, "annotations": []}
            events += [
                {"type": "response.content_part.added", **here, "content_index": 0, "part": {**part, "text": ""}},
                {"type": "response.output_text.delta", **here, "content_index": 0, "delta": answer.text},
                {"type": "response.output_text.done", **here, "content_index": 0, "text": answer.text},
                {"type": "response.content_part.done", **here, "content_index": 0, "part": part},
            ]
        elif item["type"] == "function_call":
            events += [
                {"type": "response.function_call_arguments.delta", **here, "delta": item["arguments"]},
                {"type": "response.function_call_arguments.done", **here, "arguments": item["arguments"]},
            ]
        events += [
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": self.whole(answer, model)},
        ]
        for number, event in enumerate(events):
            yield event["type"], {**event, "sequence_number": number}

    def _start(self, answer: Answer, model: str) -> Message:
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return {
            "id": f"resp_{answer.step:02d}",
            "object": "response",
            "created_at": 1,
            "model": model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "usage": {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18, **details},
        }

    def _item(self, answer: Answer) -> Message:
        call, number = answer.call, f"{answer.step:02d}"
        if call is None:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            return {
                "type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
                "content": content,
            }  # fmt: skip
        if call.tool == "local_shell":
            action = {"type": "exec", "command": call.arguments["command"], "env": {}}
            return {
                "type": "local_shell_call", "id": f"lsh_{number}", "call_id": f"call_{number}", "status": "completed",
                "action": action,
            }  # fmt: skip
        item = {
            "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed",
            "name": call.tool, "arguments": json.dumps(call.arguments),
        }  # fmt: skip
        space, mark, name = call.tool.rpartition("__")
        return {**item, "namespace": space, "name": name} if mark else item


class Gemini:
    def serves(self, path: str) -> bool:
        return path.endswith((":generateContent", ":streamGenerateContent"))

    def request(self, message: Message, path: str) -> Request:
        declared = [
            declaration for tool in message.get("tools") or () for declaration in tool.get("functionDeclarations") or ()
        ]
        tools = tuple(
            _tool(function["name"], function.get("parametersJsonSchema") or function.get("parameters"))
            for function in declared
        )
        parts = [part for content in message.get("contents") or () for part in content.get("parts") or ()]
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        results = tuple(text_of(response.get("response")) for response in responses)
        return Request(tools, results, path.endswith(":streamGenerateContent"))

    def whole(self, answer: Answer, model: str) -> Message:
        part: Message = {"text": answer.text}
        if answer.call:
            part = {"functionCall": {"name": answer.call.tool, "args": answer.call.arguments}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}

    def events(self, answer: Answer, model: str) -> Iterator[tuple[str, Any]]:
        yield "", self.whole(answer, model)


PROTOCOLS: tuple[Protocol, ...] = (Anthropic(), OpenAIChat(), OpenAIResponses(), Gemini())
