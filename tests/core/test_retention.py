"""What has had its time: a table of limits, and what holds whatever the limits are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clocks import steady
from mudroom.core.clock import NEVER, SECOND
from mudroom.core.retention import (
    DAY,
    YOUNG,
    ApplyFact,
    RetentionLimits,
    deletion_horizon,
    expired_applies,
    expired_checkpoints,
    retention_limits,
    surplus_checkpoints,
    unreferenced,
)
from mudroom.core.settings import Settings
from mudroom.core.tree.stack import Checkpoint, ForkState
from tiers import each

NOW = 1000 * DAY
WIDE = RetentionLimits(30 * DAY, 50, 1 << 40)


def applies(*facts: tuple[int, int]) -> list[ApplyFact]:
    """(age in days, bytes), oldest first."""
    return [ApplyFact(f"u{number}", NOW - age * DAY, size) for number, (age, size) in enumerate(facts, 1)]


@each(
    ("facts", "kept", "expected"),
    [
        ([], WIDE, []),
        ([(400, 1 << 50)], WIDE, []),  # the newest stays, whatever its age and size
        ([(31, 1), (30, 1), (1, 1)], WIDE, [("u1", "age")]),
        ([(3, 1), (2, 1), (1, 1)], RetentionLimits(DAY * 30, 1, 100), [("u1", "count"), ("u2", "count")]),
        ([(3, 10), (2, 10), (1, 10)], RetentionLimits(DAY * 30, 9, 20), [("u1", "bytes")]),
        ([(3, 10), (2, 1), (1, 100)], RetentionLimits(DAY * 30, 9, 20), [("u1", "bytes"), ("u2", "bytes")]),
        ([(-5, 1), (1, 1)], WIDE, []),  # a clock that was set back
    ],
)
def test_applies(facts: list[tuple[int, int]], kept: RetentionLimits, expected: list[tuple[str, str]]) -> None:
    assert [(one.name, one.reason) for one in expired_applies(applies(*facts), kept, NOW - kept.age)] == expected


def test_an_unfinished_apply_stays() -> None:
    facts = [fact._replace(finished=False) for fact in applies((400, 1), (300, 1), (1, 1))]
    assert expired_applies(facts, RetentionLimits(0, 0, 0), NOW) == []


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.booleans())),
    st.integers(0, 40),
    st.integers(1, 9),
    st.integers(0, 40),
)
def test_what_is_left_is_within_the_limits(rows: list[tuple[int, int, bool]], age: int, number: int, size: int) -> None:
    rows = sorted(rows, reverse=True)
    facts = [ApplyFact(f"u{i}", NOW - old * DAY, bytes_, done) for i, (old, bytes_, done) in enumerate(rows)]
    gone = {one.name for one in expired_applies(facts, RetentionLimits(age * DAY, number, size), NOW - age * DAY)}
    left = [fact for fact in facts if fact.name not in gone]
    assert not facts or left[-1] == facts[-1]
    assert all(fact in left for fact in facts if not fact.finished)
    free = [fact for fact in left[:-1] if fact.finished]
    if free:
        assert len(left) <= number or not free
        assert sum(fact.size for fact in left) <= size
    assert all(NOW - fact.time <= age * DAY for fact in free)


def test_automatic_checkpoints_go_by_age_and_number_and_named_ones_stay() -> None:
    points = [
        Checkpoint(f"c{age}", NOW - age * DAY, (f"a{age}",), age % 2 == 0) for age in (90, 89, 40, 10, 8, 6, 5, 4)
    ]
    state = ForkState("u", checkpoints=tuple(points))
    assert expired_checkpoints(state, WIDE, NOW - WIDE.age) == ("c90", "c40")
    assert expired_checkpoints(state, RetentionLimits(DAY * 1000, 2, 0), 0) == ("c90", "c40", "c10", "c8")[:4]
    assert expired_checkpoints(state, RetentionLimits(DAY * 1000, 99, 0), 0) == ()


def test_what_is_younger_than_a_held_lock_is_not_unneeded() -> None:
    clock = steady(NOW)
    assert deletion_horizon(clock, []) == NOW - YOUNG
    assert deletion_horizon(clock, [NOW - 1, NOW - 3 * DAY]) == NOW - 4 * DAY
    assert deletion_horizon(clock, [NOW + DAY]) == NEVER, "taken while the clock was wrong"
    states = [ForkState("up", ("a",), "b1"), ForkState("up2", checkpoints=(Checkpoint("c", 1, ("d",)),))]
    layers = {"up": 1, "up2": 1, "a": 1, "d": 1, "old": 1, "new": 99}
    assert unreferenced(layers, {"b1": 1, "b2": 1, "b3": 99}, states, 50) == (["old"], ["b2"])
    assert unreferenced(layers, {}, [], 0) == ([], [])


def test_the_settings() -> None:
    assert retention_limits(Settings()) == RetentionLimits(30 * DAY, 50, 5 * 10**9)
    assert retention_limits(Settings(keep_age=1.5)).age == 1_500_000_000 == int(1.5 * SECOND)


def test_checkpoints_of_the_very_same_count_as_one() -> None:
    names = [f"c{number}" for number in range(9)]
    alike = ForkState("u", checkpoints=tuple(Checkpoint(name, 1, ("a",), True) for name in names))
    assert surplus_checkpoints(alike, 1) == tuple(names[:5])
    mixed = alike._replace(checkpoints=(Checkpoint("old", 1, ("o",), True), *alike.checkpoints[:3]))
    assert surplus_checkpoints(mixed, 2) == ()
    assert surplus_checkpoints(mixed, 1) == ("old",)


def test_for_ever_is_a_number_of_nanoseconds() -> None:
    for age in (float("inf"), 1e300):
        assert 100 * 365 * DAY < retention_limits(Settings(keep_age=age)).age < 1 << 63
    assert retention_limits(Settings(keep_age=60.0)).age == 60 * 10**9
