"""A file that was moved and changed in one go, in the terminal: what it was, and that its two ends are chosen apart."""

from __future__ import annotations

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive

from conftest import Place

TEXT = "".join(f"line {number}\n" for number in range(40))


def test_it_is_shown_beside_what_it_was(place: Place) -> None:
    place.write("src/old.py", TEXT)
    session = place.session()
    session.forks.new("f")
    session.run([b"sh", b"-c", b"mv src/old.py src/new.py; sed -i 's/^line 7$/seven/' src/new.py"], fork="f")

    async def look(driver: Driver) -> None:
        def line() -> str:
            return next((one for one in driver.shown() if "moved" in one), "")

        await driver.to_file(b"src/new.py")
        assert line().endswith("moved from src/old.py, 97 % the same")
        assert [one[-6:] for one in driver.shown() if "-line" in one or "+" in one[1:]][-2:] == ["line 7", "+seven"]
        assert not any("+line 8" in one for one in driver.shown()), "what is the same is no change"
        await driver.press("space")
        assert line().endswith("97 % the same: only that one of the two is chosen")

        await driver.to_file(b"src/old.py")
        assert line().endswith("moved to src/new.py, 97 % the same: only this one of the two is chosen")
        await driver.press("space")
        assert line().endswith("97 % the same")
        await driver.press("A")
        assert line().endswith("97 % the same")

    drive(place, "f", look, session=session)


def test_no_hunk_of_it_is_chosen_apart(place: Place) -> None:
    """They are not those of the change: it is added as a whole, or not at all."""
    place.write("old.py", TEXT)
    session = place.session()
    session.forks.new("f")
    session.run([b"sh", b"-c", b"mv old.py new.py; sed -i 's/^line 7$/seven/; s/^line 30$/thirty/' new.py"], fork="f")

    async def choose(driver: Driver) -> None:
        await driver.to_file(b"new.py")
        assert sum("hunk" in one for one in driver.shown()) == 2
        await driver.press_on_hunk("tab", "n", "space")
        assert b"new.py" not in driver.review.selection.picks
        await driver.press("space")
        assert driver.review.selection.picks.keys() == {b"new.py", b"old.py"}

    drive(place, "f", choose, session=session)
