"""Where each ref of a fork goes in the project: the table of ``ref_plan.py``, row by row."""

from __future__ import annotations

import pytest

from mudroom.ext.commits.core.ref_plan import (
    HEAD,
    HeadSides,
    RefLookup,
    RefMove,
    RefPlan,
    RefPlanOptions,
    RefSides,
    name_conflicts,
    plan_refs,
)
from tiers import each

MAIN, FEATURE, TAG, NOTES = b"refs/heads/main", b"refs/heads/feature", b"refs/tags/v1", b"refs/notes/commits"
ON_MAIN = HeadSides(MAIN, MAIN, MAIN, b"a2")
NOT_WHOLE = "not all files were applied"


def plan(
    refs: dict[bytes, RefSides],
    head: HeadSides = ON_MAIN,
    live: dict[bytes, bytes] | None = None,
    not_whole: str = "",
    head_beside: bytes = b"",
    checked_out: dict[bytes, bool] | None = None,
    reached: tuple[bytes, ...] = (),
) -> RefPlan:
    """Plan with commits ``a1``, ``a2``, … in one line of history, and ``b1``, … in others."""
    values = {name: sides.live for name, sides in refs.items() if sides.live} | (live or {})
    repositories = RefLookup(
        lambda name: values.get(name, b""),
        {MAIN: True} if checked_out is None else checked_out,
        lambda one, other: one[:1] == other[:1] == b"a" and one <= other,
        lambda commit: commit in reached,
        name_conflicts(values),
    )
    return plan_refs(refs, head, repositories, RefPlanOptions(b"f", not_whole, head_beside))


def results(found: RefPlan) -> list[tuple[bytes, str, bytes]]:
    return [(outcome.ref, outcome.result, outcome.target) for outcome in found.outcomes]


@each(
    ("sides", "result", "moves"),
    [
        (RefSides(b"a1", b"a1", b"b1"), None, ()),
        (RefSides(b"a1", b"", b"a1"), ("kept", b""), ()),
        (RefSides(b"a1", b"", b""), None, ()),
        (RefSides(b"a1", b"a2", b"a2"), ("there", b""), ()),
        (RefSides(b"", b"a2", b"a2"), ("there", b""), ()),
        (RefSides(b"a1", b"a2", b"a3"), ("there", b""), ()),
        (RefSides(b"a1", b"a2", b"a1"), ("moved", FEATURE), (RefMove(FEATURE, b"a1", b"a2"),)),
        (RefSides(b"a1", b"b1", b"a1"), ("moved", FEATURE), (RefMove(FEATURE, b"a1", b"b1"),)),
        (RefSides(b"", b"a2", b""), ("moved", FEATURE), (RefMove(FEATURE, b"", b"a2"),)),
        (RefSides(b"a1", b"a3", b"a2"), ("moved", FEATURE), (RefMove(FEATURE, b"a2", b"a3"),)),
        (RefSides(None, b"a3", b"a2"), ("moved", FEATURE), (RefMove(FEATURE, b"a2", b"a3"),)),
        (
            RefSides(None, b"b1", b"a2"),
            ("beside", b"refs/heads/mudroom/f-feature"),
            (RefMove(b"refs/heads/mudroom/f-feature", b"", b"b1"),),
        ),
        (
            RefSides(b"a1", b"a2", b"b1"),
            ("beside", b"refs/heads/mudroom/f-feature"),
            (RefMove(b"refs/heads/mudroom/f-feature", b"", b"a2"),),
        ),
        (
            RefSides(b"a1", b"a2", b""),
            ("beside", b"refs/heads/mudroom/f-feature"),
            (RefMove(b"refs/heads/mudroom/f-feature", b"", b"a2"),),
        ),
    ],
)
def test_a_branch(sides: RefSides, result: tuple[str, bytes] | None, moves: tuple[RefMove, ...]) -> None:
    found = plan({FEATURE: sides})
    assert results(found) == ([] if result is None else [(FEATURE, *result)])
    assert found.moves == moves


@each(
    ("name", "sides", "target"),
    [
        (TAG, RefSides(b"", b"a2", b""), TAG),
        (TAG, RefSides(b"a1", b"a2", b"a1"), TAG),
        (TAG, RefSides(b"", b"a2", b"a1"), b"refs/tags/mudroom/f-v1"),
        (NOTES, RefSides(b"a1", b"a3", b"a2"), NOTES),
        (NOTES, RefSides(b"a1", b"a3", b"b1"), b"refs/notes/mudroom/f-commits"),
    ],
)
def test_tags_and_notes(name: bytes, sides: RefSides, target: bytes) -> None:
    """A tag never moves forward by itself: its value is a promise."""
    assert plan({name: sides}).moves[0].name == target


