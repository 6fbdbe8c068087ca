"""Which events are wanted."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.journal.event import Event
from mudroom.core.journal.event_filter import EventFilter
from tiers import each

S = 10**9


def event(number: int = 1, kind: str = "run", fork: str = "a", time: int = S, **data: Any) -> Event:
    return Event(number, time, kind, fork, json.dumps(data), "d" * 64)


RUN = event(command=["npm", "install", "Left-Pad"], agent="claude", verdict={"action": "allow"}, exit_code=1)
DENIED = event(2, "verdict", "b", 2 * S, command=["rm", "-rf", "/"], verdict={"action": "deny", "reason": "no"})
FLOW = event(3, "flow", "a", 3 * S, host="evil.example", verdict="deny", clock=1 * S)
EVENTS = (RUN, DENIED, FLOW)


@each(
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
