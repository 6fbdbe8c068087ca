"""What a preview says about the commits of a fork, with real git."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from conftest import Place
from mudroom.cli.change.preview import commit_lines
from test_vault_verb import Cli

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = "git -c user.name=Agent -c user.email=a@example.org -c init.defaultBranch=main"
OLD = "! is left out of apply unless you ask for it (--git): .git"


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", "1\n")
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm one"], cwd=place.project, check=True)
    return Cli(place)


def told(cli: Cli, script: str, verb: str = "exec") -> str:
    words = ("exec", "--fork", "x") if verb == "exec" else ("run", "--no")
    done = cli(*words, "--", "sh", "-ec", script)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_commits_are_named_in_the_words_of_git(cli: Cli) -> None:
    text = told(cli, f"echo 2 >> f; {GIT} commit -qam 'fix parser'; echo 3 >> f; {GIT} commit -qam 'add test'")
    line = "  ! 2 commits on main: fix parser, add test   (apply --git brings them with the files, --commits as branch "
    assert line + "mudroom/x)\n" in text and OLD not in text


def test_one_commit_of_a_run(cli: Cli) -> None:
    assert "  ! 1 commit on side: s   (apply" in told(
        cli, f"{GIT} switch -qc side; echo 2 >> f; {GIT} commit -qam s", "run"
    )


def test_many_commits_and_long_subjects(cli: Cli) -> None:
    loop = f"for n in 1 2 3 4 5; do {GIT} commit -q --allow-empty -m \"$n $(printf 'x%.0s' $(seq 80))\"; done"
    text = told(cli, loop)
    assert "! 5 commits on main: 1 xxx" in text and "… and 2 more   (" in text


def test_without_commits_or_with_a_damaged_repository(cli: Cli) -> None:
    assert OLD in told(cli, "git config x.y z; git branch other; echo 9 > f")
    text = told(cli, f"{GIT} commit -qam two; c=$(git rev-parse HEAD | sed 's!..!&/!'); rm -f .git/objects/$c")
    assert OLD in text


def test_messages_cannot_act_on_a_terminal(cli: Cli) -> None:
    text = told(cli, f"printf '\\033]0;evil\\007' > m; {GIT} commit -q --allow-empty -F m; rm m")
    assert "\x1b" not in text and "\\x1b]0;evil\\x07" in text


def test_the_log_is_read_only_if_refs_have_changed(place: Place) -> None:
    place.write(".git/HEAD", "ref: refs/heads/main\n")
    session = place.session()
    result = session.run([b"sh", b"-c", b"mkdir -p .git/objects; echo x > .git/objects/x; echo > a"], fork="x")
    assert commit_lines(None, "x", result.changeset.changes) == {}  # type: ignore[arg-type]
