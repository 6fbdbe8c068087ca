"""Who answers which message, and what is changed in one that passes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.command.verdict import Verdict
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.ext.agents.acp.message import AcpMessage, parse
from mudroom.ext.agents.acp.routing import (
    ANSWERED,
    MOST_CALLS,
    MOST_REMEMBERED_BYTES,
    MOST_SHOWING,
    MOST_SHOWN,
    AgentCall,
    Answered,
    Cancel,
    MessageRouter,
    Pass,
    Step,
    Surroundings,
    TurnEnd,
)
from mudroom.ext.agents.acp.session_text import AgentPlace, fenced, summary
from tiers import each

PLACE = AgentPlace("f", "/p", True, "gemini")
AGENTS = (
    "session/update", "session/request_permission", "elicitation/create", "elicitation/complete", "mcp/connect",
    "mcp/message", "_ext", "future/thing",
)  # fmt: skip
EDITORS = (
    "authenticate", "logout", "session/cancel", "session/list", "session/set_mode", "session/close", "_ext",
    "nes/start", "document/didOpen", "$/cancel_request", "session/prompt",
)  # fmt: skip


def router(place: AgentPlace = PLACE, verdict: Verdict | None = None, terminal: str | None = None) -> MessageRouter:
    return MessageRouter(
        place,
        Surroundings(
            lambda named: named if named.startswith("/p") else None,
            lambda _command: verdict or Verdict(reason="", rule="r"),
            lambda identifier: terminal if identifier == "ours" else None,
        ),
    )


def message(**body: Any) -> AcpMessage:
    found = parse(json.dumps({"jsonrpc": "2.0", **body}).encode())
    assert isinstance(found, AcpMessage)
    return found


def sent(step: Step) -> dict[str, Any]:
    assert isinstance(step, Pass | TurnEnd)
    body: dict[str, Any] = json.loads(step.line)
    return body


@each("method", sorted(ANSWERED))
def test_calls_are_answered_and_never_passed(method: str) -> None:
    asked = message(id=1, method=method, params={})
    assert router().from_agent(asked) == [AgentCall(asked)]
    assert router().from_agent(message(method=method, params={})) == [], "a notification is not performed by the editor"


@each("method", ["fs/delete", "terminal/write", "fs/", "terminal/x/y"])
def test_calls_of_the_future_are_refused(method: str) -> None:
    (step,) = router().from_agent(message(id=1, method=method))
    assert isinstance(step, Pass)
    assert step.to == "agent"
    assert sent(step)["error"]["code"] == -32601


@given(st.sampled_from(AGENTS[2:]), st.booleans(), st.dictionaries(st.text(), st.integers()))
def test_all_else_of_the_agent_passes(method: str, is_request: bool, params: dict[str, int]) -> None:
    passed = message(**({"id": "x"} if is_request else {}), method=method, params=params)
    assert router().from_agent(passed) == [Pass("editor", passed.raw)]


@given(st.sampled_from(EDITORS), st.booleans(), st.dictionaries(st.text(), st.integers()))
def test_all_else_of_the_editor_passes(method: str, is_request: bool, params: dict[str, int]) -> None:
    passed = message(**({"id": "x"} if is_request else {}), method=method, params=params)
    assert router().from_editor(passed) == [Pass("agent", passed.raw)]


def test_answers_pass_but_those_to_mudrooms_questions() -> None:
    here = router()
    here.ask("secret")
    other = message(id="other", result={"a": 1})
    assert here.from_editor(other) == [Pass("agent", other.raw)]
    own = message(id="secret", result={"a": 1})
    assert here.from_editor(own) == [Answered("secret", {"a": 1})]
    assert here.from_editor(own) == [Pass("agent", own.raw)], "once"


def test_a_call_is_cancelled_and_other_cancellations_pass() -> None:
    here = router()
    asked = message(id=1, method="terminal/wait_for_exit", params={})
    here.from_agent(asked)
    cancel = message(method="$/cancel_request", params={"requestId": 1})
    assert here.from_agent(cancel) == [Cancel("1")]
    here.answered(asked)
    assert here.from_agent(cancel) == [Pass("editor", cancel.raw)]
    odd = message(method="$/cancel_request", params={"requestId": {"a": 1}})
    assert here.from_agent(odd) == [Pass("editor", odd.raw)]


@each("identifier", [2, "1", None, "mudroom-1"])
def test_an_answer_to_no_request_is_dropped(identifier: Any) -> None:
    here = router()
    here.from_editor(message(id=1, method="initialize", params={"protocolVersion": 1}))
    login = {"protocolVersion": 1, "authMethods": [{"id": "a", "type": "terminal"}]}
    assert here.from_agent(message(id=identifier, result=login)) == []


@pytest.mark.parametrize("identifier", [0.0, -0.0])
def test_an_answer_by_another_spelling_of_its_number_is_amended(identifier: float) -> None:
    """JavaScript takes it for the answer to 0."""
    here = router()
    here.from_editor(message(id=0, method="initialize", params={"protocolVersion": 1}))
    login = {"protocolVersion": 1, "authMethods": [{"id": "a", "type": "terminal"}]}
    (step,) = here.from_agent(message(id=identifier, result=login))
    assert sent(step)["result"]["authMethods"] == []
    assert here.from_agent(message(id=0, result=login)) == [], "once"


def test_a_call_with_the_id_of_an_open_one_is_refused() -> None:
    here = router()
    first = message(id=1, method="terminal/wait_for_exit", params={})
    assert here.from_agent(first) == [AgentCall(first)]
    (step,) = here.from_agent(message(id=1.0, method="fs/read_text_file", params={}))
    assert "open already" in sent(step)["error"]["message"]
    here.answered(first)
    assert here.from_agent(first) == [AgentCall(first)]


def test_only_so_many_calls_are_open() -> None:
    here = router()
    for number in range(MOST_CALLS):
        assert isinstance(here.from_agent(message(id=number, method="terminal/wait_for_exit"))[0], AgentCall)
    (step,) = here.from_agent(message(id=MOST_CALLS, method="terminal/wait_for_exit"))
    assert "wait for one" in sent(step)["error"]["message"]


# --- versions ---


@each(("inside", "version", "passed"), [(True, 1, 1), (True, 2, 2), (False, 2, 1), (False, 1, 1)])
def test_an_agent_outside_is_offered_version_1_alone(inside: bool, version: int, passed: int) -> None:
    here = router(PLACE._replace(inside=inside))
    asked = message(id=1, method="initialize", params={"protocolVersion": version, "info": {"name": "e"}})
    (step,) = here.from_editor(asked)
    assert sent(step)["params"]["protocolVersion"] == passed
    assert ("clientCapabilities" in sent(step)["params"]) == (passed == 1)
    assert sent(step)["params"]["info"] == {"name": "e"}


def test_an_agent_outside_that_speaks_no_version_1_is_refused() -> None:
    here = router(PLACE._replace(inside=False))
    here.from_editor(message(id=1, method="initialize", params={"protocolVersion": 2}))
    (step,) = here.from_agent(message(id=1, result={"protocolVersion": 2}))
    assert "without --outside" in sent(step)["error"]["message"]


def test_in_version_2_turns_pass_as_they_are() -> None:
    here = router()
    here.from_editor(message(id=1, method="initialize", params={"protocolVersion": 2}))
    here.from_agent(message(id=1, result={"protocolVersion": 2}))
    here.from_editor(message(id=2, method="session/new", params={"cwd": "/p", "mcpServers": []}))
    here.from_agent(message(id=2, result={"sessionId": "s"}))
    prompt = message(id=3, method="session/prompt", params={"sessionId": "s"})
    assert here.from_editor(prompt) == [Pass("agent", prompt.raw)]
    done = message(id=3, result={"messageId": "m"})
    assert here.from_agent(done) == [Pass("editor", done.raw)]
    asked = message(id=4, method="session/request_permission", params={"sessionId": "s", "title": "T", "options": []})
    assert "stays in the fork f" in sent(here.from_agent(asked)[0])["params"]["description"]


# --- logins ---

LOGINS = [
    {"id": "key", "name": "Key"},
    {"id": "tui", "name": "TUI", "type": "terminal", "args": ["login"]},
    {"id": "meta", "name": "Login", "_meta": {"terminal-auth": {"command": "/bin/sh", "args": ["-c", "x"]}, "a": 1}},
]


@pytest.mark.parametrize(("inside", "kept"), [(True, LOGINS[:1]), (False, LOGINS)])
@pytest.mark.parametrize("version", [1, 2])
def test_an_agent_inside_names_no_command_that_the_editor_runs(inside: bool, kept: Any, version: int) -> None:
    here = router(PLACE._replace(inside=inside))
    here.from_editor(message(id=1, method="initialize", params={"protocolVersion": version}))
    result = {"protocolVersion": version if inside else 1, "authMethods": LOGINS, "x": 1}
    (step,) = here.from_agent(message(id=1, result=result))
    assert sent(step)["result"] == {**result, "authMethods": kept}


def test_a_missing_login_says_where_to_log_in() -> None:
    here = router()
    here.from_editor(message(id=1, method="session/new", params={"cwd": "/p", "mcpServers": []}))
    (step,) = here.from_agent(message(id=1, error={"code": -32000, "message": "Authentication required", "data": 1}))
    assert sent(step)["error"] == {
        "code": -32000, "data": 1,
        "message": "Authentication required (log in outside the editor: mudroom agent run -- gemini)",
    }  # fmt: skip
    here.from_editor(message(id=2, method="session/new", params={"cwd": "/p", "mcpServers": []}))
    other = message(id=2, error={"code": -32603, "message": "x"})
    assert here.from_agent(other) == [Pass("editor", other.raw)]


# --- turns ---


def test_a_first_turn_has_a_first_word_and_each_turn_an_end() -> None:
    here = router()
    here.from_editor(message(id=1, method="session/new", params={"cwd": "/p", "mcpServers": []}))
    here.from_agent(message(id=1, result={"sessionId": "s"}))
    prompt = message(id=2, method="session/prompt", params={"sessionId": "s"})
    first = here.from_editor(prompt)
    assert "fork `f`" in sent(first[0])["params"]["update"]["content"]["text"]
    assert first[1] == Pass("agent", prompt.raw)
    done = message(id=2, result={"stopReason": "end_turn"})
    assert here.from_agent(done) == [TurnEnd("s", done.raw)]
    again = message(id=3, method="session/prompt", params={"sessionId": "s"})
    assert here.from_editor(again) == [Pass("agent", again.raw)]


def test_open_requests_are_answered_when_the_agent_ends() -> None:
    here = router()
    here.from_editor(message(id=1, method="session/prompt", params={"sessionId": "s"}))
    here.from_editor(message(id="1", method="_x"))
    (twice,) = here.from_editor(message(id=1, method="_y"))
    assert sent(twice)["error"]["message"] == "a request with this id is open already"
    lines = [json.loads(line) for line in here.close(-32603, "gone")]
    assert [(line["id"], line["error"]["message"]) for line in lines] == [(1, "gone"), ("1", "gone")]
    assert here.close(-32603, "gone") == []


# --- permissions ---


def permission(**call: Any) -> AcpMessage:
    params = {
        "sessionId": "s",
        "toolCall": {"toolCallId": "c", **call},
        "options": [
            {"optionId": "y", "name": "Y", "kind": "allow_once"},
            {"optionId": "n", "name": "N", "kind": "reject_once"},
        ],
    }
    return message(id=1, method="session/request_permission", params=params)


def text_of(content: list[Any]) -> str:
    text: str = content[-1]["content"]["text"]
    return text


def test_the_verdict_stands_behind_what_the_tool_call_shows() -> None:
    here = router()
    shown = [{"type": "diff", "path": "/p/a", "oldText": "a", "newText": "b"}]
    update = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "content": shown}
    told = message(method="session/update", params={"sessionId": "s", "update": update})
    assert here.from_agent(told) == [Pass("editor", told.raw)]
    content = sent(here.from_agent(permission())[0])["params"]["toolCall"]["content"]
    assert content[:-1] == shown, "a request without content would replace it"
    assert text_of(content) == "mudroom: its effect stays in the fork f."
    own = sent(here.from_agent(permission(content=[], rawInput={"command": "ls"}))[0])["params"]["toolCall"]
    assert len(own["content"]) == 1
    assert "the policy allows it (r)" in text_of(own["content"])


@pytest.mark.parametrize("call", [{"rawInput": {"command": "x"}}, {"kind": "execute", "title": "x (does x)"}])
def test_what_is_denied_is_answered_and_shown(call: dict[str, Any]) -> None:
    here = router(verdict=Verdict("deny", rule="policy.yaml:2", reason="no\x1b[31m", instead="y"))
    to_agent, to_editor = here.from_agent(permission(**call))
    assert isinstance(to_agent, Pass)
    assert to_agent.to == "agent"
    assert sent(to_agent)["result"] == {"outcome": {"outcome": "selected", "optionId": "n"}}
    text = text_of(sent(to_editor)["params"]["update"]["content"])
    assert text == "mudroom refused it: no\\x1b[31m (policy.yaml:2); instead: y."


@each("options", [[], None, 7, [{"kind": "reject_once"}], [{"optionId": "a", "kind": "allow_once"}]])
def test_a_denial_without_an_option_to_reject(options: Any) -> None:
    here = router(verdict=Verdict("deny"))
    params = {"sessionId": "s", "toolCall": {"toolCallId": "c", "rawInput": {"command": "x"}}, "options": options}
    step = here.from_agent(message(id=1, method="session/request_permission", params=params))[0]
    assert sent(step)["result"] == {"outcome": {"outcome": "cancelled"}}


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(("sessionId", "toolCall", "options", "content", "rawInput", "command", "title", "kind", "update",
                     "sessionUpdate", "toolCallId", "type", "terminalId", "cwd", "mcpServers", "name", "fs",
                     "additionalDirectories", "clientCapabilities", "protocolVersion", "requestId")), x)))  # fmt: skip
def test_parameters_of_any_shape_raise_nothing(params: Any) -> None:
    here = router(verdict=Verdict("deny"), terminal="t")
    for method in ("session/request_permission", "session/update", "$/cancel_request"):
        here.from_agent(message(id=1, method=method, params=params))
        here.from_agent(message(method=method, params=params))
    for number, method in enumerate(("initialize", "session/new", "session/load", "session/prompt", "session/fork")):
        here.from_editor(message(id=number, method=method, params=params))
        here.from_agent(message(id=number, result=params))
    here.changed("ours")


# --- terminals ---


def test_a_terminal_of_mudrooms_is_text_and_any_other_passes() -> None:
    here = router(terminal="shown")
    content = [{"type": "terminal", "terminalId": "ours"}, {"type": "terminal", "terminalId": "theirs"}]
    update = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "content": content}
    (step,) = here.from_agent(message(method="session/update", params={"sessionId": "s", "update": update}))
    got = sent(step)["params"]["update"]["content"]
    assert got == [{"type": "content", "content": {"type": "text", "text": "shown"}}, content[1]]
    (again,) = here.changed("ours")
    assert json.loads(again)["params"]["update"] == {
        "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": got,
    }  # fmt: skip
    assert here.changed("theirs") == []


def show(here: MessageRouter, call: str, *content: Any) -> list[Any]:
    """Let the agent show a tool call; return what the editor is shown of its content."""
    update = {"sessionUpdate": "tool_call", "toolCallId": call, "title": "t", "content": list(content)}
    (step,) = here.from_agent(message(method="session/update", params={"sessionId": "s", "update": update}))
    shown: list[Any] = sent(step)["params"]["update"]["content"]
    return shown


def remembers(here: MessageRouter, call: str) -> bool:
    """Return whether a request without content is shown with the tool call's own."""
    asked = message(
        id=1, method="session/request_permission", params={"sessionId": "s", "toolCall": {"toolCallId": call}}
    )
    (step,) = here.from_agent(asked)
    return len(sent(step)["params"]["toolCall"]["content"]) > 1


