"""An agent that commits in a fork of a project with a repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from handgit import Copy, git, with_settings

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.ext.commits.git.transfer import Commits
from mudroom.ext.commits.session import bring_commits


class Agent:
    """An agent that works in the fork ``agent`` of a project with a repository."""

    def __init__(self, place: Place, settings: Settings | None = None) -> None:
        self.place, self.session = place, place.session(settings)

    def run(self, script: str) -> None:
        result = self.session.run([b"sh", b"-ec", with_settings(script).encode()], fork="agent")
        assert result.exit_code == 0, result.stderr

    def bring(self, branch: str | None = None, repository: bytes = b".git", fork: str = "agent") -> Commits:
        return bring_commits(self.session, fork, branch=branch, repository=repository)

    def undo(self) -> list[str]:
        """Undo the last apply. Return the reasons why refs stay."""
        return [conflict.reason for conflict in self.session.changes.undo().conflicts]


def moved_refs(commits: Commits) -> dict[str, str]:
    """Return the results for the refs of a fork other than HEAD, with the ref of the project where there is one."""
    return {
        outcome.ref.decode(): " ".join(filter(None, (outcome.result, outcome.target.decode())))
        for outcome in commits.result.refs
        if outcome.ref != b"HEAD"
    }


def subjects(project: Path, what: str) -> list[str]:
    return git(project, f"git log --format=%s {what}").splitlines()


@pytest.fixture
def project(place: Place) -> Place:
    place.write("file", "one\n")
    place.write("directory/other", "other\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    return place


@pytest.fixture
def agent(project: Place) -> Agent:
    return Agent(project)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)
