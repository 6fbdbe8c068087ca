"""Commits of a fork come as a branch; otherwise the project's repository stays as it is."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Literal

import pytest
from agent_repository import Agent, agent, copy, moved_refs, project, subjects
from handgit import Copy, fsck, git, with_settings

from conftest import Place, full_listing
from kernel_calls import within
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.ext.commits.git.commits import DULWICH
from tiers import pairs
from whole_text import whole

__all__ = ["agent", "copy", "project"]  # fixtures
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


NEW = (".git/objects/pack", ".git/refs/heads/mudroom", ".git/logs/refs/heads/mudroom")


def untouched(before: dict[str, tuple[int, int, int, int]], project: Path) -> None:
    """Nothing but a pack, a branch and its log is there that was not, and no file has changed."""
    after = full_listing(project)
    files = {name: stamp for name, stamp in before.items() if not stat.S_ISDIR(stamp[0])}
    assert {name: after.get(name) for name in files} == files
    assert all(name.startswith(NEW) for name in after.keys() - before.keys()), after.keys() - before.keys()


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


# --- how ---


def test_nothing_is_loaded_before_it_is_needed() -> None:
    program = "import sys, mudroom.ext.commits.git.commits; print('dulwich' in sys.modules)"
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
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    (wanted,) = (name for name in project["dependencies"] if name.startswith("dulwich"))
    assert wanted == f"dulwich>={'.'.join(map(str, DULWICH))},<2"


@pytest.mark.parametrize(("name", "which"), pairs(["rename", "fsync", "open"], range(6)))
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


@pytest.mark.deep
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
    found = within(10_000_000, copy.bring)
    assert (len(found.commits), found.objects) == (1000, 4000)
    assert git(copy.project, "git rev-list --count mudroom/agent") == "1001\n"
    assert fsck(copy.project) == ""