OURS = {"type": "terminal", "terminalId": "ours"}


def redrawn(here: MessageRouter) -> list[str]:
    """Return the tool calls that are shown anew with a terminal's output."""
    return [json.loads(line)["params"]["update"]["toolCallId"] for line in here.changed("ours")]


def test_only_so_many_tool_calls_are_remembered_and_the_last_few_shown_anew() -> None:
    here = router(terminal="shown")
    for number in range(3000):
        show(here, str(number), OURS)
    assert [remembers(here, str(number)) for number in (1999, 2000, 2999)] == [False, True, True]
    assert redrawn(here) == [str(number) for number in range(3000 - MOST_SHOWING, 3000)]
    show(here, "2996", OURS)
    assert redrawn(here) == ["2997", "2998", "2999", "2996"]


def test_only_so_many_bytes_of_tool_calls_are_remembered() -> None:
    here = router(terminal="shown")
    for number in range(6):
        show(here, str(number), OURS, {"text": "x" * (MOST_REMEMBERED_BYTES // 4)})
    assert [number for number in range(6) if remembers(here, str(number))] == [3, 4, 5]
    assert redrawn(here) == [], "too much to be sent again with each output"
    assert show(here, "large", OURS, {"text": "x" * MOST_REMEMBERED_BYTES})[0]["type"] == "content"
    assert not remembers(here, "large")


def test_a_terminal_that_is_named_in_many_items_is_shown_once() -> None:
    """A line holds a million items, and a text of 16,384 characters for each would be 16 GB."""
    here, made = router(), list[str]()

    def text(identifier: str) -> str | None:
        made.append(identifier)
        return "text" if identifier.startswith("ours") else None

    here._around = here._around._replace(terminal=text)
    theirs = {"type": "terminal", "terminalId": "theirs"}
    shown = show(here, "c", *[OURS] * 20_000, theirs, theirs, *({**OURS, "terminalId": f"ours{n}"} for n in range(99)))
    assert len([item for item in shown if item["type"] == "content"]) == MOST_SHOWN
    assert [item for item in shown if item["type"] == "terminal"] == [theirs, theirs]
    assert len(made) < 500
    assert len(here.changed("ours")) == 1


# --- words ---


def test_a_summary_names_files_and_commands_that_work() -> None:
    entry = Entry("file", 0o644, 1, b"", 1, 1, 1, 0, 0, 1, 1)
    changes = [Change(path, "added", None, entry) for path in (b"a.py", b".git/refs/heads/main", b"b`c")]
    text = summary(PLACE, changes, 3)
    assert "2 files are changed in the fork `f`: `a.py`, `bc`; commits: `mudroom diff f --commits`" in text
    assert "`mudroom fork new f-turn3 --from f`, then `mudroom apply f-turn3`" in text
    for name in (b".git/packed-refs", b"sub/.git/refs/tags/v1", b".git/modules/m/reftable/1.ref"):
        assert "commits:" in summary(PLACE, [changes[0], changes[0]._replace(path=name)], 1)
    for name in (b".git/opencode", b".git/index", b"refs/x"):
        assert "commits:" not in summary(PLACE, [changes[0], changes[0]._replace(path=name)], 1)
    outside = summary(PLACE._replace(inside=False), changes[:1], 1)
    assert "1 file is changed" in outside
    assert outside.endswith("Apply: `mudroom apply f`")


def test_a_fence_holds_any_output() -> None:
    text = fenced("x\n```", "```\r\n````\x1b]0;title\x07\x1b[2J\x00end", "")
    fence = "`" * 5
    assert text == f"{fence}console\n$ x ```\n```\n````end\n{fence}"
    assert len(fenced("x", "y" * 100_000, "")) < 20_000
