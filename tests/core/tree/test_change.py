"""Changes: which of them a person counts, and what they come to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree.change import Change, Changeset, Summary, counted_changes, summarise
from mudroom.core.tree.path import is_below
from sample import added, deleted, directory, file, modified, paths, symlink
from tiers import each


def test_the_entry_of_a_change() -> None:
    assert added(b"a", file(1)).entry == file(1)
    assert deleted(b"a", file(2)).entry == file(2)
    assert modified(b"a", file(1), file(2)).entry == file(2)


def test_an_empty_changeset_is_false() -> None:
    assert not Changeset()
    assert Changeset((added(b"a"),))


MOVED = Change(b"new/f", "renamed", None, file(5), source=b"old/f")

LISTED: list[tuple[str, list[Change], list[bytes], Summary]] = [
    ("nothing", [], [], Summary()),
    ("a file", [added(b"f", file(7))], [b"f"], Summary(added=1, size=7)),
    (
        "lines",
        [modified(b"f", file(1), file(3), lines_added=2, lines_removed=1), deleted(b"g", lines_removed=4)],
        [b"f", b"g"],
        Summary(modified=1, deleted=1, lines_added=2, lines_removed=5, size=3),
    ),
    ("a new directory is its files", [added(b"d", directory()), added(b"d/f")], [b"d/f"], Summary(added=1, size=1)),
    ("an empty one is listed", [added(b"d", directory())], [b"d"], Summary(added=1)),
    ("and so is the innermost", [added(b"d", directory()), added(b"d/e", directory())], [b"d/e"], Summary(added=1)),
    (
        "another mode of a directory",
        [modified(b"d", directory(), directory(mode=0o700), flags=("mode",)), added(b"d/f")],
        [b"d", b"d/f"],
        Summary(added=1, modified=1, size=1),
    ),
    (
        "a rename counts once",
        [added(b"new", directory()), MOVED, deleted(b"old", directory()), deleted(b"old/f", moved_to=b"new/f")],
        [b"new/f"],
        Summary(renamed=1, size=5),
    ),
    (
        "a directory that became a link",
        [modified(b"d", directory(), symlink(), flags=("type",)), deleted(b"d/f")],
        [b"d", b"d/f"],
        Summary(modified=1, deleted=1),
    ),
]


@each(("changes", "expected", "summary"), [row[1:] for row in LISTED])
def test_what_is_listed_and_counted(changes: list[Change], expected: list[bytes], summary: Summary) -> None:
    assert [change.path for change in counted_changes(changes)] == expected
    assert summarise(changes) == summary
    assert summary.files == summary.added + summary.modified + summary.deleted + summary.renamed


@st.composite
def changesets(draw: st.DrawFn) -> list[Change]:
    entry = st.sampled_from([file(3), directory(), symlink()])
    found = []
    for path in sorted(draw(st.sets(paths(3), max_size=8))):
        base, staged = draw(st.none() | entry), draw(entry)
        found.append(added(path, staged) if base is None else modified(path, base, staged))
    return found


@given(changesets())
def test_nothing_is_left_out_but_directories_that_something_listed_is_in(changes: list[Change]) -> None:
    rows = counted_changes(changes)
    assert [change for change in changes if change in rows] == rows, "in their order"
    for change in changes:
        if change not in rows:
            assert change.entry.kind == "directory"
            assert any(is_below(row.path, change.path) and row != change for row in changes)
    assert summarise(changes).files == len(rows), "one way to count"
