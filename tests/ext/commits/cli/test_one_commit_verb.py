"""``mudroom apply --commit`` as a user meets it, with real git."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from conftest import Place
from test_vault_verb import Cli

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = "git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main"


def git(cli: Cli, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=cli.place.project, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", "1\n")
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm one"], cwd=place.project, check=True)
    cli = Cli(place)
    git(cli, "config", "user.name", "Me")
    git(cli, "config", "user.email", "me@example.org")
    assert cli("exec", "--fork", "x", "--", "sh", "-ec", "echo 2 >> f; echo n > n").returncode == 0
    return cli


def test_apply_commit_and_undo(cli: Cli) -> None:
    done = cli("apply", "x", "--yes", "--commit", "-m", "two")
    assert done.returncode == 0, done.stderr
    head = git(cli, "rev-parse", "HEAD").strip()
    assert f"committed: {head[:10]} on main, 2 files\n" in done.stderr
    assert git(cli, "log", "-1", "--format=%an <%ae> %s") == "Me <me@example.org> two\n"
    assert git(cli, "status", "--porcelain") == ""
    assert "refs/heads/main" in cli("log").stdout
    assert cli("undo").returncode == 0
    assert git(cli, "log", "--format=%s") == "one\n"
    assert git(cli, "status", "--porcelain") == ""
    assert cli("redo").returncode == 0
    assert git(cli, "rev-parse", "HEAD").strip() == head
    assert git(cli, "fsck", "--strict") == ""


def test_as_json(cli: Cli) -> None:
    report = cli.json("apply", "x", "--yes", "--commit", "-m", "two", "f")
    assert report["commit"] == {
        "id": git(cli, "rev-parse", "HEAD").strip(), "branch": "main", "files": 1, "with_changes": [], "left_out": []
    }  # fmt: skip
    assert "commit" not in cli.json("apply", "x", "--yes")


def test_without_a_commit(cli: Cli) -> None:
    cli.place.write("f", "mine\n")
    done = cli("apply", "x", "--yes", "--commit", "-m", "two")
    assert done.returncode == 3 and "not committed: there are conflicts" in done.stderr
    assert (cli.place.project / "n").exists()
    report = cli.json("apply", "x", "--yes", "--commit", "-m", "two", code=3)
    assert (report["commit"], report["commit_problem"]) == (None, "there are conflicts")


def test_bad_input(cli: Cli) -> None:
    for words, text in (
        (("--yes", "-m", "two"), "-m is for --commit"),
        (("--yes", "--commit"), "no terminal to ask on"),
        (("--yes", "--commit", "-m", " "), "the message of the commit is empty"),
        (("--yes", "--commit", "-m", "two", "--git"), "does not go with --git"),
        (("--yes", "--commit", "-m", "two", "--commits"), "does not go with --commits"),
        (("--yes", "--commit", "-m", "two", "--bak"), "does not go with --bak"),
    ):
        done = cli("apply", "x", *words)
        assert done.returncode == 125 and text in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert (cli.place.project / "f").read_text() == "1\n"
    git(cli, "config", "--unset", "user.name")
    done = cli("apply", "x", "--yes", "--commit", "-m", "two")
    assert "user.name is not set (git config --global user.name NAME)" in done.stderr
    assert (cli.place.project / "f").read_text() == "1\n"
