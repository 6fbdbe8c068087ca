"""``mudroom diff FORK --commits`` as a user meets it, with real git."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from conftest import Place
from test_vault_verb import Cli

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = "git -c user.name=Agent -c user.email=a@example.org -c init.defaultBranch=main"
DATES = "export GIT_AUTHOR_DATE='@1700000000 +0100' GIT_COMMITTER_DATE='@1700000000 +0100'"


def in_fork(cli: Cli, script: str) -> None:
    done = cli("exec", "--fork", "x", "--", "sh", "-ec", f"{DATES}; {script}")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", "1\n")
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm one"], cwd=place.project, check=True)
    cli = Cli(place)
    in_fork(
        cli, f"echo 2 >> f; {GIT} commit -qam two; echo 3 >> f; rm f; echo n > n; {GIT} add -A;{GIT} commit -qm three"
    )
    return cli


def test_the_commits_as_git_log_shows_them(cli: Cli) -> None:
    done = cli("diff", "x", "--commits")
    assert done.returncode == 0, done.stderr
    two, three = cli.json("diff", "x", "--commits")["commits"]
    assert done.stdout == (
        f"commit {two['id']}\nAuthor: Agent <a@example.org>\nDate:   2023-11-14 23:13:20 +0100\n\n    two\n\n"
        " 1 file changed, +1\n\n"
        f"commit {three['id']} (HEAD -> main)\nAuthor: Agent <a@example.org>\nDate:   2023-11-14 23:13:20 +0100\n\n"
        "    three\n\n 2 files changed, +1 -2\n"
    )
    assert cli("diff", "--commits").stdout == done.stdout, "of the only fork"


def test_with_differences_or_only_one(cli: Cli) -> None:
    patch = cli("diff", "x", "--commits", "-p").stdout
    assert patch.count("diff --git") == 3 and "+++ b/f\n@@ -1 +1,2 @@\n 1\n+2\n" in patch
    two = cli.json("diff", "x", "--commits")["commits"][0]["id"]
    one = cli("diff", "x", "--commits", two[:7]).stdout
    assert one.count("commit ") == 1 and "    two\n" in one and "\n+2\n" in one
    assert cli("diff", "x", "--commits", "HEAD").stdout.count("deleted file") == 1


def test_as_json(cli: Cli) -> None:
    report = cli.json("diff", "x", "--commits")
    assert (report["schema"], report["fork"], report["repository"]) == ("mudroom.commit-list/1", "x", ".git")
    assert (report["branch"], report["total"]) == ("refs/heads/main", 2)
    two, three = report["commits"]
    assert two["author"] == {
        "name": "Agent <a@example.org>", "date": "2023-11-14 23:13:20 +0100", "time": 1_700_000_000
    }  # fmt: skip
    assert (two["subject"], two["message"], three["parents"]) == ("two", "two", [two["id"]])
    assert three["refs"] == ["HEAD", "refs/heads/main"]
    assert [(file["path"], file["change"]) for file in three["files"]] == [("f", "deleted"), ("n", "added")]
    assert "patch" not in two
    (one,) = cli.json("diff", "x", "--commits", two["id"])["commits"]
    assert "\n+2\n" in one["patch"]


def test_the_files_of_git_are_told_by_their_number(cli: Cli) -> None:
    """Forty lines about objects hid what the agent had done. Hooks and settings are shown: they run."""
    in_fork(cli, "echo true > .git/hooks/post-merge; mkdir -p .git/modules/m/hooks new; cd new; git init -q")
    in_fork(cli, "echo true > .git/modules/m/hooks/post-merge")
    done = cli("diff", "x")
    shown = {line.split(" b/")[1] for line in done.stdout.splitlines() if line.startswith("diff --git")}
    assert {"f", "n", ".git/hooks/post-merge"} <= shown
    assert not {path for path in shown if path.startswith(".git/") and "/hooks/" not in path}
    assert any(path.startswith("new/.git/") for path in shown), "a repository that the fork made is applied as files"
    hint = "mudroom diff x --commits shows the commits, mudroom diff x .git the files"
    rows = cli("diff", "x", ".git", "--stat").stdout.splitlines()
    hidden = [row for row in rows[:-1] if "/hooks/" not in row]
    assert f"{len(hidden)} files inside .git not shown ({hint})\n" in done.stderr
    assert ".git/logs/HEAD" in cli("diff", "x", ".git/logs").stdout
    assert ".git/logs" not in cli("diff", "x", "--stat").stdout
    assert ".git/logs/HEAD" in str(cli.json("diff", "x")["changes"])


def test_a_fork_without_commits(cli: Cli) -> None:
    assert cli("exec", "--fork", "y", "--", "sh", "-ec", "echo 5 > f").returncode == 0
    done = cli("diff", "y", "--commits")
    assert (done.returncode, done.stdout) == (0, "")
    assert "y has no commits that the project's repository does not have" in done.stderr
    assert cli.json("diff", "y", "--commits")["commits"] == []


def test_messages_and_names_cannot_act_on_a_terminal(cli: Cli) -> None:
    in_fork(
        cli,
        "printf '\\033]0;evil\\007\\n\\n\\033[2Jbody' > m; git -c user.name=$(printf 'E\\033[31mvil') -c user.email=e"
        f" commit -q --allow-empty -F m; {GIT} tag v1",
    )
    done = cli("diff", "x", "--commits", "v1")
    assert "\x1b" not in done.stdout and "\\x1b]0;evil\\x07" in done.stdout and "E\\x1b[31mvil" in done.stdout


def test_a_nested_repository(cli: Cli) -> None:
    cli.place.write("sub/g", "1\n")
    script = f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm one"
    subprocess.run(["sh", "-ec", script], cwd=cli.place.project / "sub", check=True)
    assert cli("exec", "--fork", "z", "--", "sh", "-ec", f"cd sub; echo 2 >> g; {GIT} commit -qam g2").returncode == 0
    for directory in ("sub", "sub/.git", "./sub/"):
        report = cli.json("diff", "z", "--commits", "--repository", directory)
        assert [commit["subject"] for commit in report["commits"]] == ["g2"], directory


def test_bad_input(cli: Cli) -> None:
    for words, text in (
        (("x", "--commits", "nothing"), "no new commit nothing"),
        (("x", "--commits", "--conflicts"), "two different lists"),
        (("x", "--patch"), "are for --commits"),
        (("nofork", "--commits"), "nofork"),
        (("x", "--commits", "--repository", "sub"), "no git repository at sub/.git"),
        (("x@p", "--commits"), "x@p"),
    ):
        done = cli("diff", *words)
        assert done.returncode == 125 and text in done.stderr and done.stderr.count("\n") == 1, done.stderr
    (cli.place.project / ".git").rename(cli.place.root / "away")
    done = cli("diff", "x", "--commits")
    assert done.returncode == 125 and "no git repository" in done.stderr
