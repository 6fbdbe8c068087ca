"""The terminal review, by somebody who is quicker than it."""

from __future__ import annotations

import asyncio
import threading

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive
from textual import events

from conftest import Place
from mudroom.core.merge.pick import WHOLE

pytestmark = [pytest.mark.slow]


def send(driver: Driver, key: str) -> None:
    """As a terminal does: whoever presses keys does not wait for what they do."""
    event = events.Key(key, None)
    event.set_sender(driver.app)
    assert driver.app._driver is not None
    driver.app._driver.send_message(event)


@pytest.mark.parametrize("key", ["slash", "c", "a"])
def test_escape_before_a_dialog_is_there(place: Place, key: str) -> None:
    place.write("both", "1\n")
    _session, result = place.sh("echo 2 > both; echo new > new")
    place.write("both", "3\n")

    async def script(driver: Driver) -> None:
        for turns in range(10):  # of the event loop, between the two keys
            send(driver, key)
            for _turn in range(turns):
                await asyncio.sleep(0)
            send(driver, "escape")
            await driver.pilot.pause(0)
            assert driver.app._exception is None, turns
            while len(driver.app.screen_stack) > 2:
                await driver.press("escape")
        await driver.press("q")
        assert driver.app._exit

    drive(place, result.fork, script)


def test_a_hunk_is_chosen_only_in_the_file_that_is_shown(place: Place) -> None:
    lines = "".join(f"line {number}\n" for number in range(40))
    for name in ("a", "b"):
        place.write(name, lines)
    _session, result = place.sh("sed -i 's/line 5$/five/; s/line 30$/thirty/' a b")
    free = threading.Event()

    async def script(driver: Driver) -> None:
        assert driver.diff.item is not None and driver.diff.item.path == b"a"
        waiting = asyncio.ensure_future(driver.review.model.ask(free.wait))
        await driver.press("j", "tab", "space", "v")
        assert driver.diff.item.path == b"a", "the file at the cursor is not shown yet"
        free.set()
        await waiting
        await driver.until(lambda: driver.diff.item is not None and driver.diff.item.path == b"b")
        assert driver.review.selection.picks == {b"a": WHOLE, b"b": WHOLE}
        assert driver.review.marks.by_path() == {}
        await driver.press("space")
        assert driver.review.selection.picks[b"b"] != WHOLE

    try:
        drive(place, result.fork, script)
    finally:
        free.set()
