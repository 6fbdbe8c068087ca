"""The commits of a fork, by the page's API, with real git."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from looking import Looking

from conftest import Place
from mudroom.ext.web.api.endpoint import id_of
from test_review_api import lines, staged

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = "git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main"


@pytest.fixture
def project(place: Place) -> Place:
    place.write("f", "1\n")
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm one"], cwd=place.project, check=True)
    return place


def commits(looking: Looking) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = looking.get("commits")["commits"]
    return found


def test_the_list_and_a_commit(project: Place) -> None:
    looking = staged(project, f"echo 2 >> f; {GIT} commit -qam two -m why; git mv f g; {GIT} commit -qm three")
    found = looking.get("commits")
    assert (found["fork"], found["branch"], found["total"], found["problem"]) == ("f", "refs/heads/main", 2, "")
    two, three = found["commits"]
    assert (two["subject"], two["author"], two["parents"], two["labels"]) == ("two", "T <t@example.org>", 1, [])
    assert three["labels"] == ["HEAD -> main"] and three["time"] > 1_700_000_000_000
    shown = looking.get("commits/" + two["id"])
    assert (shown["commit"], shown["message"]) == (two, "two\n\nwhy")
    (file,) = shown["files"]
    assert (file["path"], file["change"], file["kind"], file["added"]) == ("f", "modified", "text", 1)
    assert lines(file) == [" 1", "+2"]
    (moved,) = looking.get("commits/" + three["id"])["files"]
    assert (moved["kind"], moved["source"], moved["path"], moved["hunks"]) == ("renamed", "f", "g", [])


def test_many_lines_come_in_pages(project: Place) -> None:
    looking = staged(project, f"seq 3000 > a; seq 3000 > b; git add .; {GIT} commit -qm long")
    (row,) = commits(looking)
    at = "commits/" + row["id"]
    a, b = looking.get(at)["files"]
    assert len(lines(a)) == 2000 and a["following"] == 2 and (b["hunks"], b["following"]) == ([], 0)
    (rest,) = looking.get(at, file=b"a", first=2)["files"]
    assert len(lines(rest)) == 1000 and rest["following"] is None
    assert looking.refused(at, file=b"nothing") == (404, "not-found", "the commit does not change that file")


def test_a_cut_line_ends_with_a_mark(project: Place) -> None:
    looking = staged(project, f"head -c 5000 /dev/zero | tr '\\0' x > f; {GIT} commit -qam long")
    (file,) = looking.get("commits/" + commits(looking)[0]["id"])["files"]
    (line,) = [line for line in file["hunks"][0]["lines"] if line[0] == "+"]
    assert line[3] == "x" * 2000 + "…" and line[6] == [[2000, 2001]]


def test_without_commits_a_repository_or_with_a_damaged_one(project: Place) -> None:
    looking = staged(project, "echo 2 > f")
    assert looking.get("commits")["commits"] == []
    assert looking.refused("commits/HEAD")[:2] == (404, "not-found")
    looking = staged(project, f"{GIT} commit -qam two; rm -r .git/objects/??")
    assert "the object" in looking.get("commits")["problem"]
    sub = looking.get("commits", repository=id_of(b"sub/.git"))
    assert sub["problem"] == "there is no git repository at sub/.git"


@pytest.mark.parametrize("path", [b"../.git", b"/etc", b"a\0b", b"sub/../../x/.git"])
def test_a_path_that_leads_elsewhere(project: Place, path: bytes) -> None:
    looking = staged(project, "echo 2 > f")
    status, code, _text = looking.refused("commits", repository=id_of(path))
    assert (status, code) == (400, "bad-request")


def test_texts_are_escaped(project: Place) -> None:
    looking = staged(project, f"printf '<b>\\033[1m\\342\\200\\256' > f; {GIT} commit -qaF f")
    (row,) = commits(looking)
    assert row["subject"] == "<b>\\x1b[1m\\u{202e}"


def test_a_secret_is_not_shown(project: Place) -> None:
    project.write("server.key", "KEY\n")
    subprocess.run(["sh", "-ec", f"{GIT} add -A; {GIT} commit -qm key"], cwd=project.project, check=True)
    project.write("server.key", "of this machine\n")
    looking = staged(project, f"git update-index --force-remove server.key; {GIT} commit -qm gone")
    (file,) = looking.get("commits/" + commits(looking)[0]["id"])["files"]
    assert (file["kind"], file["hunks"]) == ("masked", [])
