"""Which events are wanted, and the forms in which other programs get them."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from mudroom.core.journal.csv import COLUMNS, header, row, sheet_row
from mudroom.core.journal.event import Event
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.journal.otlp import logs_data

S = 10**9


def event(number: int = 1, kind: str = "run", fork: str = "a", time: int = S, **data: Any) -> Event:
    return Event(number, time, kind, fork, json.dumps(data), "d" * 64)


RUN = event(command=["npm", "install", "Left-Pad"], agent="claude", verdict={"action": "allow"}, exit_code=1)
DENIED = event(2, "verdict", "b", 2 * S, command=["rm", "-rf", "/"], verdict={"action": "deny", "reason": "no"})
FLOW = event(3, "flow", "a", 3 * S, host="evil.example", verdict="deny", clock=1 * S)
EVENTS = (RUN, DENIED, FLOW)


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (EventFilter(), [1, 2, 3]),
        (EventFilter(kinds=("run", "flow")), [1, 3]),
        (EventFilter(forks=("b",)), [2]),
        (EventFilter(agent="claude"), [1]),
        (EventFilter(agent="other"), []),
        (EventFilter(since=2 * S), [2]),
        (EventFilter(until=2 * S), [1, 3]),
        (EventFilter(since=S, until=2 * S), [1, 3]),
        (EventFilter(verdict="deny"), [2, 3]),
        (EventFilter(verdict="allow"), [1]),
        (EventFilter(grep="left-pad"), [1]),
        (EventFilter(grep="INSTALL left"), [1]),
        (EventFilter(grep="evil"), [3]),
        (EventFilter(grep="exit_code=1"), [1]),
        (EventFilter(grep="verdict"), [2, 3]),
        (EventFilter(kinds=("flow",), verdict="deny", grep="example"), [3]),
        (EventFilter(kinds=("run",), verdict="deny"), []),
    ],
)
def test_selection(wanted: EventFilter, numbers: list[int]) -> None:
    assert [one.number for one in EVENTS if wanted.matches(one)] == numbers


@given(st.text(max_size=10))
def test_selecting_from_what_was_edited_never_fails(text: str) -> None:
    odd = Event(1, 1, "run", "a", text, "")
    assert EventFilter(agent="x").matches(odd) is False
    assert EventFilter(since=0).matches(odd) is True


def parsed(document: dict[str, Any]) -> LogsData:
    """By the published definition, strictly: an unknown field or a wrong type is an error."""
    found = LogsData()
    json_format.Parse(json.dumps(document), found)
    return found


def test_otlp_by_the_published_definition() -> None:
    gravity = (0, 2, 2)
    records = [(one, f"line {one.number}", grave) for one, grave in zip(EVENTS, gravity, strict=True)]
    found = parsed(logs_data(records, "/p", "1.2"))
    (resource,) = found.resource_logs
    named = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert named == {"service.name": "mudroom", "service.version": "1.2", "mudroom.project": "/p"}
    (scope,) = resource.scope_logs
    assert scope.scope.name == "mudroom.journal"
    run, denied, flow = scope.log_records
    assert (run.time_unix_nano, run.severity_number, run.severity_text) == (S, 9, "INFO")
    assert (denied.severity_number, denied.severity_text) == (17, "ERROR")
    assert (flow.time_unix_nano, flow.observed_time_unix_nano) == (S, 3 * S), (
        "the clock as it was, and the chain's time"
    )
    assert (run.event_name, run.body.string_value) == ("mudroom.run", "line 1")
    values = {one.key: one.value for one in run.attributes}
    words = [one.string_value for one in values["mudroom.run.command"].array_value.values]
    assert words == ["npm", "install", "Left-Pad"]
    assert values["mudroom.run.exit_code"].int_value == 1
    assert values["mudroom.number"].int_value == 1
    assert values["mudroom.run.verdict"].kvlist_value.values[0].key == "action"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(), one, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.text(), st.integers(-(2**63), 2**63 - 1))
def test_otlp_of_anything(data: dict[str, Any], text: str, time: int) -> None:
    odd = Event(1, time, text, text, json.dumps(data), "d")
    document = logs_data([(odd, text, 1)], text.encode("utf-8", "replace").decode(), "1")
    (record,) = parsed(document).resource_logs[0].scope_logs[0].log_records
    assert record.severity_number == 13


# --- tables ---


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def test_a_table() -> None:
    text = header() + "".join(sheet_row(one, "2026-01-01T00:00:00Z", 'a, "b"\nc') for one in EVENTS)
    assert text.endswith("\r\n")
    rows = read(text)
    assert rows[0] == list(COLUMNS)
    first = dict(zip(COLUMNS, rows[1], strict=True))
    assert first["command"] == "npm install Left-Pad"
    assert first["text"] == 'a, "b"\nc'
    assert (first["agent"], first["action"], first["exit_code"]) == ("claude", "allow", "1")
    assert json.loads(first["data"]) == json.loads(RUN.data)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\uff1d", "\n="])
def test_no_cell_is_a_formula(start: str) -> None:
    (cells,) = read(row([start + "1+cmd|' /C calc'!A0", "x=1", -5]))
    assert cells[0].startswith("'" + start)
    assert cells[1:] == ["x=1", "-5"]
    told = read(sheet_row(event(fork=start + "f", command=[start + "HYPERLINK()"]), "t", start))[0]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in told)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=5))
def test_a_row_is_read_as_it_was_written(cells: list[str]) -> None:
    (found,) = read(row(cells))
    assert [cell.removeprefix("'") for cell in found] == [cell.removeprefix("'") for cell in cells]
