"""The review as a program: it begins, it ends, and it ends whole, whoever ends it.

1. Nothing is applied by leaving.
2. An apply that has begun is finished, whatever signal comes and wherever the terminal has gone; only the command that
   tries its result out first is ended, and nothing is applied then.
3. The terminal is as it was.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from textual.app import App
from textual.binding import Binding, BindingType

from mudroom.core.journal.event import Event
from mudroom.core.text.escaping import escaped
from mudroom.core.tree.path import show, show_path
from mudroom.errors import MudroomError
from mudroom.review.rows import cache_record, fewer_collections
from mudroom.tui.desk import ReviewDesk, forks_of
from mudroom.tui.dialog import Choose, Working
from mudroom.tui.pane import Pieces
from mudroom.tui.review import ReviewScreen
from mudroom.tui.worker import begin

if TYPE_CHECKING:
    from mudroom.session import ForkConflict, Session

T = TypeVar("T")

KILL = signal.SIGKILL
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Hands(NamedTuple):
    """What the review needs of the command line."""

    edit: Callable[[Session, str, ForkConflict], None]
    """Decide a conflict in the user's editor, which has the terminal meanwhile. Raises MudroomError."""
    tell: Callable[[Event], str]
    """An event of the journal as a line."""
    notes: Sequence[str] = ()
    verifies: tuple[bytes, ...] = ()
    """The command that tries the result of an apply out."""


class ReviewEnd(NamedTuple):
    """How a review has ended."""

    code: int
    """As that of an apply: 0, 3 conflicts are left, 4 the fork has moved, 5 the result was refused."""
    fork: str
    says: str
    """What was done last; empty: nothing."""
    applied: bool
    holds: bool
    """Whether there was anything left in the fork."""
    signal: int
    """That has ended it; 0: none."""


class ReviewApp(App[None]):
    ENABLE_COMMAND_PALETTE = False
    TITLE = "mudroom review"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True)]
    CSS = "Toast { width: auto; max-width: 70%; }"

    def __init__(self, session: Session, fork: str | None, hands: Hands, *, handles_signals: bool = True) -> None:
        super().__init__()
        self.session, self.hands = session, hands
        cache_record(session)
        self.fork = fork
        self.desk: ReviewDesk | None = None
        self.code = 0
        self.applied = False
        self.holds = False
        self.says = ""
        self.ended_by = 0
        self._working: Working[Any] | None = None
        self._handles_signals = handles_signals

    def on_mount(self) -> None:
        if self._handles_signals:
            loop = asyncio.get_running_loop()
            for number in ENDING:
                loop.add_signal_handler(number, self._signalled, number)
        if self.fork is not None:
            self._review(self.fork)
        else:
            begin(self, self._choose_fork, "fork")

    async def _choose_fork(self) -> None:
        rows: list[Pieces] = []
        found = await asyncio.get_running_loop().run_in_executor(None, forks_of, self.session)
        rows = [[(f"{show(name.encode())}  ", "strong"), (f"{count:,} changed", "dim")] for name, _made, count in found]
        title = f"{show_path(self.session.project)}: which fork?"
        number = await self.push_screen_wait(Choose(title, rows, cursor=len(rows) - 1, keys="Enter review   Esc quit"))
        if number is None:
            self.leave()
        else:
            self._review(found[number][0])

    def _review(self, fork: str) -> None:
        self.fork = fork
        self.desk = ReviewDesk(self.session, fork)
        self.push_screen(ReviewScreen(self.desk))

    # --- work ---

    async def work(self, title: str, work: Callable[[], Awaitable[T]]) -> T | MudroomError:
        """Something that writes, shown until it is done."""
        working: Working[T] = Working(title, work, self._interrupt)
        loop = asyncio.get_running_loop()
        self._working = working

        def progress(label: str, done: int, total: int) -> None:
            loop.call_soon_threadsafe(working.progress, label, done, total)

        self.session.forks.tell_progress(progress)
        try:
            return await self.push_screen_wait(working)
        finally:
            self.session.forks.tell_progress(None)
            self._working = None
            if self.desk is not None:
                while self.desk.recovered:
                    self.notify(self.desk.recovered.pop(0), markup=False, timeout=10)

    def verifying(self, command: tuple[bytes, ...]) -> Callable[[bytes], None]:
        """By the thread that applies, when the result is tried out: what to call with what that prints."""
        working = self._working
        assert working is not None
        self.call_later(working.begin_output, command)

        def told(data: bytes) -> None:
            self.call_later(working.output, data)

        return told

    def _interrupt(self) -> bool:
        """End the command that tries a result out."""
        return self.session.interrupt(KILL)

    def tell_error(self, error: MudroomError) -> None:
        said = "".join(one if one.isprintable() else escaped(one) for one in str(error))
        self.notify(said, severity="error", markup=False, timeout=10)

    # --- the end ---

    def leave(self, says: str = "") -> None:
        self.says = says
        self.exit()

    def action_leave(self) -> None:
        if self.desk is not None and self.desk.is_applying:
            self.notify("this has to be finished first; Esc ends the command that tries it out")
            return
        self.leave()

    def _signalled(self, number: int) -> None:
        self.ended_by = number
        self._interrupt()
        self.exit()


def review(session: Session, fork: str | None, hands: Hands) -> ReviewEnd:
    """Let somebody review a fork (None: one of them, which is asked for). Blocks until they have left.

    Raises MudroomError if the terminal cannot be drawn on.
    """
    app = ReviewApp(session, fork, hands)
    try:
        with fewer_collections():
            app.run(mouse=False)
    finally:
        if app.desk is not None:
            app.desk.close()
    if app.return_code and not app.ended_by:
        raise MudroomError("the review has failed; nothing was applied by that", "mudroom status says how things are")
    return ReviewEnd(app.code, app.fork or "", app.says, app.applied, app.holds, app.ended_by)
