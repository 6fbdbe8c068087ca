"""Clocks that step both ways, against the true time: nothing is older than it is, and no edit is missed."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from clocks import steady
from mudroom.core.clock import (
    LONGEST,
    NEVER,
    SECOND,
    SKEW,
    SPANS,
    STEADY,
    CommandStart,
    EditWindow,
    Moment,
    Span,
    VaultClock,
    edit_window,
    horizon,
    is_running_on,
    lowest_since,
    noted,
)
from mudroom.core.retention import DAY
from tiers import each

HOUR = 3600 * SECOND
T0 = 20_000 * DAY


class World:
    """One machine: the true time, its wall clock, and its boots."""

    def __init__(self) -> None:
        self.true, self.ahead, self.booted, self.boots = T0, 0, T0 - HOUR, 1

    @property
    def wall(self) -> int:
        return self.true + self.ahead

    def moment(self) -> Moment:
        return Moment(self.wall, self.true - self.booted, f"boot {self.boots}")

    def start(self) -> CommandStart:
        return CommandStart(self.wall, self.booted + self.ahead)

    def restart(self, off: int) -> None:
        self.true += off
        self.booted, self.boots = self.true, self.boots + 1


class Written(NamedTuple):
    stamp: int
    true: int


STEP = st.one_of(st.integers(-500, -1), st.integers(1, 500)).map(lambda days: days * DAY) | st.sampled_from(
    [-HOUR, HOUR, -7 * STEADY, 7 * STEADY, 9000 * DAY, -9000 * DAY]
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 40 * 24).map(lambda hours: hours * HOUR)),
        st.tuples(st.just("set"), STEP),
        st.tuples(st.just("write"), st.integers(0, 48).map(lambda hours: hours * HOUR)),
    ),
    max_size=30,
)
AGES = (600 * SECOND, DAY, 30 * DAY)


@given(ACTIONS)
def test_nothing_is_older_than_it_is(actions: list[tuple[str, int]]) -> None:
    """A command notes the clock and then writes; the clock may be set at any other time."""
    world, clock, files = World(), noted(None, World().moment()), list[Written]()
    for action, amount in actions:
        if action == "pass":
            world.true += amount
        elif action == "set":
            world.ahead += amount
        else:
            clock = _noted(clock, world)
            world.true += amount
            files.append(Written(world.wall, world.true))
        now = _noted(clock, world)
        assert now.age == world.true - T0, "within one boot time is exact"
        for age in AGES:
            for file in files:
                assert file.stamp >= horizon(now, age) or world.true - file.true >= age
        for file in files:
            assert lowest_since(now, file.stamp) <= min(later.stamp for later in files if later.true >= file.true)
    clock = _noted(clock, world)
    stamp = max([file.stamp for file in files if file.stamp <= world.wall], default=world.wall)
    world.true += 31 * DAY
    if len(clock.spans) < SPANS:
        assert horizon(_noted(clock, world), 30 * DAY) > stamp, "and what is old goes, once the clock is left alone"


def _noted(clock: VaultClock, world: World) -> VaultClock:
    """As ``vault/moment.py:clock_of``: the boot is read only if the clock seems to have been set."""
    now = world.moment()
    return noted(clock, now._replace(boot=clock.last.boot) if is_running_on(clock, now) else now)


@given(st.lists(st.tuples(st.integers(0, 3000).map(lambda hours: hours * HOUR), STEP), max_size=12))
def test_no_boot_counts_for_more_than_a_week_too_much(boots: list[tuple[int, int]]) -> None:
    world = World()
    clock, stamp = noted(None, world.moment()), world.wall
    for off, step in boots:
        world.restart(off)
        world.ahead += step
        before, clock = clock.age, noted(clock, world.moment())
        assert before <= clock.age <= before + LONGEST
        assert horizon(clock, LONGEST * len(boots) + 1) <= stamp
    assert len(clock.spans) <= SPANS


def test_a_machine_that_is_off_for_weeks_or_started_every_day() -> None:
    world = World()
    clock = noted(None, world.moment())
    for _day in range(40):
        world.restart(DAY)
        clock = noted(clock, world.moment())
    assert (clock.age, len(clock.spans)) == (40 * DAY, 1)
    world.restart(21 * DAY)
    clock = noted(clock, world.moment())
    assert clock.age == 40 * DAY + LONGEST
    assert T0 < horizon(clock, 30 * DAY) <= world.wall - 30 * DAY


def test_a_young_vault_has_nothing_old() -> None:
    clock = noted(None, World().moment())
    assert horizon(clock, 1) == NEVER
    assert horizon(clock, 0) == T0
    assert horizon(steady(T0), DAY) == T0 - DAY
    assert lowest_since(clock, T0 + 1) == NEVER


# --- edits while a command runs ---


def _is_outside(window: EditWindow, ctime: int, now: int) -> bool:
    """As ``stage/stamp.py:is_outside``, for a clock that is not coarse."""
    return ctime < window.first or window.is_ahead(ctime, now)


@given(st.lists(STEP, max_size=4), st.booleans(), st.data())
def test_no_edit_during_a_command_is_missed(steps: list[int], back: bool, data: st.DataObject) -> None:
    """The clock is set any number of times in one direction."""
    world, edits = World(), []
    started = world.start()
    for step in steps:
        world.true += data.draw(st.integers(0, DAY))
        edits.append(world.wall)
        world.ahead += -abs(step) if back else abs(step)
        edits.append(world.wall)
    world.true += data.draw(st.integers(0, DAY))
    edits.append(world.wall)
    window = edit_window(started, world.start())
    assert not any(_is_outside(window, ctime, world.wall) for ctime in edits)


@given(st.lists(STEP, max_size=4), st.integers(1, DAY))
def test_files_from_before_are_known_although_the_clock_was_set(steps: list[int], lasts: int) -> None:
    world, files = World(), []
    for step in steps:
        files.append(world.wall)
        world.true += HOUR
        world.ahead += step
    files.append(world.wall - 1)
    started = world.start()
    world.true += lasts
    window = edit_window(started, world.start())
    for ctime in files:
        during = started.time <= ctime <= world.wall + SKEW
        assert _is_outside(window, ctime, world.wall) is not during


@each(
    ("start", "now", "expected"),
    [
        (CommandStart(100 * HOUR), CommandStart(101 * HOUR, HOUR), EditWindow(100 * HOUR)),  # the boot is not known
        (CommandStart(100 * HOUR, HOUR), CommandStart(101 * HOUR, HOUR), EditWindow(100 * HOUR, True)),
        (CommandStart(100 * HOUR, HOUR), CommandStart(101 * HOUR, HOUR - 9), EditWindow(100 * HOUR, True)),
        (CommandStart(100 * HOUR, HOUR), CommandStart(100 * HOUR, HOUR + 9), EditWindow(100 * HOUR, True)),  # one tick
        (CommandStart(100 * HOUR, 3 * HOUR), CommandStart(99 * HOUR, HOUR), EditWindow(98 * HOUR)),  # set back 2 h
        (CommandStart(100 * HOUR, 3 * HOUR), CommandStart(3 * HOUR, 2 * HOUR), EditWindow(2 * HOUR)),  # and restarted
        (CommandStart(100 * HOUR, 3 * HOUR), CommandStart(9 * HOUR, 4 * HOUR), EditWindow(4 * HOUR)),
        (CommandStart(100 * HOUR, 3 * HOUR), CommandStart(120 * HOUR, 119 * HOUR), EditWindow(100 * HOUR)),
        (CommandStart(100 * HOUR, 3 * HOUR), CommandStart(900 * HOUR, 700 * HOUR), EditWindow(100 * HOUR, True)),
    ],
)
def test_windows(start: CommandStart, now: CommandStart, expected: EditWindow) -> None:
    assert edit_window(start, now) == expected


def test_a_stamp_at_the_end_of_a_span_whose_wall_clock_ran_ahead() -> None:
    """ntpd slews the wall clock by up to 500 ppm: the span is longer by it than by the clock that counts."""
    clock = VaultClock(Moment(1_105, 100, "b"), (Span(0, 1_000, 100, 1_105),))
    assert lowest_since(clock, 1_104) <= 1_105
    assert lowest_since(clock, 1_000) <= 1_005
