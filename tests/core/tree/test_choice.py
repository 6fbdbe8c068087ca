"""Which changes go along with those that are wanted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree.change import Change, counted_changes
from mudroom.core.tree.choice import select_below, select_exactly
from sample import added, deleted, directory, file, modified, paths, symlink
from tiers import each

RENAMED = Change(b"new/f", "renamed", None, file(5), source=b"old/f")
NEW = [added(b"d", directory()), added(b"d/e", directory()), added(b"d/e/f"), added(b"d/g")]
GONE = [deleted(b"d", directory()), deleted(b"d/e", directory()), deleted(b"d/e/f"), deleted(b"d/g")]

EXACTLY: list[tuple[str, list[Change], list[bytes], list[bytes]]] = [
    ("nothing", NEW, [], []),
    ("a file, and the directories that it comes in", NEW, [b"d/e/f"], [b"d", b"d/e", b"d/e/f"]),
    ("not what is beside it", NEW, [b"d/g"], [b"d", b"d/g"]),
    ("a directory's mode alone", [modified(b"d", directory(), directory(mode=0o700)), added(b"d/f")], [b"d"], [b"d"]),
    ("a file in it without that", [modified(b"d", directory(), directory(mode=0o700)), added(b"d/f")], [b"d/f"],
     [b"d/f"]),
    ("what was in a directory, and it", GONE, [b"d/e/f"], [b"d/e", b"d/e/f"]),
    ("all that was in it", GONE, [b"d/e/f", b"d/g"], [b"d", b"d/e", b"d/e/f", b"d/g"]),
    ("an empty directory in it stays, and so it does", [*GONE, deleted(b"d/h", directory())], [b"d/e/f", b"d/g"],
     [b"d/e", b"d/e/f", b"d/g"]),
    ("both ends of a rename", [added(b"new", directory()), RENAMED, deleted(b"old", directory()),
     deleted(b"old/f", moved_to=b"new/f")], [b"new/f"], [b"new", b"new/f", b"old", b"old/f"]),
    ("what becomes a directory", [modified(b"d", file(1), directory()), added(b"d/f")], [b"d/f"], [b"d", b"d/f"]),
    ("what becomes a link, with all that was in it", [modified(b"d", directory(), symlink()), deleted(b"d/f")], [b"d"],
     [b"d", b"d/f"]),
]  # fmt: skip


@each(("changes", "wanted", "expected"), [row[1:] for row in EXACTLY])
def test_exactly(changes: list[Change], wanted: list[bytes], expected: list[bytes]) -> None:
    assert [change.path for change in select_exactly(changes, wanted)] == expected


def test_at_or_below() -> None:
    assert [change.path for change in select_below(NEW, [b"d/e"])] == [b"d", b"d/e", b"d/e/f"]
    assert select_below(NEW, [b"d"]) == NEW
    assert select_below(NEW, [b"d/e/f", b"nothing"]) == NEW[:3]
    assert select_below([added(b"d-e"), added(b"d")], [b"d"]) == [added(b"d")]


@st.composite
def changesets(draw: st.DrawFn) -> list[Change]:
    entry = st.sampled_from([file(3), directory(), symlink()])
    found = []
    for path in sorted(draw(st.sets(paths(3), max_size=8))):
        base, staged = draw(st.none() | entry), draw(st.none() | entry)
        if base is None:
            found.append(added(path, staged or file(1)))
        else:
            found.append(modified(path, base, staged) if staged is not None else deleted(path, base))
    return found


@given(changesets())
def test_all_rows_are_all_changes(changes: list[Change]) -> None:
    assert select_exactly(changes, [change.path for change in counted_changes(changes)]) == changes


@given(changesets(), st.data())
def test_what_was_wanted_is_there_in_its_order(changes: list[Change], data: st.DataObject) -> None:
    rows = [change.path for change in counted_changes(changes)]
    wanted = data.draw(st.sets(st.sampled_from(rows))) if rows else set()
    found = select_exactly(changes, wanted)
    assert wanted <= {change.path for change in found}
    assert found == [change for change in changes if change in found]
