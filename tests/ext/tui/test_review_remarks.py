"""The terminal review: remarks at the cursor, a suggestion taken, a round sent, and what is new since."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive
from textual.widgets import TextArea

from conftest import Place
from mudroom.ext.remarks.session import Remarks
from mudroom.ext.tui.remark import RemarkEditor
from mudroom.session import Session

pytestmark = pytest.mark.slow
CODE = "".join(f"x_{number} = {number}\n" for number in range(1, 21))


@pytest.fixture
def forked(place: Place) -> tuple[Session, str]:
    place.write("code.py", CODE)
    session, result = place.sh("sed -i 's/^x_3 = 3$/x_3 = None/' code.py; echo n > new.txt")
    return session, result.fork


async def write(driver: Driver, text: str, suggestion: str | None = None) -> None:
    await driver.until(lambda: isinstance(driver.app.screen, RemarkEditor) and driver.app.screen.focused)
    driver.app.screen.query_one("#remark", TextArea).insert(text)
    if suggestion is not None:
        await driver.press("ctrl+l")
        field = driver.app.screen.query_one("#suggestion", TextArea)
        field.text = suggestion
    await driver.press("ctrl+s")


def test_a_remark_a_suggestion_a_round_and_what_is_new(place: Place, forked: tuple[Session, str]) -> None:
    session, fork = forked
    remarks = Remarks(session, fork)
    calls: list[Any] = []

    def send(name: str, prompt: str, waits: bool) -> dict[str, Any]:
        calls.append((name, prompt, waits))
        with Remarks(session, name).handing("waiting", expected=prompt) as handing:
            handing.settle("sent")
        return {"exit_code": 0}

    async def story(driver: Driver) -> None:
        await driver.until(lambda: len(driver.listed()) == 4)
        await driver.to_file(b"code.py")
        await driver.press("tab")
        row = next(n for n, line in enumerate(driver.shown()) if "x_3 = None" in line)
        driver.diff.go(row)
        await driver.press("r")
        await write(driver, "why None?\nsay it", "x_3 = 0")
        await driver.until(lambda: any("r1  code.py:3  (not sent): why None?" in line for line in driver.shown()))
        located = remarks.listed().remarks[0]
        assert (located.first, located.remark.suggestion, located.remark.text) == (3, "x_3 = 0", "why None?\nsay it")

        await driver.press("tab")
        await driver.to_file(b"new.txt")
        await driver.press("r")
        await write(driver, "what for?")
        await driver.until(lambda: any("r2  new.txt  (not sent): what for?" in line for line in driver.shown()))

        assert "r1  code.py:3  why None?  (not sent)" in await driver.ask("w", "Remarks about")
        assert "    > say it\n    + x_3 = 0" in await driver.ask("enter", "code.py:3")
        await driver.press("escape")
        await driver.until(lambda: "Remarks about" in driver.dialog())
        asked = await driver.ask("S", "Send the remarks?")
        assert f"{fork} has no conversation to go on with." in asked and "| 3: x_3 = None\n> why None?" in asked
        await driver.press("y")  # there is no agent
        await driver.press("l")
        await driver.until(lambda: "round 1" in driver.dialog())
        assert "(sent in round 1)" in driver.dialog() and [call[2] for call in calls] == [True]
        assert "nothing has changed" in await driver.ask("N", "New since round 1")
        await driver.press("escape")
        await driver.until(lambda: "Remarks about" in driver.dialog())
        await driver.press("y")
        await driver.until(lambda: "(settled)" in driver.dialog())
        assert "+x_3 = 0" in await driver.ask("N", "New since round 1")
        await driver.press("escape")
        await driver.until(lambda: "Remarks about" in driver.dialog())
        await driver.press("r")
        await write(driver, "still")
        await driver.until(lambda: "r1  code.py:3  still  (sent in round 1, your answer not yet" in driver.dialog())
        await driver.press("s")
        await driver.until(lambda: "(settled)" in driver.dialog())
        await driver.press("j", "x")
        await driver.until(lambda: "r2" not in driver.dialog())
        await driver.press("escape")

    def words(_session: Session, name: str) -> tuple[str, ...]:
        from mudroom.errors import UsageError

        raise UsageError(f"{name} has no conversation to go on with")

    drive(place, fork, story, session=session, send=send, agent_words=words)
    assert "x_3 = 0\n" in session.forks.files(fork).read("code.py").decode()
    assert (place.project / "code.py").read_text() == CODE


def test_an_empty_remark_and_escape_keep_nothing(place: Place, forked: tuple[Session, str]) -> None:
    session, fork = forked

    async def story(driver: Driver) -> None:
        await driver.until(lambda: len(driver.listed()) == 4)
        await driver.to_file(b"code.py")
        await driver.press("r")
        await driver.until(lambda: isinstance(driver.app.screen, RemarkEditor) and driver.app.screen.focused)
        await driver.press("ctrl+s")
        assert isinstance(driver.app.screen, RemarkEditor)
        await driver.press("escape")
        await driver.until(lambda: not isinstance(driver.app.screen, RemarkEditor))
        assert "there are none; a writes one about the whole" in await driver.ask("w", "Remarks about")
        await driver.press("N")
        await driver.until(lambda: "nothing was sent yet" in driver.told())
        await driver.until(lambda: "Remarks about" in driver.dialog())
        await driver.press("S")
        await driver.until(lambda: any("no remarks that were not sent" in told for told in driver.told()))

    drive(place, fork, story, session=session)


@pytest.mark.parametrize("size", [(40, 20), (200, 50)])
def test_remarks_fit_the_terminal(place: Place, forked: tuple[Session, str], size: tuple[int, int]) -> None:
    session, fork = forked
    Remarks(session, fork).add(b"code.py", 3, 3, "a\x1b[2J\u202e" + "very long " * 30)

    async def story(driver: Driver) -> None:
        await driver.until(lambda: len(driver.listed()) == 4)
        shown = await driver.ask("w", "Remarks about")
        assert "a\\x1b[2J\\u{202e}" in shown and "\x1b" not in shown
        await driver.ask("enter", "code.py:3")

    drive(place, fork, story, session=session, size=size)
