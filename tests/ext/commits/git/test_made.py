"""No repository that a fork made holds a masked file as an empty one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from handgit import git

from mudroom.errors import UsageError
from mudroom.ext.commits.git.made import require_unemptied
from mudroom.stage.source import OpenSource

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
FULL = "git init -q $KIND .; echo one > a; mkdir s; echo K > .env; echo K > s/x.key; git add -A; git commit -qm full"


def refused(project: Path, *masked: str, top: str = ".git") -> str:
    with OpenSource(bytes(project)) as view:
        try:
            require_unemptied(view, top.encode(), [path.encode() for path in masked])
        except UsageError as error:
            return str(error)
    return ""


def made(project: Path, script: str, kind: str = "") -> Path:
    project.mkdir(exist_ok=True)
    git(project, f"{FULL.replace('$KIND', kind)}; {script}")
    return project


@pytest.mark.parametrize(
    ("script", "place"),
    [
        (": > .env; git add -A", "index"),
        (": > .env; git add -A; git commit -qm e; echo K > .env; git add -A", "commit"),
        (": > .env; git commit -qam e; git branch b; git reset -q --hard HEAD~1", "commit"),
        (": > .env; git commit -qam e; git tag -am t t; git reset -q --hard HEAD~1; git pack-refs --all", "commit"),
        (": > .env; git commit -qam e; git branch b; git reset -q --hard HEAD~1; git gc -q", "commit"),
        (": > .env; git stash -q", "commit"),
        (": > .env; git stash -q; echo 2 > a; git stash -q", "commit"),
        (
            ": > .env; git commit -qam e; git checkout -q --detach; git branch -qf main HEAD~1; git read-tree main",
            "commit",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["", "--object-format=sha256"])
def test_an_emptied_file_is_refused_with_its_path(tmp_path: Path, script: str, place: str, kind: str) -> None:
    project = made(tmp_path / "p", script, kind)
    assert refused(project, ".env").startswith(f".env is masked, and the {place} ")
    assert refused(project, "other/.env", "a") == "", "another path"
    assert refused(project) == ""


def test_a_file_in_a_directory_and_a_repository_below_the_project(tmp_path: Path) -> None:
    made(tmp_path / "p", ": > s/x.key; git commit -qam e")
    assert "s/x.key is masked" in refused(tmp_path / "p", "s/x.key")
    assert "s/x.key is masked" in refused(tmp_path, "p/s/x.key", top="p/.git")
    assert "s/x.key is masked" in refused(tmp_path, "s/x.key", top="p/.git"), "a clone of the project"
    git(tmp_path, "git clone -q --bare p b")
    assert "s/x.key is masked" in refused(tmp_path, "s/x.key", top="b")


def test_a_repository_with_the_real_content_is_taken(tmp_path: Path) -> None:
    assert refused(made(tmp_path / "p", "git add -N a; : > b; git add b; git commit -qm b"), ".env", "s/x.key") == ""
    git(tmp_path, "git clone -q --depth 1 file://$PWD/p q")
    assert refused(tmp_path / "q", ".env") == "", "the history of a shallow clone ends early"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo x > .git/index", "index"),
        ("git update-index --split-index", "split or sparse"),
        ("mkdir -p .git/objects/info; echo /x > .git/objects/info/alternates", "borrows objects"),
        ("git config extensions.refStorage reftable", "are not files"),
        ("echo '[' >> .git/config", "are not valid"),
        ("rm .git/index; ln -s ../a .git/index", "is a symlink"),
        ("f=.git/objects/$(git rev-parse HEAD | sed 's:^..:&/:'); chmod u+w $f; echo x > $f", "is damaged"),
    ],
)
def test_a_repository_that_cannot_be_checked_is_refused(tmp_path: Path, script: str, reason: str) -> None:
    project = made(tmp_path / "p", script)
    assert reason in refused(project, ".env")
    assert refused(project) == "", "there is no masked file"
