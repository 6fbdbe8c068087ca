"""Where commits of a fork go: names, settings and kinds of the project's repository, work trees and submodules."""

from __future__ import annotations

import os
import shutil
import stat
import zlib
from pathlib import Path

import pytest
from agent_repository import Agent, agent, copy, moved_refs, project, subjects
from handgit import Copy, fsck, git

from conftest import Place, full_listing
from mudroom.errors import MudroomError, UsageError
from whole_text import whole

__all__ = ["agent", "copy", "project"]  # fixtures
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_nothing_new(agent: Agent) -> None:
    agent.run("echo uncommitted >> file")
    with pytest.raises(UsageError, match="the fork agent has no commits that the repository does not have"):
        agent.bring()
    agent.run("git commit -qam two")
    agent.bring()
    before = full_listing(agent.place.project)
    again = agent.bring()
    assert (again.name, again.commits, again.objects) == ("", (), 0), "a repeat is harmless"
    with pytest.raises(UsageError, match="has no commits"):
        agent.bring("another")
    assert full_listing(agent.place.project) == before


def test_a_branch_that_is_checked_out_is_not_moved(agent: Agent) -> None:
    project = agent.place.project
    agent.run("echo two >> file; git commit -qam two")
    with pytest.raises(UsageError, match=whole("main is checked out, so it is not moved (choose another --branch)")):
        agent.bring("main")
    git(project, "git branch theirs; git worktree add -q ../tree theirs")
    with pytest.raises(UsageError, match="theirs is checked out"):
        agent.bring("theirs")
    git(project, "git worktree remove --force ../tree; git branch rebasing; mkdir .git/rebase-merge")
    (project / ".git/rebase-merge/head-name").write_text("refs/heads/rebasing\n")
    with pytest.raises(UsageError, match="rebasing is checked out"):
        agent.bring("rebasing")
    agent.bring("theirs")
    assert subjects(project, "theirs") == ["two", "one"]


@pytest.mark.parametrize(
    "name", ["a..b", "-a", "a.lock", "a b", "HEAD", "refs/tags/x", "a/", "/a", "@{x}", "a\\b", "x" * 300, "a//b", "a~1"]
)
def test_names_that_git_does_not_allow(copy: Copy, name: str) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    with pytest.raises(UsageError, match="cannot be the name of a branch"):
        copy.bring(name)


def test_branches_that_cannot_be_beside_each_other(copy: Copy) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    git(copy.project, "git branch mudroom; git branch a/b; git pack-refs --all")
    with pytest.raises(UsageError, match="cannot exist beside refs/heads/mudroom"):
        copy.bring()
    with pytest.raises(UsageError, match="cannot exist beside refs/heads/a/b"):
        copy.bring("a")


def test_a_branch_that_is_another_name(copy: Copy) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    git(copy.project, "git symbolic-ref refs/heads/other refs/heads/main")
    with pytest.raises(UsageError, match="is a symbolic name of refs/heads/main"):
        copy.bring("other")
    assert subjects(copy.project, "main") == ["one"]


def test_another_git_at_work(copy: Copy) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    git(copy.project, "mkdir -p .git/refs/heads/mudroom; touch .git/refs/heads/mudroom/agent.lock")
    with pytest.raises(UsageError, match="another git command is at work") as told:
        copy.bring()
    assert "agent.lock" in str(told.value)


@pytest.mark.parametrize(("setting", "kept"), [("", True), ("false", False), ("always", True)])
def test_the_log_of_the_branch(copy: Copy, setting: str, kept: bool) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    if setting:
        git(copy.project, f"git config core.logAllRefUpdates {setting}")
    copy.bring()
    found = git(copy.project, "git reflog show mudroom/agent --format='%gs | %gn'")
    assert found == ("mudroom: apply of agent | mudroom\n" if kept else "")


def test_the_permissions_of_a_shared_repository(copy: Copy) -> None:
    git(copy.project, "git config core.sharedRepository group")
    copy.agent("echo two >> file; git commit -qam two")
    previous = os.umask(0o077)
    try:
        copy.bring()
    finally:
        os.umask(previous)
    refs = copy.project / ".git/refs/heads/mudroom"
    (pack,) = (copy.project / ".git/objects/pack").glob("*.pack")
    assert refs.stat().st_mode & 0o2770 == 0o2770
    assert (refs / "agent").stat().st_mode & 0o660 == 0o660
    assert stat.S_IMODE(pack.stat().st_mode) == 0o440


