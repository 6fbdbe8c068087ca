"""Commits of forks of linked work trees and submodules come to the repository outside of the project; real git."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Place, full_listing
from mudroom.errors import UsageError
from mudroom.ext.commits.session import bring_commits
from worktree import (
    LAYOUTS,
    REPLACING,
    WAYS,
    commit_in_another_way,
    commit_on_a_frozen_base,
    git,
    inside,
    link,
    linked,
    make_main,
    nothing_lands_below_a_file,
    out,
    relative,
    replace_the_repository,
)

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.both_users,
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_commits_of_a_fork_come_over(place: Place, layout: str) -> None:
    repository = LAYOUTS[layout](place)
    before = git(repository, "git for-each-ref"), git(repository, "git worktree list")
    files = full_listing(repository)
    assert out(place, "git status --porcelain --branch", "f").splitlines() == ["## wt"]
    out(
        place,
        "echo two >> file; git add file; git commit -qm two; echo three > new; git add new; git commit -qm 3",
        "f",
    )
    assert out(place, "git log --format=%s; git status --porcelain", "f").split() == ["3", "two", "one"]
    assert full_listing(repository) == files, "the real repository was written"
    session = place.session()
    brought = bring_commits(session, "f")
    assert [commit.subject for commit in brought.commits] == ["two", "3"]
    assert git(place.project, "git log --format=%s mudroom/f").split() == ["3", "two", "one"]
    assert git(place.project, "git fsck --full --strict 2>&1 || echo bad").count("bad") == 0
    after = git(repository, "git for-each-ref"), git(repository, "git worktree list")
    assert [line for line in after[0].splitlines() if "mudroom/" not in line] == before[0].splitlines()
    assert after[1] == before[1]


@pytest.mark.parametrize("layout", [relative, link], ids=["relative", "link"])
def test_commits_by_other_ways_to_the_same_repository(place: Place, layout: Callable[[Place], Path]) -> None:
    layout(place)
    out(place, "echo two > file; git commit -qam two", "f")
    assert len(bring_commits(place.session(), "f").commits) == 1


def test_commits_come_after_a_plain_apply(place: Place) -> None:
    linked(place)
    out(place, "echo two >> file; git commit -qam two; echo new > new", "f")
    session = place.session()
    assert session.changes.apply("f").conflicts == ()
    assert [commit.subject for commit in bring_commits(session, "f").commits] == ["two"]


def test_nothing_lands_below_a_file_with_commits(place: Place) -> None:
    nothing_lands_below_a_file(place, git=True)


@pytest.mark.parametrize("script", REPLACING)
def test_a_repository_that_the_fork_replaces_does_not_come(place: Place, script: str) -> None:
    replace_the_repository(place, script, git=True)


@pytest.mark.parametrize("mode", ["copy", "snapshot"])
def test_commits_on_a_frozen_base(place: Place, mode: str) -> None:
    commit_on_a_frozen_base(place, mode)
    assert [c.subject for c in bring_commits(place.session(), "f").commits] == ["two"]


@pytest.mark.parametrize("kind", WAYS)
def test_commits_of_other_ways_to_run(place: Place, kind: str) -> None:
    session = commit_in_another_way(place, kind)
    assert [commit.subject for commit in bring_commits(session, "f").commits] == ["two"]


def test_commits_of_a_fork_that_stands_still(place: Place) -> None:
    main = linked(place)
    out(place, "echo new > new; git add new; git commit -qm fork", "f")
    (place.project / "file").write_text("user\n")
    git(place.project, "git commit -qam user")
    git(main, "git branch -f side; git gc -q --prune=now; git pack-refs --all")
    assert out(place, "git log --format=%s", "f").split() == ["fork", "one"]
    session = place.session()
    bring_commits(session, "f")
    git(place.project, "git merge -q --no-edit mudroom/f; git fsck --full --strict")


def test_commits_of_a_submodule_of_a_work_tree(place: Place) -> None:
    main = make_main(place)
    upper = place.root / "super"
    upper.mkdir()
    git(
        upper,
        f"git init -q; git submodule add -q {main} x; git commit -qm super; git worktree add -q -b wt {place.project}",
    )
    git(place.project, "git submodule -q update --init")
    assert out(place, "git status --porcelain; git -C x log --format=%s", "f").split() == ["one"]
    out(place, "cd x; echo y > file; git commit -qam y; cd ..; git commit -qam up", "f")
    session = place.session()
    assert len(bring_commits(session, "f", repository=b"x/.git").commits) == 1
    assert len(bring_commits(session, "f").commits) == 1


def test_commits_of_a_repository_that_is_gone_for_a_while(place: Place) -> None:
    main = linked(place)
    out(place, "echo x > x; git add x; git commit -qm x", "f")
    main.rename(place.root / "elsewhere")
    result = inside(place, "echo y > y; git log 2>&1 || true", "f")
    assert result.exit_code == 0
    with pytest.raises(UsageError):
        bring_commits(place.session(), "f")
    (place.root / "elsewhere").rename(main)
    assert [c.subject for c in bring_commits(place.session(), "f").commits] == ["x"]


def test_several_work_trees(place: Place) -> None:
    main = linked(place)
    git(main, "git worktree add -q ../third side")
    before = full_listing(place.root / "third"), git(main, "git worktree list --porcelain")
    out(place, "git switch -q side; echo s > s; git add s; git commit -qm s", "f")
    bring_commits(place.session(), "f")
    assert (full_listing(place.root / "third"), git(main, "git worktree list --porcelain")) == before


def test_a_branch_and_its_work_tree_move_with_git(place: Place) -> None:
    main = linked(place)
    others = "git rev-parse main side v1; git -C ../main status --porcelain --branch"
    before = git(place.project, others)
    out(place, "echo two >> file; git commit -qam two; git branch new; git tag t2", "f")
    session = place.session()
    landed = session.changes.apply("f", git=True)
    assert landed.conflicts == ()
    assert git(place.project, "git log --format=%s; git status --porcelain; git symbolic-ref HEAD").split() == [
        "two", "one", "refs/heads/wt",
    ]  # fmt: skip
    assert git(place.project, "git rev-parse new t2").split() == git(place.project, "git rev-parse wt wt").split()
    assert git(place.project, others) == before
    assert git(main, "git fsck --full --strict") == ""
    session.changes.undo()
    assert git(place.project, "git log --format=%s; git status --porcelain").split() == ["one"]
    session.changes.redo()
    assert git(place.project, "git log --format=%s; git status --porcelain").split() == ["two", "one"]


def test_no_two_work_trees_get_one_branch(place: Place) -> None:
    main = linked(place)
    git(main, "git worktree add -q ../third side")
    out(place, "git switch -q side; echo s > s; git add s; git commit -qm s", "f")
    before = git(main, "git worktree list --porcelain")
    place.session().changes.apply("f", git=True)
    assert git(main, "git worktree list --porcelain") == before
    assert git(main, "git log --format=%s -1 mudroom/f").split() == ["s"]


def test_another_repository_than_its_own_is_never_written(place: Place) -> None:
    """A stranger's archive may have a ``.git`` file that leads to a repository of the user's."""
    (place.root / "stranger").mkdir()
    git(place.root / "stranger", "git init -q; echo s > s; git add s; git commit -qm s")
    files = full_listing(place.root / "stranger")
    place.write(".git", "gitdir: ../stranger/.git\n")
    out(place, "rm .git; git init -q; echo x > x; git add x; git commit -qm x", "f")
    session = place.session()
    with pytest.raises(UsageError, match="does not name this directory"):
        bring_commits(session, "f")
    assert full_listing(place.root / "stranger") == files


def test_no_commit_goes_to_a_work_tree_that_a_link_of_the_project_leads_to(place: Place) -> None:
    """The fork replaces the link by a directory with a repository: that is not the one at the link's end."""
    main, tree = place.root / "main", place.root / "tree"
    main.mkdir()
    git(main, f"git init -q; git commit -q --allow-empty -m one; git worktree add -q {tree}")
    (place.project / "sub").symlink_to(tree)
    done = inside(
        place,
        "rm sub; mkdir sub; cd sub; git init -q; echo x > f; git add .; git commit -qm theirs; git log --format=%s",
    )
    assert done.stdout == b"theirs\n", done.stderr
    before = git(main, "git for-each-ref; git count-objects")
    session = place.session()
    with (
        session.alone("a test"),
        pytest.raises(UsageError, match="belongs to a repository outside of the project, whose work tree is not in it"),
    ):
        bring_commits(session, done.fork, repository=b"sub/.git")
    assert git(main, "git for-each-ref; git count-objects") == before
