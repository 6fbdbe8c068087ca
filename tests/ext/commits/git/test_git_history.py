"""Which commits are new, for histories of any shape, against what can be reached at all."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from handgit import Copy, git
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom.errors import UsageError
from tiers import examples

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Shape(NamedTuple):
    parents: list[list[int]]
    """Of each commit; every number is less than the commit's own."""
    tips: list[int]
    """Commits that have a branch in the project."""
    left: list[int]
    """Commits of which the project has the objects, with those of what is before them, but no branch."""
    head: int
    pace: int = 1
    """Commits in a second: git rebase makes several."""


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    count = draw(st.integers(1, 9))
    one = st.integers(0, count - 1)
    parents = [draw(st.lists(st.integers(0, at - 1), max_size=3, unique=True)) if at else [] for at in range(count)]
    return Shape(
        parents,
        draw(st.lists(one, max_size=3)),
        draw(st.lists(one, max_size=2)),
        draw(one),
        draw(st.sampled_from((1, 9))),
    )


def reached(shape: Shape, starts: list[int]) -> set[int]:
    found: set[int] = set()
    pending = list(starts)
    while pending:
        at = pending.pop()
        if at not in found:
            found.add(at)
            pending += shape.parents[at]
    return found


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(shapes())
def test_any_history(shape: Shape) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        check(Copy(root), shape)
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("head", range(8))
def test_commits_of_one_second(tmp_path: Path, head: int) -> None:
    """Their order by time says nothing of which reaches which."""
    check(Copy(tmp_path), Shape([[], *([at] for at in range(8))], [8], [], head, pace=9))


def check(copy: Copy, shape: Shape) -> None:
    ids: list[str] = []
    kept = reached(shape, [*shape.tips, *shape.left])
    for number, above in enumerate(shape.parents):
        blob = copy.object("blob", b"%d" % number)
        tree = copy.tree(("100644", b"f%d" % number, blob))
        who = b"T <t@example.org> %d +0000" % (1700000000 + number // shape.pace)
        ids.append(copy.commit(tree, *(ids[at] for at in above), author=who, committer=who, rest=b"\n%d\n" % number))
        for name in (blob, tree, ids[-1]) if number in kept else ():
            target = copy.project / ".git/objects" / name[:2] / name[2:]
            target.parent.mkdir(exist_ok=True)
            shutil.copy(copy.path_of(name), target)
    for number in shape.tips:
        (copy.project / f".git/refs/heads/tip{number}").write_text(ids[number] + "\n")
    copy.set_head(ids[shape.head])
    new = reached(shape, [shape.head]) - reached(shape, shape.tips)
    if not new:
        with pytest.raises(UsageError, match="has no commits that the repository does not have"):
            copy.bring()
        return
    found = copy.bring()
    order = [int(one.subject) for one in found.commits]
    assert sorted(order) == sorted(new)
    assert all(order.index(at) > order.index(above) for at in order for above in shape.parents[at] if above in new)
    assert found.objects == 3 * len(new - kept)
    listed = git(copy.project, "git rev-list mudroom/agent").split()
    assert {ids.index(name) for name in listed} == reached(shape, [shape.head])
