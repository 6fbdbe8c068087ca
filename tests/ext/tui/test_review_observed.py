"""The terminal review: what was observed at a hunk, and at all hunks of a file."""

from __future__ import annotations

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive

from conftest import Place

pytestmark = pytest.mark.slow
CODE = "".join(f"x_{number} = {number}\n" for number in range(1, 41))


def test_a_key_says_what_was_observed_at_the_hunk_and_in_the_list_at_the_file(place: Place) -> None:
    place.write("code.py", CODE)
    session, result = place.sh("sed -i 's/^x_3 = 3$/x_3 = None/' code.py")
    session.forks.checkpoint(result.fork, "c")
    session.run([b"sed", b"-i", b"s/^x_30 = 30$/x_30 = 31/", b"code.py"], fork=result.fork)

    async def story(driver: Driver) -> None:
        await driver.until(lambda: bool(driver.listed()))
        await driver.to_file(b"code.py")
        whole = await driver.ask("y", "code.py")
        assert "@@ -1,6 +1,6 @@" in whole and "command 1 of 2" in whole and "command 2 of 2" in whole
        await driver.press("escape")
        await driver.press("tab")
        row = next(n for n, line in enumerate(driver.shown()) if "x_30 = 31" in line)
        driver.diff.go(row)
        one = await driver.ask("y", "code.py")
        assert "observed: changed by command 2 of 2 (`sed -i" in " ".join(one.split())
        assert "command 1 of 2" not in one and "other commands that changed the file: 1" in one
        await driver.press("escape")

    drive(place, result.fork, story, session=session)
