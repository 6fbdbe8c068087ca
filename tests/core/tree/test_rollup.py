"""Rolling up: every change is shown once, by itself or in one directory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree.change import Change, counted_changes, summarise
from mudroom.core.tree.path import ancestors, is_below, sort_key
from mudroom.core.tree.rollup import MANY, Roll, roll_up, whole_directories
from sample import added, deleted, directory, file, modified, names


def many(top: bytes, count: int = MANY + 1) -> list[Change]:
    return [added(top, directory()), *(added(b"%s/%02d" % (top, number), file(2)) for number in range(count))]


def gone(top: bytes, count: int = MANY + 1) -> list[Change]:
    return [deleted(top, directory()), *(deleted(b"%s/%02d" % (top, number)) for number in range(count))]


def test_a_directory_that_came_whole_is_one_line() -> None:
    rows, rolls = roll_up([*many(b"node_modules"), modified(b"package.json")], lines=100)
    assert [row.path for row in rows] == [b"package.json"]
    assert rolls == [Roll(b"node_modules", 11, 0, 0, 0, 22)]


def test_a_directory_that_went_whole_is_one_line() -> None:
    assert roll_up(gone(b"build"), lines=100) == ([], [Roll(b"build", 0, 0, 11, 0, 0)])


def test_what_was_renamed_into_the_directory_is_named() -> None:
    """The deletion of the old path has no row of its own."""
    here = added(b"build/notes")._replace(verb="renamed", source=b"notes")
    rows, rolls = roll_up([*many(b"build"), here, deleted(b"notes", moved_to=b"build/notes")], lines=100)
    assert rows == []
    assert rolls == [Roll(b"build", 11, 0, 0, 1, 23, (b"notes",))]


def test_a_few_files_are_named() -> None:
    changes = many(b"d", MANY)
    assert whole_directories(changes) == []
    assert roll_up(changes, lines=100) == (changes[1:], [])


def test_the_topmost_stands_for_what_is_in_it() -> None:
    changes = [added(b"a", directory()), *many(b"a/b"), added(b"a/z"), *many(b"c")]
    assert whole_directories(changes) == [b"a", b"c"]
    assert roll_up(changes, lines=100)[1] == [Roll(b"a", 12, 0, 0, 0, 23), Roll(b"c", 11, 0, 0, 0, 22)]


def test_files_of_a_directory_that_was_there_are_named() -> None:
    changes = many(b"d")[1:]
    assert roll_up(changes, lines=100) == (changes, [])


def test_a_repository_rolls_up_however_small() -> None:
    changes = [modified(b".git/index"), added(b".git/objects/aa"), modified(b"a"), *many(b"b/.git")]
    rows, rolls = roll_up(changes, lines=100)
    assert [row.path for row in rows] == [b"a"]
    assert rolls == [Roll(b".git", 1, 1, 0, 0, 2), Roll(b"b/.git", 11, 0, 0, 0, 22)]


def test_a_repository_in_a_new_directory_is_part_of_it() -> None:
    changes = [added(b"a", directory()), *many(b"a/.git")]
    assert roll_up(changes, lines=100) == ([], [Roll(b"a", 11, 0, 0, 0, 22)])


def test_a_directory_of_which_all_was_moved_away_is_not_shown() -> None:
    moved = [change._replace(moved_to=b"else/where") for change in gone(b"d")[1:]]
    assert roll_up([deleted(b"d", directory()), *moved], lines=100) == ([], [])


@pytest.mark.parametrize(
    ("lines", "rows", "rolls"),
    [
        (6, [b"a", b"d/1", b"d/2", b"d/3", b"e/1", b"e/2"], []),
        (5, [b"a", b"e/1", b"e/2"], [b"d"]),
        (3, [b"a"], [b"d", b"e"]),
        (1, [b"a"], [b"d", b"e"]),
    ],
)
def test_when_there_are_too_many_lines_the_heaviest_goes_first(
    lines: int, rows: list[bytes], rolls: list[bytes]
) -> None:
    changes = [modified(path) for path in (b"a", b"d/1", b"d/2", b"d/3", b"e/1", b"e/2")]
    shown, rolled = roll_up(changes, lines)
    assert [row.path for row in shown] == rows
    assert [roll.path for roll in rolled] == rolls


def test_rolls_are_rolled_up_too() -> None:
    changes = [added(b"a", directory()), *many(b"a/b"), modified(b"c/d"), modified(b"c/e")]
    assert roll_up([*many(b"x/a"), *many(b"x/b"), modified(b"x/c")], 1)[1] == [Roll(b"x", 22, 1, 0, 0, 45)]
    assert roll_up(changes, 1)[1] == [Roll(b"a", 11, 0, 0, 0, 22), Roll(b"c", 0, 2, 0, 0, 2)]


@st.composite
def changesets(draw: st.DrawFn) -> list[Change]:
    some = st.lists(names() | st.sampled_from([b".git", b"d", b"e"]), min_size=1, max_size=3).map(b"/".join)
    found: dict[bytes, Change] = {}
    for path in draw(st.sets(some, max_size=8)):
        for above in ancestors(path):
            found.setdefault(above, draw(st.sampled_from([added, deleted]))(above, directory()))
        for change in draw(st.sampled_from([many, gone]))(path) if draw(st.booleans()) else [modified(path)]:
            found.setdefault(change.path, change)
    return sorted(found.values(), key=lambda change: sort_key(change.path))


@given(changesets(), st.integers(0, 12))
def test_every_change_is_shown_exactly_once(changes: list[Change], lines: int) -> None:
    rows, rolls = roll_up(changes, lines)
    tops = [roll.path for roll in rolls]
    assert tops == sorted(tops, key=sort_key)
    for change in counted_changes(changes):
        assert (change in rows) + sum(is_below(change.path, top) for top in tops) == 1
    assert all(row in changes for row in rows)
    whole = summarise(changes)
    assert whole.added == sum(roll.added for roll in rolls) + sum(row.verb == "added" for row in rows)
    assert whole.deleted == sum(roll.deleted for roll in rolls) + sum(row.verb == "deleted" for row in rows)
    assert whole.size == sum(roll.size for roll in rolls) + sum(row.staged.size for row in rows if row.staged)
    if len(rows) + len(rolls) > lines:
        assert all(b"/" not in path for path in (*(row.path for row in rows), *tops)), "nothing is left to roll up"
