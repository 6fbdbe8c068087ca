"""The terminal review as an application: start and end.

1. Leaving applies no changes.
2. An apply that has begun is finished, whatever signal arrives and even if the terminal is gone. Only the policy's
   verify command is killed; then no changes are applied.
3. The terminal is restored.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType

from mudroom.core.text.invisible_characters import escaped
from mudroom.core.tree.path import show_path
from mudroom.errors import MudroomError
from mudroom.ext.attempts.candidate import all_tries
from mudroom.ext.attempts.value import TryRecord, distinct
from mudroom.ext.decisions.cli import cells_of
from mudroom.ext.decisions.queue import MOST, Decision, decisions, whole_forks
from mudroom.ext.review.rows import fewer_collections
from mudroom.ext.tui.base_app import BaseApp, ReviewHooks
from mudroom.ext.tui.candidate_model import CandidateModel
from mudroom.ext.tui.candidate_screen import CandidateReview
from mudroom.ext.tui.dialog import Choose
from mudroom.ext.tui.pane import Pieces
from mudroom.ext.tui.question import give_answer, read_question
from mudroom.ext.tui.review_model import ReviewModel
from mudroom.ext.tui.worker import begin
from mudroom.session.upkeep import ForkSummaries

if TYPE_CHECKING:
    from mudroom.session import Session


from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from mudroom.ext.tui import fork_action, observed, remark, view_action
from mudroom.ext.tui.fork_reader import DifferenceLoader, ForkReader, ReviewParts
from mudroom.ext.tui.fork_screen import ForkScreen
from mudroom.ext.tui.key import REVIEW, bindings
from mudroom.ext.tui.pane import Pane
from mudroom.ext.tui.pane_screen import COMMON
from mudroom.ext.tui.worker import WorkerQueue

CHECK_INTERVAL = 1.0
"""Seconds between checks for changes in the fork."""

AT_ONCE: Mapping[str, Callable[..., Awaitable[None] | None]] = {
    "other_pane": view_action.other_pane,
    "enter": view_action.enter,
    "back": view_action.back,
    "hunk": view_action.hunk,
    "order": view_action.order,
    "parts": view_action.show_parts,
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
    "effects": fork_action.show_effects,
    "observed": observed.show_observed,
    "remark": remark.write,
    "remarks": remark.show_remarks,
    "timeline": fork_action.show_timeline,
    "journal": fork_action.show_journal,
}
"""Actions that ask. Their keys are dropped while one is running."""


class ReviewScreen(ForkScreen, inherit_bindings=False):
    """The review: a screen, its key actions, and the watch on its fork."""

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


if sys.platform == "win32":
    ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGBREAK)
else:
    ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _heed(loop: asyncio.AbstractEventLoop, number: int, heard: Callable[[int], None]) -> None:
    """Call ``heard`` in the loop when a signal arrives. Event loops on Windows have no signal handlers, but signals
    wake them."""
    if sys.platform == "win32":

        def handle(number: int, _frame: object) -> None:
            loop.call_soon_threadsafe(heard, number)

        signal.signal(number, handle)
    else:
        loop.add_signal_handler(number, heard, number)


class ReviewEnd(NamedTuple):
    """The outcome of a review."""

    code: int
    """The exit code, as in an apply: 0, 1 the requested commit was not made, 3 conflicts are left, 4 the fork has
    changed, 5 verification failed."""
    fork: str
    says: str
    """A sentence about the last action, or empty."""
    applied: bool
    holds: bool
    """Whether the fork still held changes."""
    signal: int
    """The signal that ended the review, or 0."""


class ReviewApp(BaseApp):
    ENABLE_COMMAND_PALETTE = False
    TITLE = "mudroom review"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True)]
    CSS_PATH = "style.tcss"

    def __init__(
        self,
        session: Session,
        fork: str | None,
        hooks: ReviewHooks,
        *,
        tried: str | None = None,
        handles_signals: bool = True,
    ) -> None:
        """``tried``: begin with this try's candidates."""
        super().__init__(session, fork, hooks)
        self._tried = tried
        self.candidates: CandidateModel | None = None
        self.ended_by = 0
        self._handles_signals = handles_signals

    def on_mount(self) -> None:
        if self._handles_signals:
            loop = asyncio.get_running_loop()
            for number in ENDING:
                _heed(loop, number, self._signalled)
        if self.fork is not None:
            self._review(self.fork)
        elif self._tried is not None:
            self._compare(self._tried)
        else:
            begin(self, self._choose_fork, "fork")

    async def _choose_fork(self) -> None:
        """Show the queue of decisions, and below it what waits for nobody. It is read again after an answer."""
        loop = asyncio.get_running_loop()
        title, cursor = f"{show_path(self.session.project)}: which fork?", 0
        while True:
            tries = (await loop.run_in_executor(None, all_tries, self.session)).records
            listed = await loop.run_in_executor(None, queue_of, self.session)
            cells = [cells_of(row) for row in listed]
            rows: list[Pieces] = [[(when, "dim"), (what, "strong")] for when, what in cells]
            rows += [[(f"{record.name}  ", "strong"), (_size_of(record), "dim")] for record in tries]
            number = await self.push_screen_wait(Choose(title, rows, cursor=cursor, keys="Enter open   Esc quit"))
            if number is None:
                self.leave()
                return
            cursor = number
            if number >= len(listed):
                self._compare(tries[number - len(listed)].name)
                return
            chosen = listed[number]
            if chosen.question:
                await self._answer(chosen.question)
            elif chosen.kind == "damaged":
                self.notify(f"{chosen.problem}; mudroom discard {chosen.fork} removes it", markup=False)
            else:
                self._review(chosen.fork)
                return

    async def _answer(self, name: str) -> None:
        """Show a question, and give the chosen answer."""
        loop = asyncio.get_running_loop()
        try:
            shown = await loop.run_in_executor(None, read_question, self.session, name)
            # first, so that a key pressed twice answers nothing
            offered: list[Pieces] = [[("not now", "dim")], *([(words, "")] for words, _answer in shown.answers)]
            number = await self.push_screen_wait(
                Choose("\n".join(shown.lines), offered, keys="Enter answer   Esc back")
            )
            if number:
                answer = shown.answers[number - 1][1]
                says = await loop.run_in_executor(None, give_answer, self.session, shown.row, answer)
                self.notify(escaped(says), markup=False)
        except MudroomError as error:
            self.tell_error(error)

    def _review(self, fork: str) -> None:
        self.fork = fork
        self.model = ReviewModel(self.session, fork)
        self.push_screen(ReviewScreen(self.model))

    def _compare(self, tried: str) -> None:
        self.candidates = model = CandidateModel(self.session, tried)

        async def begin_review(fork: str) -> None:
            await model.ask(lambda: None)  # wait for its calls: two threads must not use a session at once
            self._review(fork)

        self.push_screen(CandidateReview(model, begin_review))

    def to_candidates(self) -> bool:
        if self.candidates is None or not isinstance(self.screen, ReviewScreen):
            return False
        begin(self, self._end_review, "fork")
        return True

    async def _end_review(self) -> None:
        """Remove the review's screen, and then close its model."""
        model, self.model = self.model, None
        # the screen goes first: its work uses the model
        await self.pop_screen()
        if model is not None:
            await asyncio.get_running_loop().run_in_executor(None, model.close)
        if isinstance(self.screen, CandidateReview):
            self.screen.reload()

    def action_leave(self) -> None:
        if self.model is not None and self.model.is_applying:
            self.notify("an apply is running and has to finish; Esc ends its verify command")
            return
        self.leave()

    def _signalled(self, number: int) -> None:
        self.ended_by = number
        self.interrupt()
        self.exit()


def _size_of(record: TryRecord) -> str:
    return f"a try: {len(record.attempts):,} attempts, {distinct(record.attempts):,} different"


def queue_of(session: Session) -> list[Decision]:
    """Return the rows of the first screen: all questions and forks, the most urgent first."""
    forks = whole_forks(session.vault, ForkSummaries())
    return decisions(session.vault, forks, len(forks) + MOST, idle=True)


def review(session: Session, fork: str | None, hooks: ReviewHooks, *, tried: str | None = None) -> ReviewEnd:
    """Let the user review a fork, or choose one if ``fork`` is None. ``tried``: begin with this try's candidates.
    Return when the user leaves.

    Raise MudroomError if the terminal cannot be drawn on.
    """
    app = ReviewApp(session, fork, hooks, tried=tried)
    try:
        with fewer_collections():
            app.run(mouse=False)
    finally:
        for model in (app.model, app.candidates):
            if model is not None:
                model.close()
    if app.return_code and not app.ended_by:
        raise MudroomError(
            "the review ended by an error; nothing was applied by that", "mudroom status shows the forks"
        )
    return ReviewEnd(app.code, app.fork or "", app.says, app.applied, app.holds, app.ended_by)
