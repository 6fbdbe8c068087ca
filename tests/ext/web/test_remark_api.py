"""Remarks by the page's API."""

from __future__ import annotations

import time
from typing import Any

import pytest
from looking import Looking

from conftest import Place
from mudroom.ext.web.api.endpoint import id_of
from test_review_api import staged


def post(looking: Looking, what: str, body: dict[str, Any]) -> Any:
    return looking._asked.post(f"/projects/{looking.project}/forks/f/{what}", body)


def test_a_thread_from_its_first_word_to_its_sending(place: Place) -> None:
    place.write("f", "1\n2\n3\n")
    looking = staged(place, "sed -i s/2/two/ f; echo n > new")
    assert looking.get("remarks") == {
        "remarks": [], "damaged": [], "round": 0, "checkpoint": "", "new": [], "unsent": 0, "cut_off": [],
    }  # fmt: skip
    body = {"id": id_of(b"f"), "first": 2, "last": 2, "text": "why?", "suggestion": "2"}
    (one,) = post(looking, "remarks", body)["remarks"]
    assert (one["label"], one["where"], one["state"], one["unsent"]) == ("f:2", "here", "not sent", True)
    post(looking, "remarks", {"text": "all of it"})
    post(looking, "remarks/r1", {"act": "answer", "text": "really"})
    post(looking, "remarks/r2", {"act": "settle"})
    shown = looking.get("prompt")
    assert "| 2: two\n> why?\n> really\n+ 2\n" in shown["prompt"] and "all of it" not in shown["prompt"]
    assert (shown["command"], shown["problem"]) == ("", "f has no conversation to go on with")
    job = post(looking, "send", {"id": shown["id"], "waits": True})
    until = time.monotonic() + 60
    while (done := looking._asked.get(f"/jobs/{job['id']}"))["state"] == "running":
        assert time.monotonic() < until
    assert (done["result"]["round"], done["result"]["remarks"]) == (1, ["r1"]), done
    listed = post(looking, "remarks/r1", {"act": "take"})
    assert (listed["round"], listed["checkpoint"], listed["new"], listed["unsent"]) == (1, "round-1", [id_of(b"f")], 0)
    assert listed["remarks"][0]["settled"]
    assert [row["name"] for row in post(looking, "remarks/r1", {"act": "remove"})["remarks"]] == ["r2"]


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("remarks", {"text": " "}, 400, "a text is empty"),
        ("remarks", {"text": "x", "id": id_of(b"f"), "first": 9}, 400, "f has 3 lines, and none 9"),
        ("remarks", {"text": "x", "id": id_of(b"../f")}, 400, "../f is not a path in a project"),
        ("remarks", {"text": "x", "id": "%"}, 400, "that is no id of a path"),
        ("remarks", {"text": "x", "suggestion": "y"}, 400, "a suggestion is for lines that the file has"),
        ("remarks/r9", {"act": "take"}, 400, "f has no remark r9"),
        ("remarks/r1", {"act": "take"}, 400, "r1 suggests no lines"),
        ("send", {"id": "stale"}, 409, "the remarks have changed since; nothing was sent"),
    ],
)
def test_bad_requests_are_refused(place: Place, path: str, body: dict[str, Any], status: int, told: str) -> None:
    place.write("f", "1\n2\n3\n")
    looking = staged(place, "sed -i s/2/two/ f")
    post(looking, "remarks", {"text": "one"})
    found = looking._asked.refused("POST", f"/projects/{looking.project}/forks/f/{path}", body)
    assert found[0] == status and told in found[2], found
