"""Commits of a fork that come with its files if they are asked for, and new repositories with masked files."""

from __future__ import annotations

import os
import shutil

import pytest
from handgit import git, with_settings

from conftest import Place, full_listing, listing
from mudroom.errors import UsageError
from mudroom.ext.commits.git.user_settings import UserFiles
from mudroom.ext.commits.session import CommitRequest, apply_as_commit, bring_commits
from mudroom.session import Session
from whole_text import whole

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def project(place: Place) -> Place:
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    return place


def staged(place: Place, script: str, **how: object) -> tuple[object, object]:
    session, result = place.sh(with_settings(script))
    assert result.exit_code == 0, result.stderr
    return result, session.changes.apply(result.fork, **how)  # type: ignore[arg-type]


def remarks(result: object) -> dict[bytes, str]:
    return {remark.path: remark.text for remark in result.changeset.remarks}  # type: ignore[attr-defined]


def test_a_commit_comes_as_a_whole_when_it_is_asked_for(project: Place) -> None:
    staged(project, "echo two >> file; git commit -qam two; echo new > new; git add new; echo 3 >> file", git=True)
    assert git(project.project, "git log --format=%s").split() == ["two", "one"]
    assert git(project.project, "git status --porcelain") == " M file\n?? new\n", "the fork's index stays in the fork"
    assert git(project.project, "git fsck --strict") == ""


def test_a_commit_that_comes_in_both_ways_in_any_order(project: Place) -> None:
    session, result = project.sh(with_settings("echo two >> file; git commit -qam two"))
    bring_commits(session, result.fork)
    session.changes.apply(result.fork, git=True)
    show = "git status --porcelain; git fsck --strict; git log --format=%s"
    assert git(project.project, show).split() == ["two", "one"]
    session.changes.undo()
    session.changes.undo()
    assert git(project.project, "git status --porcelain; git log --format=%s; git branch").split() == [
        "one",
        "*",
        "main",
    ]


def test_removing_the_repository_does_not_remove_it_even_if_it_is_asked_for(project: Place) -> None:
    before = full_listing(project.project)
    with pytest.raises(UsageError, match=r"\.git in the fork is gone: its commits cannot be brought"):
        staged(project, "rm -rf .git; echo new > new", git=True)
    assert full_listing(project.project) == before
    assert git(project.project, "git status --porcelain; git fsck --strict") == ""


def test_hooks_and_settings_are_not_lifted_by_asking_for_the_repository(project: Place) -> None:
    config = (project.project / ".git/config").read_text()
    script = "git config core.fsmonitor /tmp/evil; mkdir -p .git/hooks; echo evil > .git/hooks/post-commit"
    _result, landed = staged(project, script + "; echo x > file; git commit -qam two", git=True)
    assert (project.project / ".git/config").read_text() == config
    assert not (project.project / ".git/hooks/post-commit").exists()
    assert {b".git/config", b".git/hooks/post-commit"} <= set(landed.withheld)  # type: ignore[attr-defined]
    assert git(project.project, "git log --format=%s").split() == ["two", "one"]


def test_a_work_tree_that_the_fork_made_is_left_out_of_its_commits(project: Place) -> None:
    script = "git worktree add -q trees/wt -b feature; cd trees/wt; echo w > w; git add -A; git commit -qm w"
    session, result = project.sh(with_settings(script))
    session.changes.apply(result.fork)
    session.changes.apply(result.fork, git=True)
    assert git(project.project, "git worktree list --porcelain").count("worktree ") == 1
    assert git(project.project, "git worktree add trees/wt feature; git -C trees/wt status --porcelain; ls trees/wt")
    assert git(project.project, "git fsck --full --strict") == ""


def test_a_submodule_that_the_fork_added_is_made_by_git(project: Place) -> None:
    git(project.project, "mkdir lib; cd lib; git init -q; echo l > l; git add -A; git commit -qm lib")
    git(project.project, "echo /lib > .gitignore; git add .gitignore; git commit -qm ignore")
    script = "git submodule --quiet add ./lib sub; git commit -qm sub"
    session, result = project.sh(with_settings(script.replace("./lib", f"file://{project.project}/lib")))
    assert result.exit_code == 0, result.stderr
    assert "git submodule update --init sub makes it" in remarks(result)[b"sub"]
    landed = session.changes.apply(result.fork, git=True)
    assert not (project.project / "sub/l").exists() and b"sub/l" in landed.withheld
    assert git(project.project, "git log -1 --format=%s; git status --porcelain; git fsck --full --strict") == "sub\n"
    git(project.project, "git submodule --quiet update --init sub")
    assert git(project.project, "cat sub/l; git status --porcelain; git submodule status; git fsck --full").startswith(
        "l\n"
    )


def test_a_new_repository_does_not_hold_a_masked_file_emptied(place: Place) -> None:
    place.write(".env", "KEY=1\n")
    place.write("file", "one\n")
    session, result = place.sh(with_settings("git init -q; git add -A; git commit -qm one"))
    told = ".env is masked, and the index of .git, which the fork made, holds it as an empty file"
    hint = "in the fork: git rm --cached .env, and commit anew; or apply without it: name other paths"
    with pytest.raises(UsageError, match=whole(f"{told} ({hint})")):
        session.changes.apply(result.fork)
    assert sorted(listing(place.project)) == [".env", "file"]
    session.run([b"sh", b"-c", with_settings("git rm -q --cached .env; git commit -qm two").encode()], fork=result.fork)
    with pytest.raises(UsageError, match=r"\.env is masked, and the commit [0-9a-f]{12} of \.git"):
        session.changes.apply(result.fork)
    script = with_settings("git update-ref -d HEAD; git add file; git commit -qm one")
    session.run([b"sh", b"-c", script.encode()], fork=result.fork)
    assert session.changes.apply(result.fork).withheld == ()
    assert git(place.project, "git status --porcelain; git fsck --full --strict; cat .env") == "?? .env\nKEY=1\n"


def test_a_file_that_the_user_changed_after_the_merge_is_still_a_conflict(project: Place) -> None:
    session, result = project.sh(with_settings("echo two >> file; git commit -qam two; echo three >> file"))
    git(project.project, "git commit -q --allow-empty -m theirs")
    session.changes.apply(result.fork, git=True)
    git(project.project, f"git merge -qm merged mudroom/{result.fork}")
    project.write("file", "one\ntwo\nmine\n")
    assert [conflict.path for conflict in session.changes.apply(result.fork).conflicts] == [b"file"]
    assert (project.project / "file").read_text() == "one\ntwo\nmine\n"


def test_nothing_is_brought_to_a_base(project: Place) -> None:
    """The project of another machine, which is only read on this one."""
    places = (os.fsencode(path) for path in (project.project, project.state, project.home))
    real, state, home = places
    with Session.open(real, state=state, home=home, environ={}, appears_at=b"/elsewhere/project") as session:
        user = UserFiles(home, ())
        for bring in (
            lambda: bring_commits(session, "k"),
            lambda: apply_as_commit(session, "k", CommitRequest("two", user)),
        ):
            with pytest.raises(UsageError, match=r"^/elsewhere/project is only shown here: its changes are"):
                bring()
