"""``mudroom review`` in a Windows Python, from its words to the project: keys go in without a console, which Wine has
not; Textual's own driver of consoles is not tried. Run by ``dev/wine``."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)
pytest.importorskip("textual")

from driving import Driver

from mudroom.cli.terminal import terminal
from mudroom.ext.tui import app as reviewing
from mudroom.ext.tui.app import ReviewApp, ReviewEnd
from mudroom.ext.tui.base_app import ReviewHooks
from mudroom.session import Session
from test_session_on_windows import Place, place

__all__ = ["place"]

Script = Callable[[Driver], Awaitable[None]]


def change(place: Place, line: str) -> None:
    assert place.say("exec", "--net", "none", "--fork", "work", "--", "cmd", "/d", "/s", "/c", line).code == 0


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], None]:
    """Have the next reviews driven by a script, on a terminal."""

    def given(script: Script) -> None:
        def review(session: Session, fork: str | None, hooks: ReviewHooks, *, tried: str | None = None) -> ReviewEnd:
            import asyncio

            app = ReviewApp(session, fork, hooks, tried=tried)

            async def run() -> None:
                async with app.run_test(size=(100, 30)) as pilot:
                    driver = Driver(app, pilot)
                    await driver.until(lambda: len(app.screen_stack) > 1 and driver.review.selection.seen is not None)
                    await script(driver)

            before = {number: signal.getsignal(number) for number in reviewing.ENDING}
            try:
                asyncio.run(run())
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
                if app.model is not None:
                    app.model.close()
            return ReviewEnd(app.code, app.fork or "", app.says, app.applied, app.holds, app.ended_by)

        monkeypatch.setattr(reviewing, "review", review)
        monkeypatch.setattr(terminal, "is_terminal", lambda _number: True)

    return given


def test_what_is_chosen_is_applied_and_taken_back(place: Place, keys: Callable[[Script], None]) -> None:
    before = place.files()
    change(place, "echo three>> a.txt& echo new> made.txt& del sub\\b.bin")
    seen = list[dict[str, Any]]()

    async def script(driver: Driver) -> None:
        await driver.to_file(b"a.txt")
        assert any("+three" in row.replace(" ", "") for row in driver.shown()), driver.shown()
        await driver.ask("a", "Apply to")
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Applied"))
        seen.append(dict(place.files()))
        await driver.press("escape")
        await driver.until(lambda: driver.files.count == 0)
        await driver.ask("u", "Take the last apply back")
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Undone"))
        await driver.press("escape", "q")

    keys(script)
    said = place.say("review", "work")
    assert said.code == 0 and "Traceback" not in said.err, said
    assert seen == [{"a.txt": b"one\r\ntwo\r\nthree\r\n", "made.txt": b"new\r\n"}]
    assert place.files() == before


def test_a_signal_ends_it_and_nothing_is_applied(place: Place, keys: Callable[[Script], None]) -> None:
    change(place, "echo new> made.txt")

    async def script(driver: Driver) -> None:
        signal.raise_signal(signal.SIGBREAK)
        await driver.until(lambda: driver.app.ended_by)

    keys(script)
    said = place.say("review")
    assert said.code == 128 + signal.SIGBREAK and "stays in work" in said.err, said
    assert "made.txt" not in place.files()


@pytest.mark.slow
def test_its_data_and_what_is_wrong(place: Place) -> None:
    change(place, "echo three>> a.txt")
    report = json.loads(place.say("review", "--json").out)
    (row,) = report["changes"]["files"]
    assert (report["fork"], row["path"], row["hunks"]) == ("work", "a.txt", 1)
    assert place.say("apply", "--yes", "--reviewed", report["reviewed"], "work").code == 0
    for words, says in (
        (("review",), "there is no terminal to review in"),
        (("review", "--json", "x"), "no fork named x"),
    ):
        said = place.say(*words)
        assert (said.code, said.out) == (125, "") and said.err.count("\n") == 1 and says in said.err, said


@pytest.mark.slow
def test_no_editor_is_run(place: Place) -> None:
    change(place, "echo theirs> a.txt")
    (place.project / "a.txt").write_bytes(b"mine\r\n")
    assert place.say("apply", "--yes", "work").code == 3
    for words in (("--edit",), ("--tool", "cmd %A %B")):
        said = place.say("resolve", "work", "a.txt", *words)
        assert said.code == 125 and said.err.count("\n") == 1, said
        assert "an editor or a merge driver needs a terminal's foreground; found: a console of Windows" in said.err, (
            said
        )
