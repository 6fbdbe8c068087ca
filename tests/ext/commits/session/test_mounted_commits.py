"""Commits that are made in a mounted fork."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from conftest import Place
from mounted_fork import kind, mounted_new, session, sh
from mudroom.ext.commits.session import bring_commits, list_commits
from mudroom.session import Session
from mudroom.stage.views.mount import Kind

__all__ = ["kind", "session"]  # fixtures
pytestmark = [
    pytest.mark.both_users,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


def test_commits_in_a_mounted_fork(place: Place, session: Session, kind: Kind) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=place.project, check=True)
    at = mounted_new(session, kind)
    (at / "file").write_text("by the user\n")
    subprocess.run([*git, "commit", "-qam", "second"], cwd=at, check=True)
    result = sh(
        session, "echo two > d/x; git -c user.name=n -c user.email=a@b commit -qam third; git log --oneline | wc -l"
    )
    assert result.stdout.strip() == b"3", result.stderr
    assert [commit.subject for commit in list_commits(session, "f").commits] == ["second", "third"]
    session.forks.unmount("f")
    with session.alone("a test"):
        brought = bring_commits(session, "f")
    assert [commit.subject for commit in brought.commits] == ["second", "third"]
