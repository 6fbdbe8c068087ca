"""What the page's server holds in memory of conflicts, of which a fork may have any number."""

from __future__ import annotations

import tracemalloc

import pytest
from pageside import PageSide, changed

from conftest import Place, tick

COUNT, SIZE = 8, 16 << 20


@pytest.fixture
def page(place: Place) -> PageSide:
    return PageSide(place)


def test_a_list_of_large_conflicts_is_not_all_in_memory(place: Place, page: PageSide) -> None:
    """Sparse files cost the agent nothing."""
    for number in range(COUNT):
        place.write(f"f{number}", "one\n")
    make = f"for n in $(seq 0 {COUNT - 1}); do rm f$n; truncate -s {SIZE} f$n; done"
    changed(place, make, "agent-1")
    tick()
    for number in range(COUNT):
        place.write(f"f{number}", "two\n")
    fork = f"{page.project}/forks/agent-1"
    tracemalloc.start()
    try:
        assert page.get(f"{fork}/changes")["conflicts"] == COUNT
        assert page.get(f"{fork}/standing?conflicts=true")["conflicts"] == COUNT
        rows = page.get(f"{fork}/conflicts")["conflicts"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [row["theirs"]["side"]["size"] for row in rows] == [SIZE] * COUNT
    assert all(row["theirs"]["known"] for row in rows)
    assert peak < 4 * SIZE
