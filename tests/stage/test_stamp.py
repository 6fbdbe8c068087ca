"""Stamps of files, at the very tick of the clock."""

from __future__ import annotations

import pytest

from mudroom.stage.stamp import is_earlier

SECOND = 10**9
MOMENT = 1_700_000_000 * SECOND + 5


@pytest.mark.parametrize(("ctime", "expected"), [(MOMENT - 1, True), (MOMENT, False), (MOMENT + 1, False)])
def test_a_change_within_the_tick_is_not_earlier(ctime: int, expected: bool) -> None:
    """The clock that stamps files ticks every few milliseconds: two changes within a tick have one time."""
    assert is_earlier(ctime, MOMENT) is expected


def test_a_whole_second_is_that_of_a_coarse_clock() -> None:
    second = 1_700_000_000 * SECOND
    assert not is_earlier(second, second + 3 * SECOND - 1)
    assert is_earlier(second, second + 3 * SECOND)
