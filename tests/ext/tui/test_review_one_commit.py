"""The terminal review: an apply as one commit, with real git."""

from __future__ import annotations

import os
import shutil

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive
from handgit import git

from conftest import Place
from mudroom.ext.commits.git.user_settings import UserFiles

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
ME = "[user]\n\tname = Me\n\temail = me@example.org\n"


@pytest.fixture
def project(place: Place) -> Place:
    place.write("f", "1\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    (place.root / "gitconfig").write_text(ME)
    return place


def user(place: Place) -> UserFiles:
    return UserFiles(os.fsencode(place.root), (os.fsencode(place.root / "gitconfig"),))


def staged(place: Place, script: str) -> str:
    _session, result = place.sh(script)
    assert result.exit_code == 0, result.stderr
    return result.fork


def log(place: Place) -> str:
    return git(place.project, "git log --format=%s; git status --porcelain")


async def ask_message(driver: Driver) -> None:
    await driver.ask("a", "Apply to")
    await driver.press("c")
    await driver.until(lambda: getattr(driver.app.screen, "_title", "") == "Message of the commit")


def test_apply_commit_and_undo(project: Place) -> None:
    fork = staged(project, "echo 2 >> f; echo g > g")

    async def story(driver: Driver) -> None:
        await ask_message(driver)
        await driver.press("t", "w", "o", "space", "y", "enter")
        await driver.until(lambda: driver.dialog().startswith("Applied"))
        made = git(project.project, "git rev-parse HEAD")[:10]
        assert f"committed: {made} on main, 2 files" in driver.dialog()
        assert log(project) == "two y\none\n"
        await driver.press("u")
        await driver.until(lambda: "Take the last apply back" in driver.dialog())
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Undone"))
        assert log(project) == "one\n"

    app = drive(project, fork, story, git_files=lambda: user(project))
    assert app.code == 0


def test_refused_with_nothing_applied(project: Place) -> None:
    fork = staged(project, "echo 2 >> f")
    git(project.project, "git rev-parse HEAD > .git/MERGE_HEAD")

    async def story(driver: Driver) -> None:
        await ask_message(driver)
        await driver.press("t", "enter")
        await driver.until(lambda: any("a merge is not finished" in line for line in driver.told()))

    drive(project, fork, story, git_files=lambda: user(project))
    assert (project.project / "f").read_text() == "1\n"


def test_without_a_message_nothing_is_applied(project: Place) -> None:
    fork = staged(project, "echo 2 >> f")

    async def story(driver: Driver) -> None:
        await ask_message(driver)
        await driver.press("space", "enter")
        await driver.until(lambda: any("the commit needs a message" in line for line in driver.told()))
        await ask_message(driver)
        await driver.press("t", "escape")
        await driver.until(lambda: driver.app.screen is driver.review)

    drive(project, fork, story, git_files=lambda: user(project))
    assert (project.project / "f").read_text() == "1\n"


def test_a_conflict_leaves_no_commit(project: Place) -> None:
    fork = staged(project, "echo theirs > f; echo g > g")
    project.write("f", "mine\n")

    async def story(driver: Driver) -> None:
        await ask_message(driver)
        await driver.press("t", "enter")
        await driver.until(lambda: driver.dialog().startswith("Applied"))
        assert "not committed: there are conflicts" in driver.dialog()

    assert drive(project, fork, story, git_files=lambda: user(project)).code == 3
    assert log(project).splitlines()[0] == "one"


def test_it_is_offered_in_a_repository_only(place: Place) -> None:
    fork = staged(place, "echo g > g")

    async def story(driver: Driver) -> None:
        await driver.ask("a", "Apply to")
        await driver.press("c")
        await driver.pilot.pause()
        assert driver.dialog().startswith("Apply to")
        assert "commit" not in getattr(driver.app.screen, "_keys", "")

    drive(place, fork, story, git_files=lambda: user(place))
    assert not (place.project / "g").exists()
