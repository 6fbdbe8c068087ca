"""Flows as they are journalled: whole, and without what is secret in URLs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.network.flow import Flow, flow_from_json, flow_to_json
from tiers import each

FLOW = Flow(1_700_000_000_000_000_000, "http", "example.com", 80, "allow", "policy.yaml:3", "policy.yaml:3 allows it")


def test_a_flow_and_back() -> None:
    full = FLOW._replace(
        address="8.8.8.8", method="GET", path="/x", status=200, sent=120, received=4096, seconds=0.25, error="reset"
    )
    counted = FLOW._replace(verdict="deny", repeats=9)
    for flow in (FLOW, full, counted, FLOW._replace(rule="", reason="", seconds=2.0, port=0, started=0)):
        data = json.loads(json.dumps(flow_to_json(flow)))
        assert flow_from_json(data) == flow
    inspected = full._replace(
        way="https", version="HTTP/2", request=(("accept", "*/*"),), response=(("a", "b"), ("a", "c"))
    )
    assert flow_from_json(json.loads(json.dumps(flow_to_json(inspected)))) == inspected
    assert flow_to_json(FLOW._replace(rule="", reason="")) == {
        "started": FLOW.started,
        "way": "http",
        "host": "example.com",
        "port": 80,
        "verdict": "allow",
    }


@each(
    ("field", "given_text", "written"),
    [
        ("path", "/a/b", "/a/b"),
        ("path", "/a?token=hunter2", "/a?…"),
        ("path", "/a#hunter2", "/a?…"),
        ("path", "/a#x?hunter2", "/a?…"),
        ("path", "?hunter2", "?…"),
        ("path", "http://u:hunter2@example.com/x", "http://…@example.com/x"),
        ("path", "http://u:hunter2@example.com/x?k=hunter2", "http://…@example.com/x?…"),
        ("path", "http://u:p@hunter2@example.com/x", "http://…@example.com/x"),
        ("host", "u:hunter2@example.com", "…@example.com"),
        ("host", "example.com", "example.com"),
        ("reason", "https://u:hunter2@example.com/x?k=hunter2 is no host", "https://…@example.com/x?… is no host"),
        ("reason", "why? because", "why? because"),
        ("error", "redirected to 'http://example.com/?k=hunter2'", "redirected to 'http://example.com/?…'"),
    ],
)
def test_no_secrets_of_urls_are_written(field: str, given_text: str, written: str) -> None:
    flow = FLOW._replace(**{field: given_text})  # type: ignore[arg-type]
    data = flow_to_json(flow)
    assert data[field] == written
    assert "hunter2" not in json.dumps(data)
    assert flow_to_json(flow, redact=False)[field] == given_text


@each(
    ("change", "reason"),
    [
        ({"way": "pigeon"}, "way is 'pigeon'"),
        ({"verdict": "ask"}, "verdict is 'ask'"),
        ({"port": "80"}, "port is '80'"),
        ({"port": True}, "port is True"),
        ({"started": 1.5}, "started is 1.5"),
        ({"host": None}, "host is None"),
        ({"sent": "1"}, "sent is '1'"),
    ],
)
def test_what_is_no_flow(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        flow_from_json({**flow_to_json(FLOW), **change})
    with pytest.raises(ValueError, match="a flow without"):
        flow_from_json({})


def test_what_a_newer_mudroom_wrote_beside_it_is_left_out() -> None:
    assert flow_from_json({**flow_to_json(FLOW), "protocol": "h3"}) == FLOW


@given(st.text(alphabet="ab:/@?#'. ", max_size=30))
def test_what_is_hidden_stays_hidden(text: str) -> None:
    """Hiding is idempotent, and nothing is left between :// and an @, nor behind a question mark of a path."""
    once = flow_to_json(FLOW._replace(path=text, reason=text, error=text, host=text))
    again = flow_to_json(flow_from_json(once))
    assert again == once
    path = once.get("path", "")
    assert path.partition("?")[2] in ("", "…")


def test_no_secrets_of_urls_in_headers_are_written() -> None:
    fields = (("referer", "https://u:hunter2@example.com/x?k=hunter2"), ("location", "/x?k=hunter2"), ("accept", "*/*"))
    data = flow_to_json(FLOW._replace(request=fields, response=fields))
    assert "hunter2" not in json.dumps(data)
    assert data["request"] == (("referer", "https://…@example.com/x?…"), ("location", "/x?…"), ("accept", "*/*"))


@pytest.mark.parametrize("value", ["x", [["a"]], [["a", 1]], {"a": "b"}, [None]])
def test_headers_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a flow whose request"):
        flow_from_json(flow_to_json(FLOW) | {"request": value})
