"""Permission requests of an agent and commands that need approval: mudroom's verdict, in the editor."""

from __future__ import annotations

import json
from typing import Any

import pytest
from editor import PYTHON, Editor, chosen, mudroom
from serve_start import FORK, Start, start

from conftest import Place
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.ext.agents.acp.question import EditorForHosts, Questions
from tiers import daily

__all__ = ["start"]  # fixtures


def policy(place: Place, text: str) -> None:
    (place.home / ".config/mudroom").mkdir(parents=True)
    (place.home / ".config/mudroom/policy.yaml").write_text(text)


DENY = "commands:\n  rules:\n    - {pattern: git push, action: deny, instead: git fetch}\n"


def test_a_permission_request_has_mudrooms_verdict(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    results = editor.turn(["permission", "list", "ls"], ["permission", "remove", ["rm", "-rf", "/"]])
    assert [result["outcome"]["optionId"] for result in results] == ["yes", "yes"]
    texts = [asked["params"]["toolCall"]["content"][-1]["content"]["text"] for asked in editor.asked]
    assert texts[0].startswith(f"mudroom: its effect stays in the fork {FORK}; the policy allows it")
    assert "require_approval" in texts[1]
    assert editor.asked[0]["params"]["toolCall"]["rawInput"] == {"command": "ls"}


def test_what_the_policy_denies_is_answered_by_mudroom(place: Place, start: Start) -> None:
    policy(place, DENY)
    editor = start()
    editor.open()
    result = editor.turn(["permission", "push", "git push origin"], ["shell", "git push origin"])
    assert result[0] == {"outcome": {"outcome": "selected", "optionId": "no"}}
    assert editor.asked == []
    shown = next(m["params"]["update"] for m in editor.updates() if m["params"]["update"].get("toolCallId") == "push")
    assert "mudroom refused it" in shown["content"][-1]["content"]["text"]
    assert result[1]["end"] == {"exitCode": 126, "signal": None}
    assert result[1]["output"].startswith("mudroom: refused: ")


@pytest.mark.parametrize("kind", ["allow_once", "reject_once"])
def test_a_command_that_needs_approval_is_asked_in_the_editor(place: Place, start: Start, kind: str) -> None:
    editor = start()
    editor.open()
    editor.answer = chosen(kind)
    result = editor.turn(["shell", "rm -rf /opt/nothing; echo went on"])[0]
    assert len(editor.asked) == 1
    assert editor.asked[0]["params"]["toolCall"]["rawInput"]["command"].endswith("'rm -rf /opt/nothing; echo went on'")
    assert editor.asked[0]["params"]["sessionId"] == "s1"
    if kind == "allow_once":
        assert (result["output"], result["end"]["exitCode"]) == ("went on\n", 0)
    else:
        assert result["end"]["exitCode"] == 126


def test_nobody_is_asked_with_never(place: Place, start: Start) -> None:
    editor = start("--ask", "never")
    editor.open()
    assert editor.turn(["shell", "rm -rf /opt/nothing"])[0]["end"]["exitCode"] == 126
    assert editor.asked == []


@pytest.mark.slow
def test_a_thousand_permission_requests(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    assert editor.turn(["permissions", 1000]) == [1000]
    assert len(editor.asked) == 1000


REACH = f"{PYTHON} -c 'import urllib.request as r; r.urlopen(\"http://example.test/\")' 2>&1 | tail -n 1"


@pytest.mark.slow
@pytest.mark.parametrize("kind", daily(["reject_once", "reject_always"]))
def test_a_host_is_asked_about_in_the_editor(place: Place, kind: str) -> None:
    with Editor(place) as editor:
        editor.open()
        editor.answer = chosen(kind)
        result = editor.turn(["shell", REACH])[0]
        assert "403" in result["output"] or "refused" in result["output"].lower(), result
        call = editor.asked[0]["params"]["toolCall"]
        assert call["title"] == "Reach example.test:80"
        editor.turn(["shell", REACH])
        assert len(editor.asked) == 1, "the gate keeps the answer as long as the sandbox lives"
        assert editor.leave() == 0
    assert ("example.test" in mudroom(place, "net", "ls")) == (kind == "reject_always")


@pytest.mark.parametrize(
    ("host", "offered", "answer"),
    [
        ("registry.npmjs.org", "Always allow the preset npm: 3 hosts", FlowAnswer(True, keep=True, rule="allow @npm")),
        ("a.example", "", FlowAnswer(False, why="and the editor gave no answer")),
    ],
)
def test_the_preset_of_a_host_is_an_option(host: str, offered: str, answer: FlowAnswer) -> None:
    """An answer that was not offered refuses."""
    sent: list[tuple[str, dict[str, Any]]] = []
    questions = Questions(lambda identifier, data: sent.append((identifier, json.loads(data))), lambda _data: None)
    questions.began("session")
    waiting = EditorForHosts(questions).begin(FlowQuestion(1, host, 443, "tls", "f"))
    ((identifier, request),) = sent
    options = {option["optionId"]: option["name"] for option in request["params"]["options"]}
    assert options.get("preset npm: 3 hosts", "") == offered
    questions.answered(identifier, {"outcome": {"outcome": "selected", "optionId": "preset npm: 3 hosts"}})
    assert waiting.look() == answer
