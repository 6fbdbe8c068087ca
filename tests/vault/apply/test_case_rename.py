"""The order of operations where names that differ in case are the same."""

from __future__ import annotations

from mudroom.core.merge.operations import Op
from mudroom.core.tree.entry import Entry
from mudroom.vault.apply.landing import removed_first

FILE = Entry("file", 0o644, 0, b"", 1, 0, 1, 0, 0, 0, 0)


def test_a_former_name_goes_before_the_new_one_comes() -> None:
    ops = (
        Op("place", b"README", 1, None, FILE),
        Op("place", b"other", 2, None, FILE),
        Op("remove", b"gone", 3, FILE, None, after=b"other"),
        Op("remove", b"readme", 4, FILE, None, after=b"README"),
    )
    assert [(op.path, op.after) for op in removed_first(ops)] == [
        (b"readme", b""),
        (b"README", b""),
        (b"other", b""),
        (b"gone", b"other"),
    ]


def test_other_operations_stay_as_they_are() -> None:
    ops = (Op("swap", b"readme", 1, FILE, FILE), Op("remove", b"README.md", 2, FILE, None))
    assert removed_first(ops) == ops
