"""The chain: it holds as it was made, and breaks wherever it is touched."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.journal.event import (
    BEGIN,
    GENESIS,
    TOLERATED,
    ChainCheck,
    ChainHead,
    Event,
    chained,
    data_of,
    digest_of,
    examine,
    wall,
)

Fields = tuple[int, str, str, str]


def chain(rows: list[Fields]) -> list[Event]:
    events: list[Event] = []
    previous = GENESIS
    for number, row in enumerate(rows, 1):
        previous = digest_of(previous, number, *row)
        events.append(Event(number, *row, previous))
    return events


def first_broken(events: list[Event]) -> int | None:
    broken = examine(events).broken
    return None if broken is None else broken.number


def rows(least: int = 0) -> st.SearchStrategy[list[Fields]]:
    text = st.text(st.sampled_from('ab:1{}"\n\udcff\u00e9'), max_size=5)
    return st.lists(st.tuples(st.integers(0, 2**63), text, text, text), min_size=least, max_size=6)


@given(rows())
def test_a_chain_holds(fields: list[Fields]) -> None:
    assert first_broken(chain(fields)) is None


def test_the_format_is_fixed() -> None:
    """Journals of earlier versions must keep verifying."""
    digest = digest_of(GENESIS, 1, 1700000000000000000, "run", "run-7f3a", '{"exit_code":0}')
    assert digest == "8f3782f87ed9b99e4da74b0a8ea375e33b27126a7cb1d28551f116da3c62b127"


@given(rows(least=1), st.data())
def test_an_edit_of_any_field_is_found(fields: list[Fields], data: st.DataObject) -> None:
    events = chain(fields)
    at = data.draw(st.integers(0, len(events) - 1))
    field = data.draw(st.sampled_from(Event._fields))
    old = getattr(events[at], field)
    new: Any = old + 1 if isinstance(old, int) else old + "x"
    edited = events[at]._replace(**{field: new})
    assert first_broken([*events[:at], edited, *events[at + 1 :]]) == edited.number


@given(rows(least=2), st.data())
def test_a_removal_is_found_by_what_follows(fields: list[Fields], data: st.DataObject) -> None:
    events = chain(fields)
    at = data.draw(st.integers(0, len(events) - 2))
    assert first_broken([*events[:at], *events[at + 1 :]]) == events[at + 1].number


@given(rows(least=2), st.data())
def test_another_order_is_found(fields: list[Fields], data: st.DataObject) -> None:
    events = chain(fields)
    order = data.draw(st.permutations(events))
    broken = first_broken(order)
    assert (broken is None) == (order == events)


@given(rows(least=1), st.data())
def test_an_event_with_a_right_digest_in_the_wrong_place_is_found(fields: list[Fields], data: st.DataObject) -> None:
    events = chain(fields)
    at = data.draw(st.integers(0, len(events) - 1))
    forged = chain([(1, "run", "f", "{}")])[0]
    inserted = [*events[:at], forged._replace(number=at + 1), *events[at:]]
    assert (first_broken(inserted) is None) == (inserted == events)


@given(st.lists(st.text(max_size=3), min_size=3, max_size=3), st.lists(st.text(max_size=3), min_size=3, max_size=3))
def test_fields_do_not_run_into_one_another(one: list[str], other: list[str]) -> None:
    digests = [digest_of(GENESIS, 1, 2, *fields) for fields in (one, other)]
    assert (digests[0] == digests[1]) == (one == other)


def test_each_event_covers_the_one_before() -> None:
    events = chain([(1, "run", "", "{}"), (1, "run", "", "{}"), (1, "run", "", "{}")])
    assert all(a.digest != b.digest for a, b in pairwise(events))


# --- what is said of a chain that does not hold ---


def made(count: int, start: int = 0) -> list[Event]:
    last: Event | None = None
    found: list[Event] = []
    for number in range(count):
        head = ChainHead(last.number, last.digest) if last is not None else BEGIN
        last = chained(last, head, start + number, "run", "f", {"n": number})
        found.append(last)
    return found


def head_of(events: list[Event]) -> ChainHead:
    return ChainHead(events[-1].number, events[-1].digest)


def test_half_a_character_is_an_edit_like_any_other() -> None:
    events = made(3)
    events[1] = events[1]._replace(fork="\ud800")
    assert first_broken(events) == 2


def test_an_intact_chain_with_its_head() -> None:
    events = made(5)
    assert examine(events, kept=head_of(events)) == ChainCheck(head_of(events))
    assert not examine(events, kept=head_of(events)).problems
    assert not examine(events[2:], start=head_of(events[:2])).problems, "one that starts later"
    assert not examine([], kept=BEGIN).problems
    assert examine(events, kept=head_of(events[:3])).unanchored == 2


@given(st.integers(1, 8), st.data())
def test_what_is_cut_off_is_found(count: int, data: st.DataObject) -> None:
    events = made(count)
    left = data.draw(st.integers(0, count - 1))
    broken = examine(events[:left], kept=head_of(events)).broken
    assert broken is not None
    assert (broken.number, broken.what) == (left + 1, "cut")


@given(st.integers(2, 8), st.data())
def test_another_order_is_called_so(count: int, data: st.DataObject) -> None:
    """With the numbers changed to fit, as somebody would who exchanges two rows."""
    events = made(count)
    first = data.draw(st.integers(0, count - 2))
    second = data.draw(st.integers(first + 1, count - 1))
    events[first], events[second] = (
        events[second]._replace(number=first + 1),
        events[first]._replace(number=second + 1),
    )
    broken = examine(events).broken
    assert broken is not None
    assert (broken.number, broken.what) == (first + 1, "moved")
    assert f"was written as event {second + 1}" in broken.text


@given(st.integers(3, 8), st.data())
def test_a_removal_is_called_so(count: int, data: st.DataObject) -> None:
    events = made(count)
    first = data.draw(st.integers(0, count - 2))
    last = data.draw(st.integers(first, count - 2))
    broken = examine([*events[:first], *events[last + 1 :]]).broken
    assert broken is not None
    assert (broken.number, broken.what) == (last + 2, "removed")
    assert broken.text.startswith(f"event{'s' * (first < last)} {first + 1} ")


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8))
def test_time_never_goes_back(times: list[int]) -> None:
    last: Event | None = None
    head = BEGIN
    for time in times:
        event = chained(last, head, time, "run", "", {})
        assert event.time >= time
        assert last is None or event.time >= last.time
        assert abs(wall(event) - time) <= TOLERATED
        assert event.time == time or last is not None
        last, head = event, ChainHead(event.number, event.digest)


@given(st.text(max_size=20) | st.just("[]") | st.just('{"clock":"x"}') | st.just('{"clock":'))
def test_data_that_was_edited_is_read_all_the_same(text: str) -> None:
    event = Event(1, 5, "run", "", text, "")
    assert isinstance(data_of(event), dict)
    assert wall(event) == 5
