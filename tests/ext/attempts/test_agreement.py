"""Agreement of candidates: paths that all change alike, paths where they differ, and paths that only some change."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree.change import Change, Changeset
from mudroom.core.tree.path import sort_key
from mudroom.ext.attempts.agreement import EXTENTS, Content, PathAgreement, agreement, changed_paths
from sample import added, deleted, directory, file, modified, symlink
from tiers import each


def changeset(*changes: Change) -> Changeset:
    return Changeset(tuple(changes))


class Contents:
    """Contents by path and candidate, and which of them were read."""

    def __init__(self, contents: Mapping[tuple[bytes, int], Hashable] | None = None) -> None:
        self._contents, self.asked = contents or {}, set[tuple[bytes, int]]()

    def __call__(self, path: bytes, number: int) -> Hashable:
        self.asked.add((path, number))
        return self._contents.get((path, number))


def agreements(changesets: Sequence[Changeset], content: Content) -> list[PathAgreement]:
    by_path = [{change.path: change for change in changeset.changes} for changeset in changesets]
    return [agreement(path, by_path, content) for path in changed_paths(changesets)]


def new(path: bytes, inode: int, size: int = 3, **fields: int) -> Change:
    return added(path, file(size, inode=inode, **fields))


def test_equal_contents_agree_and_others_differ() -> None:
    candidates = [changeset(new(b"a", number), new(b"b", number)) for number in (1, 2, 3)]
    contents = Contents({(b"a", n): "x" for n in range(3)} | {(b"b", 0): "x", (b"b", 1): "y", (b"b", 2): "x"})
    a, b = agreements(candidates, contents)
    assert a == PathAgreement(b"a", ((0, 1, 2),), ()) and a.extent == "same"
    assert b == PathAgreement(b"b", ((0, 2), (1,)), ()) and b.extent == "different"


def test_a_path_that_some_leave_alone() -> None:
    (only,) = agreements([changeset(), changeset(new(b"a", 1)), changeset()], Contents())
    assert (only.groups, only.unchanged, only.extent) == (((1,),), (0, 2), "some")


@each(
    ("first", "second"),
    [
        (new(b"a", 1), deleted(b"a")),
        (new(b"a", 1), new(b"a", 2, mode=0o755)),
        (new(b"a", 1), new(b"a", 2, size=4)),
        (new(b"a", 1), added(b"a", directory())),
        (added(b"a", symlink(b"x")), added(b"a", symlink(b"y"))),
        (added(b"a", directory()), added(b"a", directory(mode=0o700))),
    ],
)
def test_a_shape_that_differs_is_told_without_reading(first: Change, second: Change) -> None:
    contents = Contents()
    (only,) = agreements([changeset(first), changeset(second)], contents)
    assert (only.groups, only.extent, only.compared) == (((0,), (1,)), "different", True)
    assert contents.asked == set()


@each(
    "change",
    [deleted(b"a"), added(b"a", file(0, inode=3)), added(b"a", symlink(b"x")), added(b"a", directory()), new(b"a", 7)],
)
def test_nothing_is_read_where_nothing_can_differ(change: Change) -> None:
    contents = Contents()
    (only,) = agreements([changeset(change), changeset(change)], contents)
    assert only.extent == "same" and contents.asked == set()


def test_one_file_with_other_times_is_read() -> None:
    contents = Contents({(b"a", 0): 1, (b"a", 1): 1})
    (only,) = agreements([changeset(new(b"a", 7)), changeset(new(b"a", 7, mtime=9))], contents)
    assert only.extent == "same" and len(contents.asked) == 2


def test_contents_that_were_not_read() -> None:
    """They are not said to be equal, and not said to differ."""
    two = [changeset(new(b"a", 1)), changeset(new(b"a", 2))]
    (only,) = agreements(two, Contents())
    assert (only.groups, only.extent, only.compared) == (((0, 1),), "unknown", False)
    (some,) = agreements([*two, changeset()], Contents())
    assert (some.extent, some.compared) == ("some", False)
    (other,) = agreements([*two, changeset(new(b"a", 3, size=9))], Contents())
    assert (other.groups, other.extent, other.compared) == (((0, 1), (2,)), "different", False)


def test_the_old_path_of_a_rename_is_compared_where_another_candidate_counts_it() -> None:
    moved = changeset(
        deleted(b"old", moved_to=b"z"), Change(b"z", "renamed", None, file(), source=b"old", flags=("content",))
    )
    edited = changeset(modified(b"old", staged=file(9)))
    assert changed_paths([moved, moved]) == [b"z"]
    old, new_path = agreements([moved, edited], Contents())
    assert (old.path, old.groups) == (b"old", ((0,), (1,)))
    assert (new_path.path, new_path.unchanged) == (b"z", (1,))


def test_a_directory_with_files_is_not_a_path_of_its_own() -> None:
    first = changeset(added(b"d", directory()), new(b"d/x", 1))
    second = changeset(added(b"d", directory()))  # empty, so it counts
    assert [(one.path, one.extent) for one in agreements([first, second], Contents())] == [
        (b"d", "same"),
        (b"d/x", "some"),
    ]


def test_none_and_one_candidate() -> None:
    assert list(agreements([], Contents())) == []
    (only,) = agreements([changeset(new(b"a", 1))], Contents())
    assert only.extent == "same"


@given(st.lists(st.dictionaries(st.sampled_from([b"a", b"b/c", b"\xff\n"]), st.integers(-1, 3)), max_size=5))
def test_each_candidate_is_in_one_place(states: list[dict[bytes, int]]) -> None:
    """By a model: a state is a content, -1 a deletion."""
    candidates = [
        changeset(*(deleted(path) if state < 0 else new(path, 10 * number + state) for path, state in one.items()))
        for number, one in enumerate(states)
    ]
    rows = list(agreements(candidates, lambda path, number: states[number][path]))
    assert [row.path for row in rows] == sorted({path for one in states for path in one}, key=sort_key)
    for row in rows:
        members = [number for group in row.groups for number in group]
        assert sorted([*members, *row.unchanged]) == list(range(len(states)))
        by_state: dict[int, list[int]] = {}
        for number in sorted(members):
            by_state.setdefault(states[number][row.path], []).append(number)
        assert sorted(map(tuple, by_state.values())) == list(row.groups)
        assert row.compared and row.extent in EXTENTS