def test_objects_from_elsewhere_that_the_project_has(copy: Copy) -> None:
    """The project's own alternates count; the fork shows the same ones, and cannot see there."""
    git(copy.project.parent, "git clone -q --shared project borrowed")
    copy.project = copy.project.parent / "borrowed"
    shutil.rmtree(copy.fork)
    shutil.copytree(copy.project, copy.fork)
    copy.agent("echo two >> file; git commit -qam two")
    assert copy.bring().objects == 3
    assert fsck(copy.project) == ""


def test_a_shallow_clone(copy: Copy) -> None:
    git(copy.project, "echo 2 >> file; git commit -qam 2; echo 3 >> file; git commit -qam 3")
    git(copy.project.parent, f"git clone -q --depth 1 file://{copy.project} shallow")
    copy.project = copy.project.parent / "shallow"
    shutil.rmtree(copy.fork)
    shutil.copytree(copy.project, copy.fork)
    copy.agent("echo 4 >> file; git commit -qam 4")
    assert [one.subject for one in copy.bring().commits] == ["4"]
    copy.agent("git checkout -q --orphan amended; git commit -qm amended")
    assert copy.bring("amended").objects == 1
    assert fsck(copy.project) == ""


def test_a_partial_clone(copy: Copy) -> None:
    git(copy.project, "mkdir d; echo 2 > d/f; git add d; git commit -qm 2; git config uploadpack.allowFilter true")
    git(
        copy.project.parent,
        f"git clone -q --filter=blob:none --no-checkout file://{copy.project} partial; cd partial;"
        "git sparse-checkout set --no-cone /file; git checkout -q main",
    )
    copy.project = copy.project.parent / "partial"
    shutil.rmtree(copy.fork)
    shutil.copytree(copy.project, copy.fork)
    copy.agent("git remote remove origin; echo 3 > new; git add --sparse new; git commit -qm 3")
    tree, blob = (git(copy.fork, f"git ls-tree HEAD {at}").split()[2] for at in ("d", "d/"))
    entries = copy.tree(("100644", b"gone", blob), ("40000", b"moved", tree))
    head = copy.commit(entries, copy.agent("git rev-parse HEAD").strip())
    copy.set_head(head)
    assert copy.bring().objects == 5
    assert git(copy.project, "git log --format=%s mudroom/agent").split() == ["evil", "3", "2", "one"]
    assert fsck(copy.project) == ""


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    git(tmp_path / "project", "git init -q --object-format=sha256")
    copy = Copy(tmp_path)
    copy.agent("seq 1000 > long; git add long; git commit -qm two; echo 3 >> long; git commit -qam three; git gc -q")
    found = copy.bring()
    assert (len(found.head), [one.subject for one in found.commits]) == (64, ["two", "three"])
    assert fsck(copy.project) == ""
    assert git(copy.project, "git reflog show mudroom/agent --format=%gn") == "mudroom\n"
    assert copy.take_back(found) == []
    assert git(copy.project, "git branch --list 'mudroom/*'") == ""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("refStorage reftable", "the repository keeps its branches as reftable, which mudroom cannot write"),
        ("unheardOf true", "the repository is of a kind that mudroom does not know (unheardof)"),
    ],
)
def test_repositories_of_other_kinds(copy: Copy, settings: str, message: str) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    name, value = settings.split()
    config = copy.project / ".git/config"
    config.write_text(f"[core]\n\trepositoryformatversion = 1\n[extensions]\n\t{name} = {value}\n")
    with pytest.raises(UsageError, match=whole(f"{message} (mudroom diff gives the changes as a patch)")):
        copy.bring()


def test_settings_of_the_repository_that_cannot_be_read(copy: Copy) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    (copy.project / ".git/config").write_text("[core\n")
    told = "the settings of the repository cannot be read: expected trailing ] (git config --list)"
    with pytest.raises(UsageError, match=whole(told)):
        copy.bring()


