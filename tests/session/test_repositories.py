"""Repositories are left out of an apply unless they are asked for, and then come as a whole; with real git."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import Place, full_listing, listing

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = "git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main -c protocol.file.allow=always"


def with_settings(script: str) -> str:
    return re.sub(r"(?<![.\w])git ", GIT + " ", script)


def git(directory: Path, script: str) -> str:
    done = subprocess.run(
        ["sh", "-ec", with_settings(script)], cwd=directory, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def project(place: Place) -> Place:
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    return place


def staged(place: Place, script: str, **how: object) -> tuple[object, object]:
    session, result = place.sh(with_settings(script))
    assert result.exit_code == 0, result.stderr
    return result, session.changes.apply(result.fork, **how)  # type: ignore[arg-type]


def test_a_commit_stays_in_the_fork(project: Place) -> None:
    before = {name: stamp for name, stamp in full_listing(project.project).items() if name.startswith(".git/")}
    _result, landed = staged(project, "echo two >> file; git commit -qam two")
    assert (project.project / "file").read_text() == "one\ntwo\n"
    after = {name: stamp for name, stamp in full_listing(project.project).items() if name.startswith(".git/")}
    assert after == before
    assert all(path.startswith(b".git/") for path in landed.withheld)  # type: ignore[attr-defined]
    assert git(project.project, "git log --format=%s").split() == ["one"]


def test_a_commit_comes_as_a_whole_when_it_is_asked_for(project: Place) -> None:
    staged(project, "echo two >> file; git commit -qam two", git=True)
    assert git(project.project, "git log --format=%s").split() == ["two", "one"]
    assert git(project.project, "git status --porcelain; git fsck --strict") == ""


def test_removing_the_repository_does_not_remove_it(project: Place) -> None:
    staged(project, "rm -rf .git file; echo new > new")
    assert sorted(path.name for path in project.project.iterdir()) == [".git", "new"]
    assert git(project.project, "git fsck --strict; git log --format=%s").split() == ["one"]


def test_removing_the_repository_removes_all_of_it_if_it_is_asked_for(project: Place) -> None:
    before = full_listing(project.project)
    staged(project, "rm -rf .git", git=True)
    assert [path.name for path in project.project.iterdir()] == ["file"]
    project.session().changes.undo()
    assert full_listing(project.project).keys() == before.keys()
    assert git(project.project, "git status --porcelain; git fsck --strict") == ""


def test_hooks_and_settings_are_not_lifted_by_asking_for_the_repository(project: Place) -> None:
    config = (project.project / ".git/config").read_text()
    script = "git config core.fsmonitor /tmp/evil; mkdir -p .git/hooks; echo evil > .git/hooks/post-commit"
    _result, landed = staged(project, script + "; echo x > file; git commit -qam two", git=True)
    assert (project.project / ".git/config").read_text() == config
    assert not (project.project / ".git/hooks/post-commit").exists()
    assert {b".git/config", b".git/hooks/post-commit"} <= set(landed.withheld)  # type: ignore[attr-defined]
    assert git(project.project, "git log --format=%s").split() == ["two", "one"]


def test_a_clone_inside_comes_without_its_repository(project: Place) -> None:
    _result, landed = staged(project, "git clone -q --no-hardlinks . vendor/copy; echo more > vendor/copy/more")
    assert sorted(path.name for path in (project.project / "vendor/copy").iterdir()) == ["file", "more"]
    assert landed.conflicts == ()  # type: ignore[attr-defined]
    assert b"vendor/copy/.git" in landed.withheld  # type: ignore[attr-defined]


def test_removing_a_nested_repository_leaves_it(project: Place) -> None:
    git(project.project, "mkdir sub; cd sub; git init -q; echo s > s; git add -A; git commit -qm sub")
    _result, landed = staged(project, "rm -rf sub")
    assert [path.name for path in (project.project / "sub").iterdir()] == [".git"]
    assert landed.conflicts == ()  # type: ignore[attr-defined]


def test_a_worktree_and_what_its_link_says(project: Place) -> None:
    git(project.project, "git worktree add -q ../tree")
    tree = project.root / "tree"
    link = (tree / ".git").read_text()
    moved = Place.__new__(Place)
    moved.__dict__.update(project.__dict__)
    moved.project = tree
    _result, landed = staged(moved, "echo 'gitdir: /tmp/evil' > .git; echo more > more")
    assert (tree / ".git").read_text() == link
    assert (tree / "more").read_text() == "more\n"
    assert landed.withheld == (b".git",)  # type: ignore[attr-defined]
    _result, landed = staged(moved, "echo 'gitdir: /tmp/evil' > .git", git=True)
    assert (tree / ".git").read_text() == link, "not even with the rest"


def test_a_submodule(project: Place) -> None:
    git(project.root, "git init -q lib; cd lib; echo l > l; git add -A; git commit -qm lib")
    git(project.project, "git submodule --quiet add ../lib lib; git commit -qm sub")
    link = (project.project / "lib/.git").read_text()
    staged(project, "echo 'gitdir: ../evil' > lib/.git; echo m > lib/m; echo evil >> .git/modules/lib/config", git=True)
    assert (project.project / "lib/.git").read_text() == link
    assert "evil" not in (project.project / ".git/modules/lib/config").read_text()
    assert (project.project / "lib/m").read_text() == "m\n"


def test_a_repository_without_a_dot_git_is_known_by_what_is_in_it(project: Place) -> None:
    git(project.project, "git init -q --bare store")
    config = (project.project / "store/config").read_text()
    script = "echo evil >> store/config; mkdir -p store/hooks; echo evil > store/hooks/pre-receive; echo f > store/f"
    result, landed = staged(project, script)
    assert (project.project / "store/config").read_text() == config
    assert not (project.project / "store/hooks/pre-receive").exists()
    assert (project.project / "store/f").exists()
    flags = {change.path: change.flags for change in result.changeset.changes}  # type: ignore[attr-defined]
    assert {"executes-later", "protected"} <= set(flags[b"store/config"]) & set(flags[b"store/hooks/pre-receive"])
    assert b"store/config" in landed.withheld  # type: ignore[attr-defined]


def test_a_repository_without_a_dot_git_is_not_made_in_two_steps(project: Place) -> None:
    staged(
        project, "git init -q --bare o; mkdir -p store; mv o/objects o/refs store; echo evil > store/config; rm -rf o"
    )
    assert (project.project / "store/config").exists(), "it is no repository yet"
    _result, landed = staged(project, "echo ref: refs/heads/main > store/HEAD")
    assert landed.withheld == (b"store/HEAD",)  # type: ignore[attr-defined]


def test_nor_across_a_checkpoint(project: Place) -> None:
    session = project.session()
    script = "git init -q --bare o; mkdir store; mv o/objects o/refs store; echo evil > store/config; rm -rf o"
    session.run([b"sh", b"-c", with_settings(script).encode()], fork="f")
    session.forks.checkpoint("f", "point")
    session.run([b"sh", b"-c", b"echo ref: refs/heads/main > store/HEAD"], fork="f")
    assert b"store/config" in session.changes.apply("f").withheld


def test_a_repository_whose_settings_are_elsewhere(project: Place) -> None:
    script = "mkdir store other; echo ref: refs/heads/main > store/HEAD; echo ../other > store/commondir"
    _result, landed = staged(project, script + "; mkdir other/objects other/refs; echo evil > other/config")
    assert landed.withheld == (b"store", b"store/HEAD", b"store/commondir")  # type: ignore[attr-defined]


def test_a_change_of_a_link_is_told_before(project: Place) -> None:
    git(project.project, "git worktree add -q ../tree")
    moved = Place.__new__(Place)
    moved.__dict__.update(project.__dict__)
    moved.project = project.root / "tree"
    result, _landed = staged(moved, "echo 'gitdir: /tmp/evil' > .git")
    (change,) = result.changeset.changes  # type: ignore[attr-defined]
    assert change.flags == ("executes-later", "protected", "content")
    _result, landed = staged(moved, "echo 'gitdir: /tmp/evil' > .git", paths=[b".git"])
    assert landed.withheld == ()  # type: ignore[attr-defined]


def test_of_a_file_in_it_that_is_left_out_not_even_the_directory_comes(place: Place) -> None:
    place.write(".git/HEAD", "ref: refs/heads/main\n")
    session = place.session()
    session.forks.new("f")
    script = b"mkdir .git/objects .git/hooks; echo 1 > .git/objects/1; echo 2 > .git/hooks/post-commit"
    session.run([b"sh", b"-c", script], fork="f")
    with session.alone("a test"):
        landed = session.changes.apply("f", [b".git/objects/1"], exact=True)
        assert landed.withheld[-1] == b".git/objects/1"
        assert sorted(listing(place.project)) == [".git", ".git/HEAD"]
        session.changes.apply("f", [b".git/hooks/post-commit"], exact=True)
    assert sorted(listing(place.project)) == [".git", ".git/HEAD", ".git/hooks", ".git/hooks/post-commit"]
