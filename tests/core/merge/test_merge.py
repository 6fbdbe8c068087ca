"""The merge table, whole: what the fork wants, what the project has now, whether the original is known."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mudroom.core.merge import merge
from mudroom.core.merge.merge import (
    TABLE,
    TAKE,
    Delta,
    MergeDecision,
    Outcome,
    combine_modes,
    decide,
    delta_of,
    merged_mode,
    theirs_delta,
)
from mudroom.core.merge.merge_tree import _delta_by_stamp
from mudroom.core.tree.change import Change, Verb
from mudroom.core.tree.entry import Entry, same_shape
from mudroom.typing import get_args
from sample import directory, file, symlink
from tiers import each

BASE, THEIRS, OTHER = file(1), file(2, inode=20), file(3, inode=30)
KINDS: dict[str, Entry | None] = {
    "absent": None,
    "file": file(1, inode=41),
    "other file": file(2, inode=42),
    "executable": file(1, inode=43, mode=0o755),
    "other executable": file(2, inode=44, mode=0o755),
    "symlink": symlink(b"a", inode=45),
    "other symlink": symlink(b"b", inode=46),
    "directory": directory(inode=47),
    "closed directory": directory(inode=48, mode=0o700),
    "special": file(0, kind="fifo", inode=49),
}
"""Every kind of thing, and two of those that can differ in content."""
CASES = [(base, ours, theirs) for base, ours, theirs in itertools.product(KINDS, KINDS, KINDS) if base != theirs]


def change_of(base: Entry | None, theirs: Entry | None, **fields: Any) -> Change:
    """As it is collected."""
    verb: Verb = "added" if base is None else "deleted" if theirs is None else "modified"
    flags: tuple[str, ...] = ()
    if base is not None and theirs is not None:
        if base.kind != theirs.kind:
            flags = ("type",)
        else:
            differing = (("mode", base.mode != theirs.mode), ("content", _content(base) != _content(theirs)))
            flags = tuple(name for name, differs in differing if differs)
    return Change(b"f", verb, base, theirs, flags=flags, **fields)


def _content(entry: Entry) -> tuple[int, bytes]:
    return entry.size, entry.target


def decided(change: Change, ours: Entry | None) -> MergeDecision:
    other = change.base is not None and ours is not None and _content(change.base) != _content(ours)
    same = same_shape(change.staged, ours) and (ours is None or change.entry.size == ours.size)
    return decide(change, ours, delta_of(change.base, ours, content=other), ours_is_theirs=same)


def expected(base: Entry | None, ours: Entry | None, theirs: Entry | None) -> str:
    """The rule, said in another way: aspect by aspect, as a version control system thinks of it."""
    if same(ours, theirs) or (base is None and both(ours, theirs, "directory")):
        return "satisfied"
    if same(base, ours):
        return "take"
    if base is None or ours is None or theirs is None:
        return "conflict"
    if not (base.kind == ours.kind == theirs.kind):
        return "conflict"
    if _content(base) == _content(ours) and _content(base) == _content(theirs):
        return "conflict"  # two other modes
    return "combine"


def same(a: Entry | None, b: Entry | None) -> bool:
    return same_shape(a, b) and (a is None or b is None or _content(a) == _content(b))


def both(a: Entry | None, b: Entry | None, kind: str) -> bool:
    return a is not None and b is not None and a.kind == b.kind == kind


@each("base", KINDS)
def test_every_kind_against_every_kind_against_every_kind(base: str) -> None:
    seen = 0
    for first, ours, theirs in CASES:
        if first != base:
            continue
        decision = decided(change_of(KINDS[base], KINDS[theirs]), KINDS[ours])
        assert decision.outcome == expected(KINDS[base], KINDS[ours], KINDS[theirs]), (base, ours, theirs)
        assert bool(decision.reason) == (decision.outcome == "conflict")
        seen += 1
    assert seen == (len(KINDS) - 1) * len(KINDS)


def test_the_table_has_no_row_too_many_and_none_too_few() -> None:
    reached = set()
    for base, ours, theirs in CASES:
        change = change_of(KINDS[base], KINDS[theirs])
        here = KINDS[ours]
        for content in (False, True):
            reached.add((theirs_delta(change), delta_of(change.base, here, content=content)))
            if change.base is not None and change.staged is not None and change.base.kind == change.staged.kind:
                xattr = change._replace(staged=change.base, flags=("xattr",))
                reached.add((theirs_delta(xattr), delta_of(change.base, here, content=content)))
    doubtful = {(theirs, "doubt") for theirs, _ours in reached if theirs != "new"}  # by stamps, not by shapes
    assert reached | doubtful == set(TABLE)


def test_the_table_in_the_text_is_the_table() -> None:
    text = merge.__doc__ or ""
    rows = [line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0] in get_args(Delta)]
    columns = ("same", "mode", "content", "kind", "gone", "new", "doubt")
    told = {
        (row[0], column): outcome
        for row in rows
        if len(row) == 8
        for column, outcome in zip(columns, row[1:], strict=True)
        if outcome in get_args(Outcome)
    }
    assert told == {pair: decision.outcome for pair, decision in TABLE.items()}


@pytest.mark.parametrize(
    ("base", "ours", "theirs"), [(0o644, 0o644, 0o755), (0o644, 0o755, 0o644), (0o600, 0o755, 0o755)]
)
def test_modes_that_go_together(base: int, ours: int, theirs: int) -> None:
    assert combine_modes(base, ours, theirs) == 0o755


def test_modes_that_do_not() -> None:
    assert combine_modes(0o644, 0o600, 0o755) is None


@each(
    ("base", "ours", "theirs", "expected"),
    [
        (0o644, 0o644, 0o6777, 0o777),
        (0o644, 0o600, 0o4644, 0o600),  # all that the fork has changed is what it may not
        (0o4755, 0o4755, 0o755, 0o755),  # to take it away is no harm
        (0o4755, 0o4755, 0o6711, 0o4711),
        (0o4755, 0o755, 0o4700, 0o700),  # the project has taken it away
        (0o644, 0o600, 0o4755, None),
        (None, 0o600, 0o4755, 0o600),
    ],
)
def test_only_the_projects_own_file_may_act_as_its_owner(
    base: int | None, ours: int, theirs: int, expected: int | None
) -> None:
    assert merged_mode(base, ours, theirs) == expected


@each(("ours", "theirs"), list(itertools.product(KINDS, KINDS)))
def test_an_original_that_is_not_known_is_never_taken_for_ours(ours: str, theirs: str) -> None:
    if KINDS[theirs] == BASE:
        return
    decision = decided(change_of(BASE, KINDS[theirs], original_known=False), KINDS[ours])
    settled = same(KINDS[ours], KINDS[theirs])
    assert decision.outcome == ("satisfied" if settled else "conflict")
    assert decision.reason == ("" if settled else "edited in the project while the command was running")


def test_new_names_in_a_directory_are_no_change_of_it() -> None:
    change = Change(b"d", "modified", directory(), directory(mode=0o700), flags=("mode",))
    assert decided(change, directory(mtime=99, links=3)) == TAKE


@pytest.mark.parametrize(
    ("field", "value"), [("mode", 0o600), ("size", 5), ("inode", 99), ("mtime", 6), ("kind", "fifo")]
)
def test_without_a_look_at_the_content_the_slightest_touch_is_a_change(field: str, value: object) -> None:
    touched = BASE._replace(**{field: value})  # type: ignore[arg-type]
    assert _delta_by_stamp(change_of(BASE, THEIRS), touched) != "same"
    assert _delta_by_stamp(change_of(BASE, THEIRS), BASE) == "same"
