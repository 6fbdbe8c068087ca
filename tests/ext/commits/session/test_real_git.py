"""Real git in a fork: what an apply with its commits leaves is what git leaves without mudroom, but for times."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import Listing, Place, listing

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = "git -c user.name=Test -c user.email=test@example.org -c init.defaultBranch=main -c gc.auto=0"
DATES = "export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z;"


def files(project: Path) -> Listing:
    return {name: entry for name, entry in listing(project).items() if ".git" not in name}


def repository(project: Path) -> str:
    """Return the refs, index, state of files and damage of a repository; objects may be packed or not."""
    script = "cat .git/HEAD; git for-each-ref; git ls-files -s; git status --porcelain; git fsck --strict --no-dangling"
    done = subprocess.run(["sh", "-ec", script], cwd=project, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_git_commit(place: Place) -> None:
    for number in range(40):
        place.write(f"src/part{number % 5}/module{number}.py", f"def  f{number}( x ):\n    return x+{number}\n")
    place.write("run.sh", "#!/bin/sh\necho run\n", 0o755)
    os.symlink("run.sh", place.project / "link")
    first = f"{DATES} {GIT} init -q && {GIT} add -A && {GIT} commit -qm one"
    subprocess.run(["sh", "-c", first], cwd=place.project, check=True)
    script = (
        f"{DATES} sed -i s/x/y/ src/part1/*.py && {GIT} add -A && {GIT} commit -qm two && {GIT} checkout -q -b topic"
    )
    before = repository(place.project)
    bare = place.root / "bare/project"
    shutil.copytree(place.project, bare, symlinks=True)
    subprocess.run(["sh", "-c", script], cwd=bare, check=True)
    session, result = place.sh(script)
    assert result.exit_code == 0, result.stderr
    assert session.changes.apply(result.fork, git=True).conflicts == ()
    assert files(place.project) == files(bare)
    assert repository(place.project) == repository(bare)
    session.changes.undo()
    assert repository(place.project) == before, "undo"
