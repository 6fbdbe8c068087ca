"""``mudroom apply --commits`` as a user meets it, with real git."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from conftest import Place
from test_vault_verb import Cli

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = "git -c user.name=Agent -c user.email=a@example.org -c init.defaultBranch=main"


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", "1\n")
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm one"], cwd=place.project, check=True)
    cli = Cli(place)
    script = f"echo 2 >> f; {GIT} commit -qam two; echo 3 >> f; {GIT} commit -qam three"
    assert cli("exec", "--fork", "x", "--", "sh", "-ec", script).returncode == 0
    return cli


def git(cli: Cli, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=cli.place.project, capture_output=True, text=True, check=True).stdout


def test_commits_come_as_a_branch(cli: Cli) -> None:
    done = cli("apply", "x", "--commits")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("mudroom/x: 2 commits, ")
    assert "signed" not in done.stderr
    assert "three  Agent <a@example.org>" in done.stderr
    assert git(cli, "log", "--format=%s", "mudroom/x").split() == ["three", "two", "one"]
    assert git(cli, "log", "--format=%s").split() == ["one"]
    assert git(cli, "status", "--porcelain") == ""
    assert git(cli, "fsck", "--strict") == ""
    assert (cli.place.project / "f").read_text() == "1\n"
    assert '"kind": "commits"' in cli("log", "--json").stdout


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_what_signs_the_commits_is_told(cli: Cli) -> None:
    key = cli.place.root / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (cli.place.root / "signers").write_text(f"me@example.org {key.with_suffix('.pub').read_text()}")
    for name, value in (
        ("user.name", "me"), ("user.email", "me@example.org"), ("gpg.format", "ssh"), ("commit.gpgSign", "true"),
        ("user.signingKey", f"{key}.pub"), ("gpg.ssh.allowedSignersFile", f"{cli.place.root}/signers"),
    ):  # fmt: skip
        git(cli, "config", name, value)
    merge = f"{GIT} checkout -qb side HEAD^; echo 1 > g; {GIT} add g; {GIT} commit -qm g; {GIT} merge -qm merge main"
    preview = cli("exec", "--fork", "x", "--", "sh", "-ec", merge).stderr
    assert "  ! 4 commits, not signed, on main, side: " in preview
    (line,) = [line for line in cli("apply", "x", "--commits", "--branch", "y").stderr.splitlines() if "signed" in line]
    assert line == "  not signed, as commit.gpgSign wants: git rebase -f -r HEAD y signs"
    git(cli, *line.split(": git ")[1].removesuffix(" signs").split())
    log = git(cli, "log", "--topo-order", "--format=%G? %s", "y").splitlines()
    assert log[0] == "G merge" and log[-1] == "N one" and sorted(log[1:-1]) == ["G g", "G three", "G two"]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_commits_are_signed_if_the_users_policy_asks(cli: Cli) -> None:
    root = cli.place.root
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / "key")], check=True)
    (root / "signers").write_text(f"me@example.org {(root / 'key.pub').read_text()}")
    for name, value in (
        ("user.name", "me"), ("user.email", "me@example.org"), ("gpg.format", "ssh"),
        ("user.signingKey", f"{root}/key.pub"), ("gpg.ssh.allowedSignersFile", f"{root}/signers"),
    ):  # fmt: skip
        git(cli, "config", name, value)
    assert cli("exec", "--fork", "x", "--", "sh", "-ec", "echo 4 >> f; git commit -qam four").returncode == 0
    del cli.environment["MUDROOM_TRUST_POLICY"]
    theirs, own = cli.place.project / ".mudroom/policy.yaml", cli.place.home / ".config/mudroom/policy.yaml"
    for path in (theirs, own):
        path.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("git:\n  sign: on-landing\n")  # nobody has confirmed it
    done = cli("apply", "x", "--commits", "--branch", "theirs")
    assert done.returncode == 0 and " signed" not in done.stderr, done.stderr
    assert git(cli, "log", "--format=%G?", "theirs").split() == ["N"] * 4
    git(cli, "branch", "-qD", "theirs")
    theirs.unlink()
    own.write_text("git:\n  sign: on-landing\n")
    done = cli("apply", "x", "--commits", "--branch", "own")
    assert "  1 signed with your key, 2 not: of another committer, or fetched\n" in done.stderr, done.stderr
    assert git(cli, "log", "--format=%G?", "own").split() == ["G", "N", "N", "N"]
    assert cli("exec", "--fork", "y", "--", "sh", "-c", "echo 5 > g").returncode == 0
    assert cli("apply", "y", "--yes", "--commit", "-m", "five").returncode == 0
    assert git(cli, "log", "-1", "--format=%G? %s") == "G five\n"


def test_by_another_name_and_as_json(cli: Cli) -> None:
    report = cli.json("apply", "x", "--commits", "--branch", "from-agent")
    assert (report["branch"], report["before"]) == ("refs/heads/from-agent", None)
    assert [one["subject"] for one in report["commits"]] == ["two", "three"]
    assert report["head"] == git(cli, "rev-parse", "from-agent").strip()


def test_bad_input(cli: Cli) -> None:
    assert "--commits brings commits, and no files" in cli("apply", "x", "--commits", "f").stderr
    assert "--branch is for --commits" in cli("apply", "x", "--branch", "y").stderr
    done = cli("apply", "x", "--commits", "--branch", "main")
    assert done.returncode == 125 and done.stderr.count("\n") == 1
    assert cli("apply", "x", "--commits").returncode == 0
    again = cli("apply", "x", "--commits", "--branch", "another")
    assert again.returncode == 125 and "has no commits that the repository does not have" in again.stderr


def test_a_repeat_is_harmless(cli: Cli) -> None:
    assert cli("apply", "x", "--commits").returncode == 0
    before = git(cli, "for-each-ref")
    again = cli("apply", "x", "--commits")
    assert again.returncode == 0 and "mudroom/x: the repository has all commits of the fork already" in again.stderr
    assert cli.json("apply", "x", "--commits")["undo"] is None
    assert git(cli, "for-each-ref") == before
    assert cli("undo").returncode == 0
    assert git(cli, "branch", "--list", "mudroom/*") == ""
