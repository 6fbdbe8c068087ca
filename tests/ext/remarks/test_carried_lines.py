"""Where a remark's lines are in a later version of their file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.remarks.core.carry import CarriedLines, carry
from tiers import each

OLD = "a b c d e f"


@each(
    ("new", "first", "last", "expected"),
    [
        ("a b c d e f", 3, 4, ("here", 3, 4)),
        ("x y a b c d e f", 3, 4, ("here", 5, 6)),  # lines above
        ("a b c d e x f", 3, 4, ("here", 3, 4)),  # lines below
        ("c d e f", 3, 4, ("here", 1, 2)),  # removed above
        ("a b x d e f", 3, 4, ("answered", 3, 4)),  # one of them changed
        ("a b c x d e f", 3, 4, ("answered", 3, 5)),  # one between them
        ("a b x c d e f", 3, 4, ("here", 4, 5)),  # directly above
        ("a b c d x e f", 3, 4, ("here", 3, 4)),  # directly below
        ("a b e f", 3, 4, ("outdated", 3, 2)),  # both gone
        ("a b d e f", 3, 4, ("answered", 3, 3)),  # one gone
        ("e f", 3, 4, ("outdated", 1, 0)),
        ("a x y z f", 3, 4, ("answered", 2, 4)),  # within a larger change
        ("e f a b c d", 3, 4, ("here", 5, 6)),  # moved as they are
        ("", 3, 4, ("outdated", 1, 0)),
        ("a b c d e f", 6, 6, ("here", 6, 6)),
        ("a b c d e", 6, 6, ("outdated", 6, 5)),
    ],
)
def test_carried(new: str, first: int, last: int, expected: tuple[str, int, int]) -> None:
    old, later = ([word.encode() + b"\n" for word in text.split()] for text in (OLD, new))
    assert carry(old, later, first, last) == CarriedLines(*expected)  # type: ignore[arg-type]


def test_lines_without_a_letter_are_not_looked_for_elsewhere() -> None:
    old = [b"a\n", b"}\n", b"b\n"]
    assert carry(old, [b"a\n", b"b\n", b"c\n", b"}\n"], 2, 2).state == "outdated"


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n"]), min_size=1, max_size=12)


@given(LINES, LINES, st.data())
def test_lines_that_are_here_are_the_same_lines(old: list[bytes], new: list[bytes], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(old)))
    last = data.draw(st.integers(first, len(old)))
    found = carry(old, new, first, last)
    assert 0 <= found.first - 1 <= found.last <= len(new)
    if found.state == "here":
        assert new[found.first - 1 : found.last] == old[first - 1 : last]
    assert (found.state == "outdated") == (found.last < found.first)


@given(LINES, st.data())
def test_an_unchanged_file_leaves_each_remark_where_it_is(old: list[bytes], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(old)))
    last = data.draw(st.integers(first, len(old)))
    assert carry(old, old, first, last) == CarriedLines("here", first, last)
