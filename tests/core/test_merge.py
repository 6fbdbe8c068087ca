"""The merge table, whole: what the fork wants, what the project has now, whether the original is known."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample import added, deleted, directory, file, modified, symlink

from mudroom.core.change import Change
from mudroom.core.entry import Entry, same_stamp
from mudroom.core.merge import SATISFIED, TAKE, Decision, decide

Ours = Literal["as base", "as theirs", "something else", "gone"]

BASE, THEIRS, OTHER = file(1), file(2, inode=20), file(3, inode=30)
CHANGES = {
    "modified": modified(b"f", BASE, THEIRS),
    "added": added(b"f", THEIRS),
    "renamed": Change(b"f", "renamed", None, THEIRS, source=b"e"),
    "deleted": deleted(b"f", BASE),
}
TABLE: dict[tuple[str, Ours], str] = {
    ("modified", "as base"): "take",
    ("modified", "as theirs"): "satisfied",
    ("modified", "something else"): "conflict",
    ("modified", "gone"): "conflict",
    ("added", "as base"): "take",
    ("added", "as theirs"): "satisfied",
    ("added", "something else"): "conflict",
    ("added", "gone"): "take",
    ("renamed", "as base"): "take",
    ("renamed", "as theirs"): "satisfied",
    ("renamed", "something else"): "conflict",
    ("renamed", "gone"): "take",
    ("deleted", "as base"): "take",
    ("deleted", "as theirs"): "satisfied",
    ("deleted", "something else"): "conflict",
    ("deleted", "gone"): "satisfied",
}
REASONS = {
    ("modified", "something else"): "also changed in the project since the command ran",
    ("modified", "gone"): "deleted in the project meanwhile",
    ("added", "something else"): "the project has gained a different one meanwhile",
    ("renamed", "something else"): "the project has gained a different one meanwhile",
    ("deleted", "something else"): "changed in the project since the command ran",
}


def decided(change: Change, state: Ours) -> Decision:
    sides = {"as base": change.base, "as theirs": change.staged, "something else": OTHER, "gone": None}
    ours = sides[state]
    return decide(change, ours, ours_is_theirs=ours == change.staged)


@pytest.mark.parametrize(("verb", "state"), TABLE)
def test_the_table(verb: str, state: Ours) -> None:
    assert decided(CHANGES[verb], state) == (TABLE[verb, state], REASONS.get((verb, state), ""))


@pytest.mark.parametrize(("verb", "state"), [case for case in TABLE if case[0] in ("modified", "deleted")])
def test_an_original_that_is_not_known_is_never_taken_for_ours(verb: str, state: Ours) -> None:
    expected = "satisfied" if TABLE[verb, state] == "satisfied" else "conflict"
    decision = decided(CHANGES[verb]._replace(original_known=False), state)
    assert decision.outcome == expected
    assert decision.reason == ("" if expected == "satisfied" else "edited in the project while the command was running")


@pytest.mark.parametrize(
    ("field", "value"), [("mode", 0o600), ("size", 5), ("inode", 99), ("device", 9), ("mtime", 6), ("kind", "fifo")]
)
def test_the_slightest_touch_by_the_user_is_a_conflict(field: str, value: object) -> None:
    for change in (CHANGES["modified"], CHANGES["deleted"]):
        touched = BASE._replace(**{field: value})  # type: ignore[arg-type]
        assert decide(change, touched, ours_is_theirs=False).outcome == "conflict"


def test_new_names_in_a_directory_are_no_change_of_it() -> None:
    change = modified(b"d", directory(), directory(mode=0o700), flags=("mode",))
    assert decide(change, directory(mtime=99, links=3), ours_is_theirs=False) == TAKE


def sides() -> st.SearchStrategy[Entry | None]:
    return st.sampled_from([None, BASE, THEIRS, OTHER, directory(), symlink()])


@given(sides(), sides(), sides(), st.booleans())
def test_what_is_decided_never_loses_an_edit(
    base: Entry | None, ours: Entry | None, theirs: Entry | None, known: bool
) -> None:
    if base == theirs:
        return
    verb = "added" if base is None else "deleted" if theirs is None else "modified"
    change = Change(b"f", verb, base, theirs, original_known=known or base is None)  # type: ignore[arg-type]
    decision = decide(change, ours, ours_is_theirs=ours == theirs)
    if decision == TAKE:
        assert same_stamp(base, ours), "only what the fork started from is replaced"
        assert change.original_known
    elif decision == SATISFIED:
        assert ours == theirs
    else:
        assert decision.outcome == "conflict"
        assert decision.reason
