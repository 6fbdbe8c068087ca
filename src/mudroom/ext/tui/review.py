"""The review: a screen, its key actions, and the watch on its fork."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from mudroom.ext.tui import fork_action, view_action
from mudroom.ext.tui.fork_reader import DifferenceLoader, ForkReader, ReviewParts
from mudroom.ext.tui.fork_screen import ForkScreen
from mudroom.ext.tui.key import REVIEW, bindings
from mudroom.ext.tui.pane import Pane
from mudroom.ext.tui.pane_screen import COMMON
from mudroom.ext.tui.review_model import ReviewModel
from mudroom.ext.tui.worker import WorkerQueue

CHECK_INTERVAL = 1.0
"""Seconds between checks for changes in the fork."""

AT_ONCE: Mapping[str, Callable[..., Awaitable[None] | None]] = {
    "other_pane": view_action.other_pane,
    "enter": view_action.enter,
    "back": view_action.back,
    "hunk": view_action.hunk,
    "split": view_action.split,
    "choose": view_action.choose,
    "choose_all": view_action.choose_all,
    "mark": view_action.mark,
    "reload": view_action.reload,
    "help": view_action.show_help,
    "candidates": view_action.candidates,
    "leave": view_action.leave,
}
"""Actions performed when their key arrives."""
ONE_AT_A_TIME: Mapping[str, Callable[[ReviewParts], Awaitable[None]]] = {
    "filters": view_action.choose_filter,
    "search": view_action.search,
    "apply": fork_action.apply,
    "discard": fork_action.discard,
    "undo": fork_action.undo,
    "conflicts": fork_action.show_conflicts,
    "commits": fork_action.show_commits,
    "timeline": fork_action.show_timeline,
    "journal": fork_action.show_journal,
}
"""Actions that ask. Their keys are dropped while one is running."""


class ReviewScreen(ForkScreen, inherit_bindings=False):
    BINDINGS: ClassVar[list[BindingType]] = bindings(REVIEW)

    def __init__(self, model: ReviewModel) -> None:
        super().__init__(model)
        differences = DifferenceLoader(self)
        self._parts = ReviewParts(self, differences, ForkReader(self, differences))
        self._queue = WorkerQueue(self, self.app.tell_error)

    def on_mount(self) -> None:
        self.set_focus(self.files)
        for note in self.app.hooks.notes:
            self.app.notify(note, markup=False)
        self._parts.reader.begin()
        self.set_interval(CHECK_INTERVAL, self._parts.reader.check)

    def on_pane_moved(self, event: Pane.Moved) -> None:
        if event.pane is self.files:
            self._parts.differences.begin()

    async def action_do(self, name: str, *arguments: object) -> None:
        """Perform an action from the tables."""
        if name in ONE_AT_A_TIME:
            self._queue.run_unless_busy(partial(ONE_AT_A_TIME[name], self._parts))
            return
        if name in COMMON:
            COMMON[name](self, *arguments)
            return
        working = AT_ONCE[name](self._parts, *arguments)
        if working is not None:
            await working
