"""The scripted model server: each protocol, whole and as events, with requests made by hand."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from model_server import ModelServer
from scenario import TOOLS, NoTool, Step, Tool, call_of, ten_steps

STEPS = (
    Step("look", "ls -la"),
    Step("edit", "sed -i s/1/2/ /p/a.py", "edit", "/p/a.py", "1", "2"),
    Step("finish", content="Done."),
)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(STEPS) as server:
        yield server


def post(server: ModelServer, path: str, message: Any) -> tuple[int, str]:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    request = urllib.request.Request(server.url + path, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def data_of(text: str) -> list[Any]:
    """Return the data of server-sent events."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(item) for item in data if item != "[DONE]"]


# --- a request of each protocol with so many results, and the call in the answer: (tool, arguments), or the text ---


def anthropic(results: list[str], stream: bool) -> tuple[str, dict[str, Any]]:
    turns: list[dict[str, Any]] = [{"role": "user", "content": "fix it"}]
    for number, result in enumerate(results):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {}}
        content = [{"type": "text", "text": result}] if number % 2 else result
        back = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": content}
        turns += [{"role": "assistant", "content": [block]}, {"role": "user", "content": [back]}]
    tools = [{"name": "Bash", "input_schema": SCHEMA}]
    return "/v1/messages", {"model": "m", "messages": turns, "tools": tools, "stream": stream}


def anthropic_answer(text: str, stream: bool) -> Any:
    if not stream:
        block = json.loads(text)["content"][0]
        return block["text"] if block["type"] == "text" else (block["name"], block["input"])
    events = data_of(text)
    assert [event["type"] for event in events] == [
        "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
        "message_stop",
    ]  # fmt: skip
    delta = events[2]["delta"]
    if delta["type"] == "text_delta":
        return delta["text"]
    assert events[4]["delta"]["stop_reason"] == "tool_use"
    return events[1]["content_block"]["name"], json.loads(delta["partial_json"])


def chat(results: list[str], stream: bool) -> tuple[str, dict[str, Any]]:
    turns: list[dict[str, Any]] = [{"role": "user", "content": "fix it"}]
    turns += [
        {"role": "tool", "tool_call_id": f"call_{number}", "content": text} for number, text in enumerate(results)
    ]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]
    return "/v1/chat/completions", {"model": "m", "messages": turns, "tools": tools, "stream": stream}


def chat_answer(text: str, stream: bool) -> Any:
    if stream:
        assert text.endswith("data: [DONE]\n\n")
        chunks = data_of(text)
        turn, end = chunks[0]["choices"][0]["delta"], chunks[1]["choices"][0]["finish_reason"]
    else:
        choice = json.loads(text)["choices"][0]
        turn, end = choice["message"], choice["finish_reason"]
    if "tool_calls" not in turn:
        assert end == "stop"
        return turn["content"]
    assert end == "tool_calls"
    function = turn["tool_calls"][0]["function"]
    return function["name"], json.loads(function["arguments"])


def responses(results: list[str], stream: bool) -> tuple[str, dict[str, Any]]:
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "fix it"}]
    items += [
        {"type": "function_call_output", "call_id": f"call_{number}", "output": text}
        for number, text in enumerate(results)
    ]
    tools = [{"type": "function", "name": "shell_command", "parameters": SCHEMA}, {"type": "web_search"}]
    return "/v1/responses", {"model": "m", "input": items, "tools": tools, "stream": stream}


def responses_answer(text: str, stream: bool) -> Any:
    if stream:
        events = data_of(text)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[0]["type"] == "response.created"
        assert events[-1]["type"] == "response.completed"
        item = events[-2]["item"]
    else:
        item = json.loads(text)["output"][0]
    if item["type"] == "message":
        return item["content"][0]["text"]
    return item["name"], json.loads(item["arguments"])


def gemini(results: list[str], stream: bool) -> tuple[str, dict[str, Any]]:
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "fix it"}]}]
    for text in results:
        back = {"functionResponse": {"name": "run_shell_command", "response": {"output": text}}}
        contents.append({"role": "user", "parts": [back]})
    declared = [{"name": "run_shell_command", "parametersJsonSchema": SCHEMA}]
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/m:{verb}", {"contents": contents, "tools": [{"functionDeclarations": declared}]}


def gemini_answer(text: str, stream: bool) -> Any:
    message = data_of(text)[0] if stream else json.loads(text)
    part = message["candidates"][0]["content"]["parts"][0]
    if "text" in part:
        return part["text"]
    return part["functionCall"]["name"], part["functionCall"]["args"]


