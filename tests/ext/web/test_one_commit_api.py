"""An apply as one commit, by the page's API, with real git."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from handgit import fsck, git
from pageside import PageSide, changed, pick

from conftest import Place

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
ME = "[user]\n\tname = Me Myself\n\temail = me@example.org\n"


@pytest.fixture
def page(place: Place) -> PageSide:
    place.write("f", "1\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    (place.home / ".gitconfig").write_text(ME)
    return PageSide(place)


def problem(page: PageSide, **more: Any) -> str:
    """Why the job fails."""
    body = {"reviewed": page.fingerprint("agent-1"), "commit": "two", **more}
    job = page.job(f"{page.project}/forks/agent-1/apply", body)
    assert (job["state"], job["landed"]) == ("failed", None)
    found = job["problem"]
    return f"{found['error']} ({found['hint']})"


def test_the_applied_files_become_one_commit(page: PageSide) -> None:
    project = page.place.project
    changed(page.place, "echo 2 >> f; echo g > g; echo h > h")
    landed = page.apply("agent-1", [pick("f"), pick("g")], commit="two\n\nwhy\n")
    made = landed["commit"]
    assert (made["branch"], made["files"], made["with_changes"], made["left_out"]) == ("main", 2, [], [])
    assert (landed["state"], landed["commit_problem"], landed["remaining"]) == ("applied", "", 1)
    assert git(project, "git log -1 --format='%H %an|%B'") == f"{made['id']} Me Myself|two\n\nwhy\n\n"
    assert git(project, "git status --porcelain") == "" and fsck(project) == ""
    page.landed(f"{page.project}/undo", {"apply": landed["undo"]})
    assert git(project, "git log --format=%s; git status --porcelain; cat f") == "one\n1\n"


def test_without_a_message_there_is_no_commit(page: PageSide) -> None:
    changed(page.place, "echo 2 >> f")
    landed = page.apply("agent-1")
    assert (landed["commit"], landed["commit_problem"]) == (None, "")
    assert git(page.place.project, "git log --format=%s; git status --porcelain") == "one\n M f\n"


def test_what_is_not_in_the_commit_and_what_of_the_users_is(page: PageSide) -> None:
    page.place.write(".gitignore", "*.o\n")
    page.place.write("f", "0\n1\n")
    changed(page.place, "echo 2 >> f; echo o > a.o")
    made = page.apply("agent-1", commit="two")["commit"]
    assert (made["files"], made["with_changes"], made["left_out"]) == (1, ["f"], ["a.o"])


def test_a_conflict_leaves_no_commit(page: PageSide) -> None:
    changed(page.place, "echo theirs > f; echo g > g")
    page.place.write("f", "mine\n")
    landed = page.apply("agent-1", commit="two")
    assert (landed["state"], landed["commit"]) == ("conflicts", None)
    assert landed["commit_problem"] == "there are conflicts"
    assert git(page.place.project, "git log --format=%s; cat g") == "one\ng\n"


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("git rev-parse HEAD > .git/MERGE_HEAD", "a merge is not finished"),
        ("mkdir .git/rebase-merge", "a rebase is not finished"),
        ("touch .git/index.lock", "locked the index"),
        ("mv .git ../away", "no git repository"),
    ],
)
def test_a_repository_that_takes_no_commit(page: PageSide, state: str, text: str) -> None:
    changed(page.place, "echo 2 >> f")
    git(page.place.project, state)
    assert text in problem(page)
    assert (page.place.project / "f").read_text() == "1\n"


def test_without_an_identity_or_a_message(page: PageSide) -> None:
    changed(page.place, "echo 2 >> f")
    assert "the message of the commit is empty" in problem(page, commit=" \n")
    assert "holds a NUL" in problem(page, commit="a\0b")
    (page.place.home / ".gitconfig").write_text("")
    assert problem(page) == ("git does not know who you are: user.name is not set (git config --global user.name NAME)")
    assert (page.place.project / "f").read_text() == "1\n"
    git(page.place.project, "git config user.name Here; git config user.email here@example.org")
    assert page.apply("agent-1", commit="two")["commit"]["branch"] == "main"


@pytest.mark.parametrize("option", ["git", "backups", "markers"])
def test_what_does_not_go_with_it(page: PageSide, option: str) -> None:
    changed(page.place, "echo 2 >> f")
    body = {"reviewed": page.fingerprint("agent-1"), "commit": "two", option: True}
    refused = page.post(f"{page.project}/forks/agent-1/apply", body, status=400)
    assert option in refused["error"]


def test_a_project_says_whether_it_is_a_repository(page: PageSide) -> None:
    changed(page.place, "true")
    assert page.get(page.project)["repository"] is True
    git(page.place.project, "mv .git ../away")
    assert page.get(page.project)["repository"] is False
