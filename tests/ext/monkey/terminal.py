"""A monkey at the terminal review: all of its keys, windows of any size, and what others do meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple
from unittest import mock

from textual.pilot import Pilot

from conftest import Place
from monkey.chance import Chance, Walk
from monkey.model import Entry, Wish, with_what_goes_along, wrong_after
from monkey.world import FORK, World
from mudroom.core.merge.pick import WHOLE, Pick
from mudroom.errors import MudroomError
from mudroom.ext.tui.app import ReviewApp, ReviewScreen
from mudroom.ext.tui.base_app import ReviewHooks
from mudroom.ext.tui.choice import SIGNS, mark_of
from mudroom.ext.tui.conflict import ConflictScreen
from mudroom.ext.tui.dialog import (
    ApplyOutcomeDialog,
    Choose,
    Confirm,
    ConfirmApply,
    Dialog,
    TextDialog,
    TextInput,
    Working,
)
from mudroom.ext.tui.key import CONFLICTS, REVIEW, Key

PATIENCE = 30.0
"""Seconds for what is expected to come at once."""
OFTEN = {"space": 9, "tab": 6, "j": 5, "k": 3, "n": 5, "p": 2, "x": 3, "a": 8, "A": 2, "N": 2, "c": 3, "u": 1.5, "R": 4,
         "d": 0.15, "q": 0.15, "f": 1, "slash": 1, "t": 1, "T": 0.3, "1": 3, "2": 3, "3": 2}  # fmt: skip
"""How often a key comes; others once."""
STRANGE = ("z", "f5", "ctrl+x", "ctrl+l", "ctrl+c", "ctrl+q", "é", "日", "shift+tab", "ctrl+p", "delete", "backspace")
SIZES = ((100, 30), (80, 24), (140, 40), (40, 10), (20, 6), (10, 3), (200, 60), (1, 1))


def keys_of(table: tuple[Key, ...]) -> dict[str, float]:
    names = [name for key in table for name in key.names.split(",")]
    return {name: OFTEN.get(name, 1) for name in names}


OF_DIALOGS: dict[type[Any], dict[str, float]] = {
    Confirm: {"y": 5, "n": 2, "escape": 2, "enter": 1, "j": 1, "q": 1},
    ConfirmApply: {"y": 5, "n": 2, "escape": 2, "enter": 1, "j": 1, "q": 1},
    Choose: {"enter": 4, "j": 3, "k": 1, "escape": 2, "y": 0.5},
    TextInput: {"e": 2, "x": 1, "t": 1, "enter": 3, "escape": 2, "backspace": 1, "slash": 0.5, "q": 0.5},
    ApplyOutcomeDialog: {"escape": 4, "u": 1, "j": 1, "enter": 1, "q": 1, "space": 1},
    TextDialog: {"escape": 4, "j": 1, "enter": 1, "q": 1, "space": 1},
    Working: {"escape": 1, "ctrl+c": 1, "q": 1, "y": 1, "j": 4},
    ConflictScreen: keys_of(CONFLICTS),
    ReviewScreen: keys_of(REVIEW),
}


class Asked(NamedTuple):
    """An apply that somebody has said yes to."""

    wishes: dict[str, Wish]
    decided: dict[str, list[Entry | None] | None]
    is_stale: bool
    """The fork was another one already than what was shown."""


class Terminal:
    def __init__(self, place: Place, walk: Walk) -> None:
        self.place, self.walk = place, walk
        self.world = World(place, walk)
        self.asked: Asked | None = None
        self.undoes = False
        self.discards = False
        self.fingerprint: str | None = None
        self.landed = 0

    def go(self) -> None:
        """Until the walk ends, in as many reviews as that takes."""
        self.world.run("echo first > first; sed -i -e '3s/.*/the fork/' -e '15s/.*/the fork, too/' text.txt")
        try:
            while (chance := self.walk.next()) is not None:
                self._one_life(chance)
        finally:
            self.world.close()

    def _one_life(self, chance: Chance) -> None:
        self.walk.say("the review begins")
        if self.world.session.vault.find(FORK) is None:
            self.world.outside(chance)
            return
        fork = FORK if chance.random() < 0.8 else None
        hooks = ReviewHooks(edit=lambda *_: None, tell=lambda event: event.kind)
        app = ReviewApp(self.place.session(), fork, hooks, handles_signals=False)

        async def run() -> None:
            async with app.run_test(size=(100, 30)) as pilot:
                await self._live(app, pilot)

        try:
            # Textual waits until the process has had 20 ms without much work; what we wait for is in _settle.
            with mock.patch("textual.app.wait_for_idle", at_once), mock.patch("textual.pilot.wait_for_idle", at_once):
                asyncio.run(run())
        finally:
            self.world.release()
            if app.model is not None:
                app.model.close()
        self._check("leaving")

    async def _live(self, app: ReviewApp, pilot: Pilot[None]) -> None:
        await self._settle(app, pilot)
        while not app._exit:
            chance = self.walk.next()
            if chance is None:
                return await self._quit(app, pilot)
            self.fingerprint = self._fingerprint()
            what = chance.weighed({"key": 20, "outside": 3, "resize": 0.7})
            if what == "outside":
                self.world.outside(chance)
            elif what == "resize":
                size = chance.one(SIZES)
                self.walk.say(f"resize {size}")
                await pilot.resize_terminal(*size)
            else:
                await self._press(app, pilot, chance)
            await self._settle(app, pilot)
            if not app._exit:
                await self._look(app, pilot)
            self._check("this", is_outside=what == "outside", may_change=isinstance(app.screen, ConflictScreen))
        return None

    async def _press(self, app: ReviewApp, pilot: Pilot[None], chance: Chance) -> None:
        screen = app.screen
        weights = next(
            (OF_DIALOGS[kind] for kind in type(screen).__mro__ if kind in OF_DIALOGS), OF_DIALOGS[TextDialog]
        )
        key = chance.weighed(weights) if chance.random() < 0.95 else chance.one(STRANGE)
        title = screen._title if isinstance(screen, Dialog) else ""
        self.walk.say(f"{type(screen).__name__} {title!r}: {key}")
        if isinstance(screen, Confirm | ConfirmApply) and key == "y":
            self._says_yes(app, title)
        await pilot.press(key)
        if isinstance(screen, ReviewScreen) and chance.random() < 0.1:  # nobody waits for what a key does
            more = [chance.weighed({**weights, "escape": 9}) for _more in range(3)]
            self.walk.say(f"at once: {' '.join(more)}")
            await pilot.press(*more)

    def _says_yes(self, app: ReviewApp, title: str) -> None:
        self.undoes, self.discards = title.startswith("Take the last"), title.startswith("Discard")
        if title.startswith("Apply to"):
            self.asked = self._what_is_shown(app)

    def _what_is_shown(self, app: ReviewApp) -> Asked:
        review = review_of(app)
        seen = review.selection.seen if review is not None else None
        assert review is not None and seen is not None, "something is to be applied, and nothing is shown"
        try:
            is_stale = self.world.session.changes.fingerprint(FORK) != seen.fingerprint
            known = {} if is_stale else self.world.wishes()
            decided = {} if is_stale else self.world.decided()
        except (MudroomError, OSError):
            return Asked({}, {}, True)
        wishes = {}
        for item in seen.items:
            pick = review.selection.picks.get(item.path)
            for path in (item.inside or (item.path,)) if pick is not None else ():
                name = path.decode("utf-8", "surrogateescape")
                if name in known and pick is not None:
                    wishes[name] = known[name]._replace(blocks=pick.blocks, mode=pick.mode)
        return Asked(with_what_goes_along(wishes, known), decided, is_stale)

    async def _settle(self, app: ReviewApp, pilot: Pilot[None]) -> None:
        """Until nothing goes on but what waits for somebody."""
        until = time.monotonic() + PATIENCE
        while not app._exit:
            await pilot.pause(0)
            if app.model is not None:
                await app.model.ask(lambda: None)
                await pilot.pause(0)
            await pilot.pause(0.002)
            if app._exception is not None:
                self.walk.fail(f"it has crashed: {app._exception!r}")
            if app._exit or not self._is_busy(app):
                return
            if time.monotonic() > until:
                self.walk.fail(f"it is at work still: {app.screen} {app.workers}")

    def _is_busy(self, app: ReviewApp) -> bool:
        if any(one.is_running and one.group in ("look", "file") for one in app.workers):
            return True
        screen = app.screen
        if isinstance(screen, Working):
            return not self.world.is_held
        turn = getattr(screen, "_queue", None)
        return turn is not None and turn._is_busy

    def _fingerprint(self) -> str | None:
        session = self.world.session
        return session.changes.fingerprint(FORK) if session.vault.find(FORK) is not None else None

    def _check(self, what: str, *, is_outside: bool = False, may_change: bool = False) -> None:
        """Nothing has changed but what somebody has said yes to, and that as it was shown."""
        world = self.world
        news = world.look_at_applies()
        for name, state in news.items():
            if state == "applied":
                self._check_landing(name)
            elif state == "undone":
                self.walk.require([] if self.undoes else [name], "nobody has said yes to undoing")
                world.note_undone(name)
            else:
                self.walk.fail(f"apply {name} is {state}")
        world.require_still(what)
        now = self._fingerprint()
        allowed = (
            is_outside
            or may_change
            or news
            or world.has_recovered
            or self.asked
            or self.discards
            or now == self.fingerprint
        )
        allowed = allowed or "roll back" in self.walk.said[-1].lower() or "Roll" in self.walk.said[-1]
        self.walk.require([] if allowed else [f"{self.fingerprint} became {now}"], "the fork has changed by itself")
        self.fingerprint = now
        if not world.is_held:
            self.asked, self.undoes, self.discards = None, False, False

    def _check_landing(self, name: str) -> None:
        asked = self.asked
        if asked is None or asked.is_stale:
            self.walk.fail(
                f"{name} was applied; " + ("what was shown was something else" if asked else "nobody said yes")
            )
            return
        wrong = wrong_after(self.world.tree, self.world.now(), asked.wishes, asked.decided)
        self.walk.require(wrong, f"{name} is not what was shown as chosen")
        self.world.note_landing(name)
        self.landed += 1

    async def _look(self, app: ReviewApp, pilot: Pilot[None]) -> None:
        """What is on the screen is something, and it is what is chosen."""
        until = time.monotonic() + PATIENCE
        while app.size.width > 1 and not app._exit and is_empty(app):
            await pilot.pause(0.01)
            if time.monotonic() > until:
                self.walk.fail("the screen is empty")
        review = review_of(app)
        if review is None or review.selection.seen is None:
            return
        self.walk.require(list(wrong_marks(review)), "what is shown as chosen is something else than what is chosen")

    async def _quit(self, app: ReviewApp, pilot: Pilot[None]) -> None:
        """It can always be left."""
        self.world.release()
        await self._settle(app, pilot)
        for _time in range(12):
            if app._exit:
                return
            await pilot.press("escape" if not isinstance(app.screen, ReviewScreen) else "q")
            await self._settle(app, pilot)
        self.walk.fail(f"it cannot be left: {app.screen_stack}")


def is_empty(app: ReviewApp) -> bool:
    return not any(strip.text.strip() for strip in app.screen._compositor.render_strips())


async def at_once(*_seconds: float) -> None:
    await asyncio.sleep(0)


def review_of(app: ReviewApp) -> ReviewScreen | None:
    return next((screen for screen in app.screen_stack if isinstance(screen, ReviewScreen)), None)


def wrong_marks(review: ReviewScreen) -> Any:
    """Rows whose mark is not what would be applied."""
    files, diff, picks = review.files, review.diff, review.selection.picks
    for number, row in enumerate(files.rows):
        marks = {mark_of(picks.get(item.path)) for item in (row.members if row.item is None else (row.item,))}
        expected = SIGNS[marks.pop() if len(marks) == 1 else "part"]
        drawn = "".join(text for text, _style in files.row(number, files.size.width))
        if drawn[1:4] != expected:
            yield f"{drawn!r} in the list is {expected}"
    if diff.item is None or diff.shown.text is None or not diff.shown.divisible:
        return
    pick = picks.get(diff.item.path)
    for group in diff.layout_of.groups:
        chosen = [is_chosen(pick, block) for block in group.blocks]
        expected = SIGNS["all" if all(chosen) else "part" if any(chosen) else "none"]
        drawn = "".join(text for text, _style in diff.row(group.row, diff.size.width))
        if expected not in drawn:
            yield f"{drawn!r} of {diff.item.path!r} is {expected}"


def is_chosen(pick: Pick | None, block: int) -> bool:
    return pick is not None and (pick == WHOLE or pick.blocks is None or block in pick.blocks)
