"""The turn at a hunk: what an agent's conversation says, which was written in a sandbox."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernel_calls import within
from mudroom.core.text.hunk import Hunk, hunks
from mudroom.ext.reasons.core.step import Step
from mudroom.ext.reasons.transcript import Conversation, parse_conversation
from mudroom.ext.reasons.turn import turn_of

DAY = "2026-11-30T12:00:"
BEGAN = 1796040000 * 10**9
STEP = Step(1, "run", ("claude",), "claude", BEGAN, BEGAN + 60 * 10**9, 0, {}, 0)


def hunk(old: str, new: str) -> Hunk:
    return hunks(old.encode(), new.encode())[0]


def lines(*records: Any) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


def claude_call(second: int, tool: str, **given: Any) -> dict[str, Any]:
    content = [{"type": "tool_use", "id": f"t{second}", "name": tool, "input": given}]
    message = {"role": "assistant", "model": "m-1", "content": content}
    return {"type": "assistant", "timestamp": f"{DAY}{second:02}Z", "message": message}


def claude_prompt(second: int, text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "timestamp": f"{DAY}{second:02}Z", "message": {"role": "user", "content": text}} | more


CLAUDE = lines(
    claude_prompt(1, "caveat", isMeta=True),
    claude_prompt(
        2, [{"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "one"}]
    ),
    claude_call(3, "Read", file_path="/p/a.py"),
    claude_call(4, "Edit", file_path="/p/a.py", old_string="minus", new_string="    return a + b"),
    claude_prompt(5, [{"type": "tool_result", "tool_use_id": "t4", "content": "done"}]),
    claude_prompt(6, "two"),
    claude_call(7, "Bash", command="make"),
    claude_prompt(8, [{"type": "tool_result", "tool_use_id": "t7", "content": "done"}]),
)
CODEX = lines(
    {"timestamp": f"{DAY}01Z", "type": "session_meta", "payload": {"id": "x", "timestamp": f"{DAY}01Z"}},
    {
        "timestamp": f"{DAY}02Z",
        "type": "response_item",
        "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<env>x</env>"}]},
    },
    {
        "timestamp": f"{DAY}02Z",
        "type": "response_item",
        "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]},
    },
    {
        "timestamp": f"{DAY}04Z",
        "type": "response_item",
        "payload": {
            "type": "custom_tool_call",
            "name": "apply_patch",
            "input": "*** Begin Patch\n*** Update File: a.py\n-minus\n+    return a + b\n*** End Patch",
        },
    },
    {"timestamp": f"{DAY}05Z", "type": "response_item", "payload": {"type": "custom_tool_call_output"}},
)
GEMINI = json.dumps({
    "sessionId": "x",
    "messages": [
        {"id": "1", "timestamp": f"{DAY}02Z", "type": "user", "content": "one"},
        {
            "id": "2",
            "timestamp": f"{DAY}04Z",
            "type": "gemini",
            "content": "",
            "model": "m-1",
            "toolCalls": [
                {"id": "w", "name": "write_file", "args": {"file_path": "/p/a.py", "content": "x\n    return a + b\n"}}
            ],
        },
        {"id": "3", "timestamp": f"{DAY}05Z", "type": "gemini", "content": "done"},
    ],
}).encode()  # fmt: skip
OPENCODE = lines(
    {"role": "user", "time": {"created": 1}, "createdAt": BEGAN / 1e9 + 2, "content": "one"},
    {
        "type": "tool",
        "tool": "edit",
        "createdAt": (BEGAN + 4 * 10**9) / 1e6,
        "state": {"input": {"filePath": "/p/a.py", "newString": "    return a + b"}},
    },
)
WANTED = hunk("def add(a, b):\n    minus\n", "def add(a, b):\n    return a + b\n")


@pytest.mark.parametrize(
    ("name", "data", "tool"),
    [
        ("s.jsonl", CLAUDE, "Edit"),
        ("s.jsonl", CODEX, "apply_patch"),
        ("s.json", GEMINI, "write_file"),
        ("s.jsonl", OPENCODE, "edit"),
    ],
    ids=["claude", "codex", "gemini", "opencode"],
)
def test_the_call_that_wrote_the_lines_is_found_with_its_turn_and_prompt(name: str, data: bytes, tool: str) -> None:
    conversation = parse_conversation("agent", name, data)
    turn = turn_of([conversation], [STEP], b"a.py", WANTED, BEGAN + 4 * 10**9)
    assert turn is not None and conversation.skipped == 0
    assert (turn.call.tool, turn.call.turn, turn.call.prompt) == (tool, 1, "one")
    assert turn.by == ("path", "content", "time")


def test_claudes_prompts_are_counted_without_results_and_reminders() -> None:
    found = parse_conversation("claude", "s.jsonl", CLAUDE)
    assert [(call.turn, call.prompt, call.tool) for call in found.calls] == [
        (1, "one", "Read"),
        (1, "one", "Edit"),
        (2, "two", "Bash"),
    ]
    assert {call.model for call in found.calls} == {"m-1"}
    turn = turn_of([found], [STEP], b"a.py", WANTED, 0)
    assert turn is not None and turn.reads == ("/p/a.py",) and turn.by == ("path", "content")


def test_time_alone_counts_only_if_one_call_was_at_work() -> None:
    found = parse_conversation("claude", "s.jsonl", CLAUDE)
    other = hunk("", "generated\n")
    turn = turn_of([found], [STEP], b"build/out", other, BEGAN + 7_500_000_000)
    assert turn is not None and (turn.call.tool, turn.by) == ("Bash", ("time",))
    twice = parse_conversation("codex", "t.jsonl", lines(claude_call(7, "Bash", command="make"), claude_prompt(9, "x")))
    assert turn_of([found, twice], [STEP], b"build/out", other, BEGAN + 7_500_000_000) is None


def test_a_shell_in_another_directory_names_the_last_part_of_the_path() -> None:
    calls = lines(claude_call(4, "Bash", command="cd src && make > out.txt"), claude_prompt(5, "x"))
    turn = turn_of(
        [parse_conversation("c", "s.jsonl", calls)], [STEP], b"src/out.txt", hunk("", "made\n"), BEGAN + 4 * 10**9
    )
    assert turn is not None and turn.by == ("name", "time")


def test_a_hunk_of_two_edits_is_of_the_last_that_has_some_of_its_lines() -> None:
    calls = lines(
        claude_call(3, "Edit", file_path="/p/a.py", new_string="first line"),
        claude_call(4, "Edit", file_path="/p/a.py", new_string="second line"),
        claude_call(5, "Edit", file_path="/p/b.py", new_string="first line\nsecond line"),
    )
    found = parse_conversation("c", "s.jsonl", calls)
    turn = turn_of([found], [STEP], b"a.py", hunk("", "first line\nsecond line\n"), 0)
    assert turn is not None and turn.by == ("path", "some lines") and "second" in turn.call.text


def test_a_call_outside_the_commands_time_is_not_its_reason() -> None:
    found = parse_conversation("claude", "s.jsonl", CLAUDE)
    late = STEP._replace(began=BEGAN + 3600 * 10**9, ended=BEGAN + 3601 * 10**9)
    assert turn_of([found], [late], b"a.py", WANTED, 0) is None
    assert turn_of([found], [], b"a.py", WANTED, 0) is None


def test_a_path_or_a_brace_alone_is_not_enough() -> None:
    found = parse_conversation("claude", "s.jsonl", lines(claude_call(4, "Bash", command="cat a.py }")))
    assert turn_of([found], [STEP], b"a.py", hunk("", "}\n"), 0) is None


@pytest.mark.parametrize(
    ("data", "skipped"),
    [
        (b"\xff\xfe\0 no json\n{", 2),
        (b"[" * 100_000, 1),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, 1),
        (lines({"name": "Edit", "input": {"a": "b"}}), 1),
        (lines(None, 1, "x", [], {}, {"type": "user"}, {"role": "user", "content": {"text": 3}}), 0),
        (lines({"timestamp": "9999-99-99", "name": "x", "input": 1}, {"timestamp": 1e400, "name": [], "input": {}}), 0),
        (lines({"timestamp": "0001-01-01T00:00:00+14:00", "role": "user", "content": "x"}), 0),
        (b'{"timestamp": NaN, "name": "x", "input": {"p": "q"}}', 1),
    ],
)
def test_a_hostile_conversation_is_read_as_far_as_it_can_be(data: bytes, skipped: int) -> None:
    found = parse_conversation("claude", "s.jsonl", data)
    assert isinstance(found, Conversation)
    assert found.skipped == skipped or (found.skipped == 0 and b'{"a":' in data)
    assert turn_of([found], [STEP], b"a.py", WANTED, 0) is None


def test_a_large_conversation_is_read_in_its_time() -> None:
    many = lines(*(claude_call(4, "Edit", file_path=f"/p/{number}", new_string="x" * 200) for number in range(20_100)))
    found = within(10_000_000, lambda: parse_conversation("claude", "s.jsonl", many))
    assert len(found.calls) == 20_000 and found.skipped == 100