@each(
    "name",
    [
        b"refs/remotes/origin/main",
        b"refs/replace/a1",
        b"refs/bisect/bad",
        b"refs/worktree/x",
        b"refs/rewritten/x",
        b"refs/unheard/of",
    ],
)
def test_refs_that_are_left(name: bytes) -> None:
    found = plan({name: RefSides(b"", b"a2", b"")})
    assert results(found) == [(name, "left", b"")]
    assert found.moves == () and found.outcomes[0].reason


def test_stashes_are_planned_apart() -> None:
    assert plan({b"refs/stash": RefSides(b"", b"a2", b"")}) == RefPlan((), ())


# --- names beside ---


def test_names_beside_are_numbered() -> None:
    sides = RefSides(b"a1", b"b2", b"a2")
    first, second = b"refs/heads/mudroom/f-feature", b"refs/heads/mudroom/f-feature-2"
    assert plan({FEATURE: sides}, live={first: b"b1"}).moves == (RefMove(second, b"", b"b2"),)
    assert results(plan({FEATURE: sides}, live={first: b"b2"})) == [(FEATURE, "there", first)], "a repeat"
    forward = plan({FEATURE: RefSides(b"b0", b"a2", b"b1")}, live={first: b"a1"})
    assert forward.moves == (RefMove(first, b"a1", b"a2"),), "the fork went on"
    busy = plan({FEATURE: sides}, checked_out={first: True})
    assert busy.moves == (RefMove(second, b"", b"b2"),)


def test_two_refs_never_get_the_same_name() -> None:
    refs = {MAIN: RefSides(b"a1", b"a2", b"b1"), b"refs/heads/f": RefSides(b"a1", b"a2", b"b1")}
    names = [move.name for move in plan(refs).moves]
    assert len(set(names)) == 2 and b"refs/heads/mudroom/f" in names


def test_no_free_name() -> None:
    found = plan({FEATURE: RefSides(b"a1", b"b2", b"a2")}, live={b"refs/heads/mudroom": b"a1"})
    assert results(found) == [(FEATURE, "left", b"")]
    assert "no free name" in found.outcomes[0].reason


@pytest.mark.parametrize("other", [b"refs/heads/feature/x", b"refs/heads"])
def test_a_ref_in_the_way(other: bytes) -> None:
    found = plan({FEATURE: RefSides(b"", b"a2", b"")}, live={other: b"a1"})
    assert FEATURE not in {move.name for move in found.moves}
    assert "cannot exist beside another ref" in found.outcomes[0].reason


def test_name_conflicts() -> None:
    conflicts = name_conflicts([b"refs/heads/a/b", b"refs/heads/c"])
    assert [conflicts(b"refs/heads/" + name) for name in (b"a", b"a/b", b"a/b/c", b"ab", b"c", b"c/d", b"d")] == [
        True,
        False,
        True,
        False,
        False,
        True,
        False,
    ]


# --- the checked-out branch and HEAD ---


def test_the_checked_out_branch() -> None:
    refs = {MAIN: RefSides(b"a1", b"a2", b"a1")}
    beside = RefMove(b"refs/heads/mudroom/f", b"", b"a2")
    assert plan(refs).moves == (RefMove(MAIN, b"a1", b"a2"),)
    found = plan(refs, not_whole=NOT_WHOLE)
    assert (found.moves, found.outcomes[0].reason) == ((beside,), f"is checked out, and {NOT_WHOLE}")
    found = plan(refs, checked_out={MAIN: False})
    assert found.moves == (beside,) and "another work tree" in found.outcomes[0].reason
    assert plan(refs, not_whole=NOT_WHOLE, checked_out={}).moves == (RefMove(MAIN, b"a1", b"a2"),)


NEW = {FEATURE: RefSides(b"", b"a2", b"")}


def test_head_goes_to_a_new_branch() -> None:
    head = HeadSides(MAIN, FEATURE, MAIN, b"a2")
    assert plan(NEW, head).moves == (RefMove(FEATURE, b"", b"a2"), RefMove(HEAD, MAIN, FEATURE))
    kept = plan(NEW, head, not_whole=NOT_WHOLE)
    assert kept.moves == (RefMove(FEATURE, b"", b"a2"),)
    assert results(kept)[-1] == (HEAD, "kept", b"")
    moved = plan(NEW, head._replace(live=b"refs/heads/mine"))
    assert results(moved)[-1] == (HEAD, "kept", FEATURE) and "meanwhile" in moved.outcomes[-1].reason
    assert results(plan(NEW, head._replace(live=FEATURE)))[-1][0] != HEAD, "the user is there already"


