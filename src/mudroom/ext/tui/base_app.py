"""The application's state and services for its screens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from textual.app import App

from mudroom.core.journal.event import Event
from mudroom.core.text.invisible_characters import escaped
from mudroom.errors import MudroomError
from mudroom.ext.review.rows import cache_record
from mudroom.ext.tui.dialog import Working
from mudroom.ext.tui.review_model import ReviewModel

if TYPE_CHECKING:
    from mudroom.ext.commits.git.user_settings import UserFiles
    from mudroom.session import ForkConflict, Session

T = TypeVar("T")

KILL = 9
"""SIGKILL; Windows has no name for it."""


class ReviewHooks(NamedTuple):
    """Functions and values that the command line passes to the review."""

    edit: Callable[[Session, str, ForkConflict], None]
    """Resolve a conflict in the user's editor, which has the terminal meanwhile. Raises MudroomError."""
    tell: Callable[[Event], str]
    """Return a journal event as a line."""
    notes: Sequence[str] = ()
    verifies: tuple[bytes, ...] = ()
    """The policy's verify command, or empty."""
    send: Callable[[str, str, bool], dict[str, Any]] = lambda *_words: {}
    """Send a fork's remarks, those of the prompt with this id: to its agent, or (True) they wait for its look."""
    agent_words: Callable[[Session, str], Sequence[str]] = lambda *_words: ()
    """Return the command that the remarks would be sent to. Raise UsageError if there is none."""
    git_files: Callable[[], UserFiles] | None = None
    """Return the user's git settings files. None: no commit is offered."""


class BaseApp(App[None]):
    def __init__(self, session: Session, fork: str | None, hooks: ReviewHooks) -> None:
        super().__init__()
        self.session, self.hooks = session, hooks
        cache_record(session)
        self.fork = fork
        self.model: ReviewModel | None = None
        self.code = 0
        self.applied = False
        self.holds = False
        self.says = ""
        self._working: Working[Any] | None = None

    async def work(self, title: str, work: Callable[[], Awaitable[T]]) -> T | MudroomError:
        """Show a dialog while ``work``, which writes, runs. Return its result or its MudroomError."""
        working: Working[T] = Working(title, work, self.interrupt)
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
            if self.model is not None:
                while self.model.recovered:
                    self.notify(self.model.recovered.pop(0), markup=False, timeout=10)

    def verifying(self, command: tuple[bytes, ...]) -> Callable[[bytes], None]:
        """Show the verify command's output. Return the function that takes that output.

        Called by the applying thread when verification begins.
        """
        working = self._working
        assert working is not None
        self.call_later(working.begin_output, command)

        def show_output(data: bytes) -> None:
            self.call_later(working.output, data)

        return show_output

    def interrupt(self) -> bool:
        """Kill the running verify command. Return whether one was running."""
        return self.session.interrupt(KILL)

    def tell_error(self, error: MudroomError) -> None:
        self.notify(escaped(str(error)), severity="error", markup=False, timeout=10)

    def to_candidates(self) -> bool:
        """Go back to the candidates from which this review was opened. Return whether there are any."""
        return False

    def leave(self, says: str = "") -> None:
        self.says = says
        self.exit()