SPOKEN = {
    "anthropic": (anthropic, anthropic_answer, "Bash"),
    "chat": (chat, chat_answer, "bash"),
    "responses": (responses, responses_answer, "shell_command"),
    "gemini": (gemini, gemini_answer, "run_shell_command"),
}
Ask = Callable[[list[str], bool], tuple[str, dict[str, Any]]]
Read = Callable[[str, bool], Any]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("ask", "read", "tool"), SPOKEN.values(), ids=SPOKEN)
def test_a_scenario_in_each_protocol(server: ModelServer, ask: Ask, read: Read, tool: str, stream: bool) -> None:
    answers: list[Any] = []
    for results in ([], ["a.py"], ["a.py", "edited"]):
        status, text = post(server, *ask(results, stream))
        assert status == 200
        answers.append(read(text, stream))
    assert answers == [(tool, {"command": "ls -la"}), (tool, {"command": "sed -i s/1/2/ /p/a.py"}), "Done."]
    assert server.results == {0: "a.py", 1: "edited"}
    assert server.played() == ["look", "edit", "finish"]
    assert len(server.tool_seconds()) == 2
    assert server.errors == []


@pytest.mark.parametrize(("ask", "read", "tool"), SPOKEN.values(), ids=SPOKEN)
def test_a_repeated_request_has_the_same_answer(server: ModelServer, ask: Ask, read: Read, tool: str) -> None:
    first = [post(server, *ask(["a.py"], True)) for _ in range(2)]
    assert first[0] == first[1]
    assert server.played() == ["look"]


@pytest.mark.parametrize(("ask", "read", "tool"), SPOKEN.values(), ids=SPOKEN)
def test_a_request_without_tools_plays_no_step(server: ModelServer, ask: Ask, read: Read, tool: str) -> None:
    path, message = ask([], False)
    status, text = post(server, path, {name: value for name, value in message.items() if name != "tools"})
    assert (status, read(text, False)) == (200, "A short title")
    assert server.played() == []


@pytest.mark.parametrize(("ask", "read", "tool"), SPOKEN.values(), ids=SPOKEN)
def test_no_known_tool_is_an_error_that_names_them(server: ModelServer, ask: Ask, read: Read, tool: str) -> None:
    path, message = ask([], True)
    status, text = post(server, path, json.loads(json.dumps(message).replace(f'"{tool}"', '"look_at_moon"')))
    assert status == 400
    assert "no known shell tool among: look_at_moon" in json.loads(text)["error"]["message"]
    assert "look_at_moon" in server.errors[0]


def test_the_conversation_counts_not_the_number_of_requests(server: ModelServer) -> None:
    _status, text = post(server, *chat(["a", "b"], False))
    assert chat_answer(text, False) == "Done."
    assert server.played() == ["look", "edit", "finish"]


def test_bad_requests_are_answered(server: ModelServer) -> None:
    assert post(server, "/v1/messages", b"{")[0] == 400
    assert post(server, "/v1/embeddings", {})[0] == 404
    assert len(server.errors) == 2


def test_tokens_are_counted_and_models_listed(server: ModelServer) -> None:
    assert json.loads(post(server, "/v1/messages/count_tokens", anthropic([], False)[1])[1])["input_tokens"] > 0
    assert json.loads(post(server, "/v1beta/models/m:countTokens", {"contents": []})[1])["totalTokens"] >= 0
    with urllib.request.urlopen(server.url + "/v1/models", timeout=60) as answer:
        assert json.load(answer)["data"][0]["id"] == "scripted"
    assert server.paths[-1] == "GET /v1/models"


EDIT = Tool("Edit", {"file_path": {}, "old_string": {}, "new_string": {}, "why": {}}, ("file_path", "why"))
SHELL = Tool("bash", {"command": {"type": "string"}, "description": {"type": "string"}}, ("command", "description"))


def test_an_own_tool_is_preferred_to_the_shell() -> None:
    call = call_of(STEPS[1], [SHELL, EDIT])
    assert call.tool == "Edit"
    assert call.arguments == {
        "file_path": "/p/a.py", "old_string": "1", "new_string": "2", "why": "as the user asked",
    }  # fmt: skip


def test_the_shell_plays_what_has_no_tool() -> None:
    assert call_of(STEPS[1], [SHELL, Tool("edit", {"patch": {}})]).arguments["command"] == STEPS[1].command
    with pytest.raises(NoTool, match="among: Edit; known: Bash"):
        call_of(STEPS[0], [EDIT])


@pytest.mark.parametrize("name", TOOLS["shell"])
def test_every_shell_gets_its_command(name: str) -> None:
    listed = Tool(name, {"command": {"type": ["array", "null"]}}, ("command",))
    assert call_of(STEPS[0], [listed]).arguments == {"command": ["bash", "-c", "ls -la"]}
    assert call_of(STEPS[0], [Tool(name, {"cmd": {"type": "STRING"}})]).arguments == {"cmd": "ls -la"}


def test_ten_steps() -> None:
    steps = ten_steps("/p", "/h/.ssh/id_test", "/other/secret", "http://127.0.0.1:9/")
    assert [step.name for step in steps] == [
        "look", "read", "edit", "test", "remove", "steal", "exfil", "write", "commit", "finish",
    ]  # fmt: skip
    assert [step.name for step in steps if not step.command] == ["finish"]
