"""A review without a terminal: keys go in, and what is shown can be looked at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from textual.pilot import Pilot

from conftest import Place
from mudroom.ext.tui.app import ReviewApp, ReviewScreen
from mudroom.ext.tui.base_app import ReviewHooks
from mudroom.ext.tui.dialog import Dialog
from mudroom.ext.tui.diffview import DiffView
from mudroom.ext.tui.filelist import FileList
from mudroom.session import Session

PATIENCE = 30.0
"""Seconds for what is expected to come at once."""


def no_editor(_session: Session, _fork: str, _conflict: object) -> None:
    raise AssertionError("nobody asked for an editor")


class Driver:
    """An app that runs, and what a test wants to know of it."""

    def __init__(self, app: ReviewApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def review(self) -> ReviewScreen:
        return next(screen for screen in self.app.screen_stack if isinstance(screen, ReviewScreen))

    @property
    def files(self) -> FileList:
        return self.review.files

    @property
    def diff(self) -> DiffView:
        return self.review.diff

    def listed(self) -> list[str]:
        return [text_of_row(self.files, number).rstrip() for number in range(self.files.count)]

    def shown(self) -> list[str]:
        return [text_of_row(self.diff, number).rstrip() for number in range(self.diff.count)]

    def dialog(self) -> str:
        """The title and all lines of the dialog on top; empty: there is none, or not yet."""
        screen = self.app.screen
        if not isinstance(screen, Dialog) or (screen.lines._rows and not screen.lines.count):
            return ""
        if not screen.lines._chooses:  # as they are before they are broken for the width
            return "\n".join([screen._title, *("".join(text for text, _style in row) for row in screen.lines._rows)])
        lines = [text_of_row(screen.lines, number) for number in range(screen.lines.count)]
        return "\n".join([screen._title, *lines])

    def told(self) -> list[str]:
        """What has been said in passing."""
        return [one.message for one in self.app._notifications]

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self._state()
            await self.pilot.pause()

    def _state(self) -> tuple[object, ...]:
        """What a failed test says."""
        is_review = any(isinstance(screen, ReviewScreen) for screen in self.app.screen_stack)
        return self.dialog(), self.told(), *((self.listed(), self.shown()) if is_review else ())

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def by_directory(self) -> None:
        """Show the list by directory."""
        await self.until(lambda: self.files.count)
        await self.press("o")

    async def press_on_hunk(self, *keys: str) -> None:
        """Press keys; the last when the differences at the cursor are shown, because a review drops it before."""
        await self.press(*keys[:-1])
        await self.until(lambda: not self.review.is_behind)
        await self.press(keys[-1])

    async def to_file(self, path: bytes) -> None:
        """With its differences shown."""
        number = next(n for n, row in enumerate(self.files.rows) if row.item is not None and row.item.path == path)
        self.files.go(number)
        await self.until(lambda: self.diff.item is not None and self.diff.item.path == path)

    async def ask(self, key: str, title: str) -> str:
        """Press a key that opens a dialog; what that says."""
        await self.press(key)
        await self.until(lambda: title in self.dialog())
        return self.dialog()


def text_of_row(pane: Any, number: int) -> str:
    return "".join(text for text, _style in pane.row(number, pane.size.width))


def drive(
    place: Place,
    fork: str | None,
    script: Callable[[Driver], Awaitable[None]],
    *,
    tried: str | None = None,
    size: tuple[int, int] = (100, 30),
    session: Session | None = None,
    **hooks: Any,
) -> ReviewApp:
    """Run a review, and ``script`` in it. The app, when it has ended."""
    given: dict[str, Any] = {"edit": no_editor, "tell": lambda event: event.kind}
    app = ReviewApp(
        session or place.session(), fork, ReviewHooks(**(given | hooks)), tried=tried, handles_signals=False
    )

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            driver = Driver(app, pilot)
            if fork is not None:
                await driver.until(lambda: len(app.screen_stack) > 1 and driver.review.selection.seen is not None)
                await driver.until(lambda: driver.diff.item is not None or not driver.files.count)
            await script(driver)

    try:
        asyncio.run(run())
    finally:
        for model in (app.model, app.candidates):
            if model is not None:
                model.close()
    return app
