"""Commits of a fork come as a branch; otherwise the project's repository stays as it is."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import time
import tomllib
import zlib
from pathlib import Path
from typing import Any, Literal

import pytest

from conftest import Place, full_listing
from handgit import Copy, fsck, git, with_settings
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.vault.git.commits import DULWICH
from mudroom.vault.git.transfer import Commits
from whole_text import whole

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
NEW = (".git/objects/pack", ".git/refs/heads/mudroom", ".git/logs/refs/heads/mudroom")


class Agent:
    """An agent that works in the fork ``agent`` of a project with a repository."""

    def __init__(self, place: Place, settings: Settings | None = None) -> None:
        self.place, self.session = place, place.session(settings)

    def run(self, script: str) -> None:
        result = self.session.run([b"sh", b"-ec", with_settings(script).encode()], fork="agent")
        assert result.exit_code == 0, result.stderr

    def bring(self, branch: str | None = None, repository: bytes = b".git", fork: str = "agent") -> Commits:
        return self.session.changes.bring_commits(fork, branch=branch, repository=repository)

    def undo(self) -> list[str]:
        """Undo the last apply. Return the reasons why refs stay."""
        return [conflict.reason for conflict in self.session.changes.undo().conflicts]


def moved_refs(commits: Commits) -> dict[str, str]:
    """Return the results for the refs of a fork other than HEAD, with the ref of the project where there is one."""
    return {
        outcome.ref.decode(): " ".join(filter(None, (outcome.result, outcome.target.decode())))
        for outcome in commits.result.refs
        if outcome.ref != b"HEAD"
    }


def untouched(before: dict[str, tuple[int, int, int, int]], project: Path) -> None:
    """Nothing but a pack, a branch and its log is there that was not, and no file has changed."""
    after = full_listing(project)
    files = {name: stamp for name, stamp in before.items() if not stat.S_ISDIR(stamp[0])}
    assert {name: after.get(name) for name in files} == files
    assert all(name.startswith(NEW) for name in after.keys() - before.keys()), after.keys() - before.keys()


def subjects(project: Path, what: str) -> list[str]:
    return git(project, f"git log --format=%s {what}").splitlines()


@pytest.fixture
def project(place: Place) -> Place:
    place.write("file", "one\n")
    place.write("directory/other", "other\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    return place


@pytest.fixture
def agent(project: Place) -> Agent:
    return Agent(project)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


# --- what comes ---


def test_a_commit_comes_as_a_branch(agent: Agent) -> None:
    project = agent.place.project
    before = full_listing(project)
    agent.run("echo two >> file; git commit -qam two; echo more > more; git add more; git commit -qm 'three\n\nbody'")
    found = agent.bring()
    assert (found.branch, found.before) == ("refs/heads/mudroom/agent", "")
    assert [(one.subject, one.author) for one in found.commits] == [
        ("two", "T <t@example.org>"),
        ("three", "T <t@example.org>"),
    ]
    assert found.head == found.commits[-1].id == git(project, "git rev-parse mudroom/agent").strip()
    assert found.objects == 6
    assert subjects(project, "mudroom/agent") == ["three", "two", "one"]
    assert subjects(project, "HEAD") == ["one"]
    assert fsck(project) == ""
    untouched(before, project)
    assert git(project, "git status --porcelain") == ""
    assert git(project, "git show mudroom/agent:more mudroom/agent:file") == "more\none\ntwo\n"


def test_the_branch_goes_forward_with_what_came_later(agent: Agent) -> None:
    agent.run("echo two >> file; git commit -qam two")
    first = agent.bring()
    agent.run("echo three >> file; git commit -qam three")
    second = agent.bring()
    assert (second.before, [one.subject for one in second.commits]) == (first.head, ["three"])
    assert subjects(agent.place.project, "mudroom/agent") == ["three", "two", "one"]
    assert fsck(agent.place.project) == ""


def test_a_merge(agent: Agent) -> None:
    agent.run(
        "git checkout -qb side; echo s > s; git add s; git commit -qm side; git checkout -q main; echo m > m;"
        "git add m; git commit -qm main; git merge -q -m merged side"
    )
    found = agent.bring()
    assert [one.subject for one in found.commits][-1] == "merged"
    assert {one.subject for one in found.commits} == {"main", "side", "merged"}
    assert set(subjects(agent.place.project, "mudroom/agent")) == {"one", "main", "side", "merged"}
    assert fsck(agent.place.project) == ""


def test_what_git_has_packed(agent: Agent) -> None:
    """Packs with deltas, refs in packed-refs."""
    agent.run(
        "seq 3000 > long; git add long; git commit -qm 0;"
        "for n in 1 2 3 4 5; do echo $n >> long; git commit -qam $n; done;"
        "git gc -q --prune=now; git pack-refs --all; test ! -e .git/refs/heads/main"
    )
    found = agent.bring()
    assert [one.subject for one in found.commits] == ["0", "1", "2", "3", "4", "5"]
    assert git(agent.place.project, "git show mudroom/agent:long").splitlines()[-2:] == ["4", "5"]
    assert fsck(agent.place.project) == ""


def test_deltas_by_name(copy: Copy) -> None:
    """A pack in which deltas say the name of what they are to, instead of where it is."""
    copy.agent("seq 3000 > long; git add long; git commit -qm 0; echo more >> long; git commit -qam 1")
    copy.agent("git config repack.useDeltaBaseOffset false; git repack -qadf")
    assert len(copy.bring().commits) == 2
    assert fsck(copy.project) == ""


def test_a_head_that_is_no_branch(agent: Agent) -> None:
    agent.run("git checkout -q --detach; echo two >> file; git commit -qam two")
    assert [one.subject for one in agent.bring().commits] == ["two"]
    assert subjects(agent.place.project, "mudroom/agent") == ["two", "one"]


def test_other_branches_and_tags_come_under_their_own_names(agent: Agent) -> None:
    project = agent.place.project
    before = git(project, "git for-each-ref")
    agent.run(
        "git checkout -qb feature; echo two >> file; git commit -qam two; git tag -am tag v1; git tag light;"
        "git notes add -m note; git checkout -q main"
    )
    commits = agent.bring()
    assert moved_refs(commits) == {
        "refs/heads/feature": "moved refs/heads/feature",
        "refs/notes/commits": "moved refs/notes/commits",
        "refs/tags/light": "moved refs/tags/light",
        "refs/tags/v1": "moved refs/tags/v1",
    }
    assert commits.commits[0].subject == "two"
    assert subjects(project, "feature") == subjects(project, "v1") == subjects(project, "light") == ["two", "one"]
    assert git(project, "git cat-file -t v1; git notes show feature; git branch --list 'mudroom/*'") == "tag\nnote\n"
    assert fsck(project) == ""
    assert agent.undo() == []
    assert git(project, "git for-each-ref") == before
    assert all(line.startswith("dangling") for line in fsck(project).splitlines())


def test_a_branch_that_moved_on_both_sides_comes_beside(agent: Agent) -> None:
    project = agent.place.project
    git(project, "git branch feature; git branch behind; git tag v1")
    agent.run(
        "git checkout -q feature; echo two >> file; git commit -qam two; git tag -f v1; git branch -f behind;"
        "git checkout -q main"
    )
    git(
        project,
        "echo mine >> file; git commit -qam mine; git branch -f feature; git tag -f v1; git reset -q --hard HEAD^",
    )
    mine = git(project, "git rev-parse feature v1")
    commits = agent.bring()
    assert moved_refs(commits) == {
        "refs/heads/behind": "moved refs/heads/behind",
        "refs/heads/feature": "beside refs/heads/mudroom/agent-feature",
        "refs/tags/v1": "beside refs/tags/mudroom/agent-v1",
    }
    assert git(project, "git rev-parse feature v1") == mine
    assert subjects(project, "mudroom/agent-feature") == subjects(project, "behind") == ["two", "one"]
    again = agent.bring()
    assert (again.name, again.commits, set(moved_refs(again).values())) == (
        "",
        (),
        {"there", "there refs/heads/mudroom/agent-feature", "there refs/tags/mudroom/agent-v1"},
    )


def test_deletions_and_stashes(agent: Agent) -> None:
    project = agent.place.project
    git(project, "git branch old; echo mine >> file; git stash -q")
    agent.run("git branch -D old; echo first >> file; git stash -q; echo second >> file; git stash push -qm second")
    commits = agent.bring()
    assert moved_refs(commits) == {"refs/heads/old": "kept", "refs/stash": "moved refs/stash"}
    assert git(project, "git branch --list old").strip() == "old"
    listed = git(project, "git stash list --format=%gs").splitlines()
    assert (len(listed), listed[0]) == (3, "On main: second")
    assert git(project, "git stash show -p stash@{1}").splitlines()[-1] == "+first"
    assert agent.undo() == []
    assert git(project, "git stash show -p").splitlines()[-1] == "+mine"
    assert len(git(project, "git stash list").splitlines()) == 1


def test_an_amended_commit_is_a_commit_like_any_other(agent: Agent) -> None:
    agent.run("echo two >> file; git commit -qam two; git commit -q --amend -m better")
    assert [one.subject for one in agent.bring().commits] == ["better"]


def test_commits_that_were_rewritten_do_not_overwrite(agent: Agent) -> None:
    agent.run("echo two >> file; git commit -qam two")
    first = agent.bring()
    agent.run("git commit -q --amend -m better")
    with pytest.raises(UsageError, match="has commits that the fork's does not have") as told:
        agent.bring()
    assert "--branch" in told.value.hint
    assert git(agent.place.project, "git rev-parse mudroom/agent").strip() == first.head
    assert [one.subject for one in agent.bring("mudroom/again").commits] == ["better"]
    assert fsck(agent.place.project) == ""


def test_moved_and_reverted_files(agent: Agent) -> None:
    agent.run(
        "mkdir moved; git mv directory/other moved; git commit -qm moved; mkdir -p directory;"
        "git mv moved/other directory; git commit -qm back"
    )
    found = agent.bring()
    assert [one.subject for one in found.commits] == ["moved", "back"]
    assert found.objects == 3, "two commits and one tree"
    assert fsck(agent.place.project) == ""


def test_kinds_of_entries(agent: Agent) -> None:
    git(agent.place.root, "git init -q lib; cd lib; echo l > l; git add -A; git commit -qm lib")
    module = git(agent.place.root / "lib", "git rev-parse HEAD").strip()
    agent.run(
        "ln -s file link; echo x > x; chmod +x x; mkdir -p a/b/c; echo d > a/b/c/d; git add -A;"
        f"git update-index --add --cacheinfo 160000,{module},lib;"
        "printf '[submodule \"lib\"]\\n\\tpath = lib\\n\\turl = ../lib\\n' > .gitmodules; git add .gitmodules;"
        "echo '* text=auto' > .gitattributes; git add .gitattributes; git commit -qm all"
    )
    assert len(agent.bring().commits) == 1
    listed = git(agent.place.project, "git ls-tree -r mudroom/agent --format='%(objectmode) %(path)'").split("\n")
    assert {"120000 link", "100755 x", "160000 lib", "100644 a/b/c/d"} <= set(listed)
    assert fsck(agent.place.project) == ""


def test_what_the_project_made_meanwhile_is_left_alone(agent: Agent) -> None:
    project = agent.place.project
    agent.run("echo two >> file; git commit -qam two")
    git(project, "echo mine >> file; git commit -qam mine; echo dirty >> file; echo staged > s; git add s; git gc -q")
    before = full_listing(project)
    agent.bring()
    untouched(before, project)
    assert subjects(project, "HEAD") == ["mine", "one"]
    assert subjects(project, "mudroom/agent") == ["two", "one"]
    assert git(project, "git status --porcelain") == " M file\nA  s\n".replace(" M file\nA  s", " M file\nA  s")


def test_a_history_of_its_own(agent: Agent) -> None:
    agent.run("rm -rf .git; git init -q; git add -A; git commit -qm mine")
    assert [one.subject for one in agent.bring().commits] == ["mine"]
    assert subjects(agent.place.project, "mudroom/agent") == ["mine"]
    assert fsck(agent.place.project) == ""


def test_a_repository_without_a_commit_of_its_own(place: Place) -> None:
    place.write("file", "one\n")
    git(place.project, "git init -q")
    agent = Agent(place)
    with pytest.raises(UsageError, match="refs/heads/main, to which HEAD of the fork leads, has no commit yet"):
        agent.run("echo new > new")
        agent.bring()
    agent.run("git add -A; git commit -qm first")
    assert [one.subject for one in agent.bring().commits] == ["first"]


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_views(project: Place, view: Literal["overlay", "copy"]) -> None:
    agent = Agent(project, Settings(view=view))
    agent.run("echo two >> file; git commit -qam two; git gc -q; chmod 0 .git/objects/pack/*")
    assert [one.subject for one in agent.bring().commits] == ["two"]
    assert fsck(project.project) == ""


def test_a_frozen_fork_of_a_repository_that_was_gathered_since(agent: Agent) -> None:
    agent.session.forks.new("frozen", snapshot=True)
    script = with_settings("echo two >> file; git commit -qam two")
    agent.session.run([b"sh", b"-ec", script.encode()], fork="frozen")
    git(agent.place.project, "git gc -q --prune=now")
    assert [commit.subject for commit in agent.bring(fork="frozen").commits] == ["two"]
    assert fsck(agent.place.project) == ""


# --- where it goes ---


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


# --- links: work trees and submodules ---


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


# --- back ---


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


# --- how ---


def test_nothing_is_loaded_before_it_is_needed() -> None:
    program = "import sys, mudroom.vault.git.commits; print('dulwich' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_dulwich(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    oldest, install = ".".join(map(str, DULWICH)), "pip install -U mudroom dulwich"
    with monkeypatch.context() as old:
        old.setattr("dulwich.__version__", (1, 0, 5))
        with pytest.raises(UsageError, match=whole(f"commits need dulwich {oldest}; found: 1.0.5 ({install})")):
            copy.bring()
    monkeypatch.setitem(sys.modules, "dulwich", None)
    with pytest.raises(UsageError, match=whole(f"commits need dulwich {oldest}, which is not installed ({install})")):
        copy.bring()
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (wanted,) = (name for name in project["dependencies"] if name.startswith("dulwich"))
    assert wanted == f"dulwich>={'.'.join(map(str, DULWICH))},<2"


@pytest.mark.parametrize("name", ["rename", "fsync", "open"])
@pytest.mark.parametrize("which", range(6))
def test_a_disk_that_fails(copy: Copy, monkeypatch: pytest.MonkeyPatch, name: str, which: int) -> None:
    """The branch is there and whole, or nothing is; and nothing is left lying about."""
    copy.agent("echo two >> file; git commit -qam two")
    real, calls = getattr(os, name), iter(range(1000))

    def failing(*arguments: Any, **named: Any) -> Any:
        writes = name != "open" or (len(arguments) > 1 and arguments[1] & os.O_CREAT)
        if writes and next(calls) == which:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])
        return real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, name, failing)
        try:
            copy.bring()
            has_failed = False
        except (OSError, UsageError):
            has_failed = True
    packs = sorted(path.suffix for path in (copy.project / ".git/objects/pack").iterdir())
    assert packs in ([], [".idx", ".pack"])
    branch = git(copy.project, "git branch --list 'mudroom/*'").strip()
    assert branch or has_failed
    assert packs or not branch
    assert [line for line in fsck(copy.project).splitlines() if not line.startswith("dangling")] == []
    assert list(copy.project.rglob("*.lock")) == []
    if not branch:
        copy.bring()


@pytest.mark.slow
def test_a_thousand_commits(copy: Copy) -> None:
    stream = [b"reset refs/heads/main\nfrom refs/heads/main^0\n\n"]
    for number in range(1000):
        text = b"%d\n" % number
        stream.append(
            b"commit refs/heads/main\ncommitter T <t@example.org> %d +0000\ndata %d\n%s"
            % (1700000000 + number, len(text), text)
            + b"M 100644 inline d%d/f%d\ndata %d\n%s\n" % (number % 30, number, len(text), text)
        )
    subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=copy.fork, input=b"".join(stream), check=True)
    started = time.monotonic()
    found = copy.bring()
    took = time.monotonic() - started
    assert (len(found.commits), found.objects) == (1000, 4000)
    assert took < 30, "seconds; 2 on the machine this was written on"
    assert git(copy.project, "git rev-list --count mudroom/agent") == "1001\n"
    assert fsck(copy.project) == ""