@each(
    ("fork", "base", "live", "goes", "lacking"),
    [
        (b"a2", b"a1", b"a1", True, b""),
        (b"b1", b"a1", b"a1", True, b""),
        (b"a3", b"a1", b"a2", True, b""),
        (b"a3", None, b"a2", True, b""),
        (b"a2", None, b"a2", True, b""),
        (b"b1", b"", b"", True, b""),
        (b"b1", None, b"", True, b""),
        (b"b1", b"a1", b"a2", False, FEATURE),
        (b"b1", b"", b"a2", False, FEATURE),
        (b"b1", None, b"a2", False, FEATURE),
        (b"a1", b"a1", b"a2", False, b""),
        (b"a2", b"a1", b"a2", False, b""),
        (b"a2", b"a1", b"a3", False, b""),
    ],
)
def test_head_stays_where_the_user_has_committed(
    fork: bytes, base: bytes | None, live: bytes, goes: bool, lacking: bytes
) -> None:
    """The user's commit would leave HEAD, and its files would be modifications."""
    refs = {FEATURE: RefSides(b"", fork, b"")}
    found = plan(refs, HeadSides(MAIN, FEATURE, MAIN, fork, base, live))
    assert results(found)[-1] == ((HEAD, "moved", FEATURE) if goes else (HEAD, "kept", lacking))
    assert RefMove(FEATURE, b"", fork) in found.moves
    assert (RefMove(HEAD, MAIN, FEATURE) in found.moves) == goes


def test_head_goes_to_a_branch_only_if_that_has_the_commit_of_the_fork() -> None:
    head = HeadSides(MAIN, FEATURE, MAIN, b"a2")
    assert plan({}, head, live={FEATURE: b"a2"}).moves == (RefMove(HEAD, MAIN, FEATURE),)
    assert results(plan({}, head, live={FEATURE: b"a3"})) == [(HEAD, "kept", b"")]
    apart = plan({FEATURE: RefSides(b"a1", b"a2", b"b1")}, head)
    assert apart.moves == (RefMove(b"refs/heads/mudroom/f", b"", b"a2"),)
    assert results(apart)[-1] == (HEAD, "kept", b"")
    assert results(plan({}, head._replace(fork_commit=b""))) == [(HEAD, "kept", b"")], "a branch without a commit"


def test_a_detached_head() -> None:
    head = HeadSides(MAIN, b"a2", MAIN, b"a2")
    assert plan({}, head).moves == (RefMove(b"refs/heads/mudroom/f", b"", b"a2"),)
    assert plan({}, head, reached=(b"a2",)) == RefPlan((), ())


def test_head_arrives_at_the_named_branch() -> None:
    """``apply --commits``: the branch of HEAD comes there and nowhere else."""
    name = b"refs/heads/mudroom/f"
    refs = {MAIN: RefSides(b"a1", b"a2", b"a1"), **NEW}
    found = plan(refs, head_beside=name)
    assert found.moves == (RefMove(name, b"", b"a2"), RefMove(FEATURE, b"", b"a2"))
    assert results(found) == [(HEAD, "beside", name), (FEATURE, "moved", FEATURE)]
    assert results(plan({}, head_beside=name, live={name: b"a2"})) == [(HEAD, "there", name)]
    assert plan({}, head_beside=name, live={name: b"a1"}).moves == (RefMove(name, b"a1", b"a2"),)
    assert plan({}, head_beside=name, reached=(b"a2",)) == RefPlan((), ())
    assert plan({}, ON_MAIN._replace(fork_commit=b""), head_beside=name) == RefPlan((), ())


@pytest.mark.parametrize("live", [b"", b"a2"])
def test_a_branch_of_the_fork_has_the_name_at_which_head_arrives(live: bytes) -> None:
    name = b"refs/heads/mudroom/f"
    beside = b"refs/heads/mudroom/f-mudroom/f"
    found = plan({name: RefSides(None, b"a3", live)}, head_beside=name, live={name: live} if live else {})
    assert results(found) == [(HEAD, "there" if live else "beside", name), (name, "beside", beside)]
    assert [move.name for move in found.moves] == [*([] if live else [name]), beside]


def test_no_two_refs_of_the_fork_arrive_at_one_name() -> None:
    """A branch arrives beside its name, and another has that name, or makes a directory of it."""
    beside = b"refs/heads/mudroom/f-feature"
    rows = {FEATURE: RefSides(b"a1", b"a2", b"b1")}
    for other in (beside, beside + b"/more"):
        found = plan(rows | {other: RefSides(None, b"a3", b"")})
        names = [move.name for move in found.moves]
        assert names[0] == beside and len(set(names)) == len(names) == 2
        assert not name_conflicts(names[:1])(names[1])


def test_a_ref_is_not_there_where_another_arrives() -> None:
    """The branch of HEAD would arrive at ``mudroom/f``, which has its value, but which the fork moves itself."""
    name, side = b"refs/heads/mudroom/f", b"refs/heads/side"
    refs = {name: RefSides(b"a2", b"a4", b"a2"), side: RefSides(b"a1", b"a2", b"b1")}
    found = plan(refs, HeadSides(MAIN, side, MAIN, b"a2"))
    assert found.moves == (RefMove(name, b"a2", b"a4"), RefMove(name + b"-2", b"", b"a2"))
    assert results(found)[:2] == [(name, "moved", name), (side, "beside", name + b"-2")]
