"""An undo takes the branch of commits back, unless somebody works on it."""

from __future__ import annotations

import shutil

import pytest
from agent_repository import Agent, agent, project, subjects
from handgit import fsck, git

from conftest import full_listing

__all__ = ["agent", "project"]  # fixtures
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_a_new_branch_is_removed_again(agent: Agent) -> None:
    project = agent.place.project
    agent.run("echo two >> file; git commit -qam two")
    before = {name for name in full_listing(project) if "objects/pack" not in name}
    found = agent.bring()
    assert agent.undo() == []
    assert {name for name in full_listing(project) if "objects/pack" not in name} == before
    assert git(project, "git branch --list 'mudroom/*'") == ""
    again = agent.bring()
    assert (again.head, again.commits, again.objects) == (found.head, found.commits, 0), "git still has them"
    assert fsck(project) == ""


def test_undo_and_redo(agent: Agent) -> None:
    project = agent.place.project
    agent.run("echo two >> file; git commit -qam two")
    found = agent.bring()
    assert agent.undo() == []
    assert agent.session.changes.redo().refs == ("refs/heads/mudroom/agent",)
    assert git(project, "git rev-parse mudroom/agent").strip() == found.head
    assert agent.undo() == []
    git(project, "git branch mudroom/agent")
    (conflict,) = agent.session.changes.redo().conflicts
    assert "has moved since" in conflict.reason
    assert subjects(project, "mudroom/agent") == ["one"]


def test_a_branch_that_went_forward_goes_back(agent: Agent) -> None:
    project = agent.place.project
    agent.run("echo two >> file; git commit -qam two")
    first = agent.bring()
    agent.run("echo three >> file; git commit -qam three")
    agent.bring()
    git(project, "git pack-refs --all")
    assert agent.undo() == []
    assert git(project, "git rev-parse mudroom/agent").strip() == first.head
    assert [one.subject for one in agent.bring().commits] == ["three"]


def test_what_is_left_of_a_branch_is_completed(agent: Agent) -> None:
    """Of what a removed branch left, git may have gathered a part."""
    project = agent.place.project
    agent.run("mkdir d; echo two > d/two; git add d; git commit -qm two")
    found = agent.bring()
    assert agent.undo() == []
    blob = git(project, f"git rev-parse {found.head}:d/two").strip()
    git(project, "git unpack-objects -q < /dev/null || true; mkdir old; mv .git/objects/pack/* old")
    git(project, "for pack in old/*.pack; do git unpack-objects -q < $pack; done; rm -rf old")
    (project / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert agent.bring().objects == 1
    assert fsck(project) == ""


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("git switch -q mudroom/agent", "is checked out"),
        ("git branch -f mudroom/agent main", "has moved since"),
        ("git branch -qD mudroom/agent", ""),
    ],
)
def test_a_branch_that_somebody_works_on_is_not_taken_back(agent: Agent, script: str, reason: str) -> None:
    project = agent.place.project
    agent.run("echo two >> file; git commit -qam two")
    agent.bring()
    git(project, script)
    before = git(project, "git for-each-ref; git status --porcelain --branch")
    reasons = agent.undo()
    assert [reason in told for told in reasons] == ([True] if reason else [])
    assert git(project, "git for-each-ref; git status --porcelain --branch") == before
