"""An apply of commits, its undo and its redo, cut off at every call that changes the disk: the repository is whole, and
the next command brings it to one end or the other."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from handgit import git

from conftest import Place
from cut_off import crash_in_child, fresh, points
from mudroom.sandbox.client.client import Client
from mudroom.stage.layers.layer import remove_tree
from tiers import daily

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
SCRIPT = (
    "git config user.name T; git config user.email t@example.org; echo two >> file; mkdir d; echo n > d/new;"
    "git add -A; git commit -qm two; git branch side; git tag -a -m tag v1; echo s >> file; git stash -q"
)


def repository(place: Place) -> None:
    place.write("file", "one\n")
    place.write("other", "other\n")
    git(place.project, "git init -q; git add -A; git commit -qm one; echo staged > staged; git add staged")


def state(project: Path) -> tuple[str, str]:
    """All refs with their values, and the status with the user's staged file."""
    assert git(project, "git fsck --strict --no-dangling 2>&1") == ""
    assert not [path for path in (project / ".git").rglob("*") if path.name.endswith(".lock")]
    return git(project, "git for-each-ref; git stash list"), git(project, "git status --porcelain; git ls-files -s")


@pytest.mark.slow
@pytest.mark.parametrize("verb", daily(["apply", "undo", "redo"]))
def test_commits_killed_anywhere(tmp_path: Path, client: Client, verb: str) -> None:
    for number in points():
        place = fresh(tmp_path, client, number)
        repository(place)
        before = state(place.project)
        session, result = place.sh(SCRIPT)
        assert result.exit_code == 0, result.stderr
        work: Callable[[], object] = functools.partial(session.changes.apply, result.fork, git=True)
        if verb != "apply":
            work()
            work = session.changes.undo
        if verb == "redo":
            session.changes.undo()
            work = session.changes.redo
        crashed = crash_in_child(work, number)
        again = place.session()
        again.changes.recover()
        assert not again.vault.has_unfinished()
        if verb == "apply" and state(place.project)[0] == before[0]:
            assert not again.changes.apply(result.fork, git=True).conflicts
        elif verb == "undo" and again.changes.applies()[-1]["state"] == "applied":
            again.changes.undo()
        elif verb == "redo" and again.changes.applies()[-1]["state"] == "undone":
            again.changes.redo()
        after = state(place.project)
        assert (after == before) == (verb == "undo"), f"torn at change {number}"
        if verb != "undo":
            assert "two" in git(place.project, "git log --format=%s main") and "stash@{0}" in after[0]
            assert git(place.project, "git status -s") == ""
            while any(row["state"] == "applied" for row in again.changes.applies()):
                assert not again.changes.undo().conflicts
            assert state(place.project) == before
        place.close()
        remove_tree(os.fsencode(place.root))
        if not crashed:
            return