def test_an_object_of_the_project_that_is_damaged(copy: Copy) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    name = git(copy.project, "git rev-parse HEAD").strip()
    place = copy.project / ".git/objects" / name[:2] / name[2:]
    told = f"the project's own repository is damaged at {name} (git fsck)"
    good = place.read_bytes()
    for content in (b"", b"no zlib", good[:9], zlib.compress(b"commit 5\0short but wrong")):
        place.chmod(0o644)
        place.write_bytes(content)
        with pytest.raises(MudroomError, match=whole(told)):
            copy.bring()
    place.write_bytes(good)
    git(copy.project, "git gc -q")
    for path in (copy.project / ".git/objects/pack").glob("*.*"):
        good = path.read_bytes()
        path.chmod(0o644)
        for content in (b"", good[: len(good) // 2], b"x" * len(good)):
            path.write_bytes(content)
            try:
                copy.bring()
            except MudroomError as error:
                assert "\n" not in str(error), path.suffix
        path.write_bytes(good)


def test_a_submodule(project: Place) -> None:
    git(project.root, "git init -q lib; cd lib; echo l > l; git add -A; git commit -qm lib")
    git(project.project, "git submodule --quiet add ../lib lib; git commit -qm sub")
    agent = Agent(project)
    agent.run("cd lib; echo m >> l; git commit -qam more")
    found = agent.bring(repository=b"lib/.git")
    assert [one.subject for one in found.commits] == ["more"]
    assert subjects(project.project / "lib", "mudroom/agent") == ["more", "lib"]
    assert fsck(project.project / "lib") == ""
    assert git(project.project, "git branch --list 'mudroom/*'; git status --porcelain") == ""
    agent.run("echo 'gitdir: ../.git' > lib/.git")
    with pytest.raises(UsageError, match=r"lib/\.git in the fork is not what the project has there"):
        agent.bring(repository=b"lib/.git")


def test_a_work_tree_inside_the_project(project: Place) -> None:
    git(project.project, "git worktree add -q tree; echo tree > .gitignore")
    agent = Agent(project)
    agent.run("cd tree; echo two >> file; git commit -qam two")
    assert [one.subject for one in agent.bring(repository=b"tree/.git").commits] == ["two"]
    assert subjects(project.project, "mudroom/agent") == ["two", "one"]
    with pytest.raises(UsageError, match="tree is checked out"):
        agent.bring("tree", repository=b"tree/.git")


def test_a_work_tree_of_a_repository_elsewhere(project: Place) -> None:
    git(project.project, "git worktree add -q ../tree")
    moved = Place.__new__(Place)
    moved.__dict__.update(project.__dict__)
    moved.project = project.root / "tree"
    agent = Agent(moved)
    agent.run("echo two >> file; git commit -qam two")
    assert [one.subject for one in agent.bring().commits] == ["two"]
    agent.run("rm -r .git; echo 'gitdir: ../project/.git' > .git")
    told = ".git belongs to a repository outside of the project, to which this fork cannot commit"
    with pytest.raises(UsageError, match=whole(f"{told} (mudroom fork new NAME makes one that can)")):
        agent.bring()


def test_a_repository_under_another_name(project: Place) -> None:
    """By a link of the user's own, and without a work tree."""
    git(project.project, "mv .git .dotgit; ln -s .dotgit .git; git init -q --bare store; git push -q store main")
    agent = Agent(project)
    agent.run("echo two >> file; git commit -qam two; git push -q store main:refs/heads/new")
    assert [one.subject for one in agent.bring().commits] == ["two"]
    commits = agent.bring(repository=b"store")
    assert [commit.subject for commit in commits.commits] == ["two"]
    assert moved_refs(commits) == {"refs/heads/new": "moved refs/heads/new"}
    assert subjects(project.project / "store", "new") == ["two", "one"]
    assert fsck(project.project) == fsck(project.project / "store") == ""
    agent.run("rm .git; ln -s store .git")
    with pytest.raises(UsageError, match="is not what the project has there"):
        agent.bring()


@pytest.mark.parametrize("repository", [b".git", b"nothing/.git"])
def test_no_repository(place: Place, repository: bytes) -> None:
    place.write("file", "one\n")
    agent = Agent(place)
    agent.run("git init -q; git add -A; git commit -qm one")
    with pytest.raises(UsageError, match=r"there is no git repository at (nothing/)?\.git"):
        agent.bring(repository=repository)
