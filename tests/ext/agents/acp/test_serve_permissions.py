"""Permission requests of an agent and commands that need approval: mudroom's verdict, in the editor."""

from __future__ import annotations

import pytest
from editor import chosen
from serve_start import FORK, Start, start

from conftest import Place

__all__ = ["start"]


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
