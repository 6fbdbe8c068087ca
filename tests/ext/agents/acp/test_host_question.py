"""A host that no rule names is asked about in the editor."""

from __future__ import annotations

import json
from typing import Any

import pytest
from editor import PYTHON, Editor, chosen, mudroom

from conftest import Place
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.ext.agents.acp.question import EditorForHosts, Questions
from tiers import daily

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
