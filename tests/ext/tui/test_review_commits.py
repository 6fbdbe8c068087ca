"""The terminal review: the commits of a fork, with real git."""

from __future__ import annotations

import shutil
import subprocess

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive

from conftest import Place

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
GIT = "git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main"


@pytest.fixture
def project(place: Place) -> Place:
    place.write("f", "1\n")
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm one"], cwd=place.project, check=True)
    return place


def staged(place: Place, script: str) -> str:
    _session, result = place.sh(script)
    assert result.exit_code == 0, result.stderr
    return result.fork


def test_the_list_and_one_commit(project: Place) -> None:
    two = f"printf '\\t2\\033[2J\\n' >> f; printf 'two\\033[2J\\n\\nwhy\\n' > m; {GIT} commit -qaF m; rm m"
    fork = staged(project, f"{two}; rm f; {GIT} commit -qam three")

    async def story(driver: Driver) -> None:
        rows = (await driver.ask("m", "Commits of")).splitlines()[1:]
        assert [row.split("  ")[1] for row in rows] == ["two\\x1b[2J", "three"]
        assert "(HEAD -> main)  T <t@example.org>" in rows[1]
        shown = await driver.ask("enter", "Author: T")
        lines = shown.splitlines()
        assert lines[0] == "two\\x1b[2J" and lines[1].startswith("commit ") and "    why" in lines
        assert lines[-1] == "+    2\\x1b[2J"
        await driver.press("escape")
        await driver.until(lambda: "Commits of" in driver.dialog())
        await driver.press("j")
        assert "-1" in await driver.ask("enter", "deleted file mode 100644")
        await driver.press("escape")
        await driver.until(lambda: "Commits of" in driver.dialog())
        await driver.press("escape")
        await driver.until(lambda: not driver.dialog())

    drive(project, fork, story)


def test_without_commits_or_with_a_damaged_repository(project: Place) -> None:
    fork = staged(project, "echo 2 > f")

    async def none(driver: Driver) -> None:
        await driver.press("m")
        await driver.until(lambda: any("has no commits" in line for line in driver.told()))

    drive(project, fork, none)
    broken = staged(project, f"echo 3 > f; {GIT} commit -qam two; rm -r .git/objects/??")

    async def refused(driver: Driver) -> None:
        await driver.press("m")
        await driver.until(lambda: any("repository is not read" in line for line in driver.told()))

    drive(project, broken, refused)


def test_a_very_long_difference_is_cut(project: Place) -> None:
    fork = staged(project, f"seq 9000 > f; {GIT} commit -qam long")

    async def story(driver: Driver) -> None:
        await driver.ask("m", "Commits of")
        assert "only the first 5,000 lines are shown" in await driver.ask("enter", "Author: T")

    drive(project, fork, story)
