"""Keys for a try's candidates, and their actions. No changes are applied here: Enter opens a candidate's review, and
``b`` leads back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from mudroom.ext.attempts.agreement import EXTENTS
from mudroom.ext.attempts.candidate_text import standing
from mudroom.ext.tui.candidate_model import next_side
from mudroom.ext.tui.candidate_screen import EXTENT_NAMES, CandidateScreen
from mudroom.ext.tui.dialog import Choose, TextDialog, help_for, plain
from mudroom.ext.tui.key import CANDIDATES, bindings
from mudroom.ext.tui.pane import Pieces
from mudroom.ext.tui.pane_screen import COMMON

# --- moving ---


def other_pane(screen: CandidateScreen, by: int) -> None:
    panes = screen.panes
    screen.set_focus(panes[(panes.index(screen.pane) + by) % len(panes)])


def back(screen: CandidateScreen) -> None:
    screen.set_focus(screen.candidates)


def enter(screen: CandidateScreen) -> None:
    if screen.pane is screen.paths:
        screen.set_focus(screen.diff)
    elif screen.pane is screen.candidates and screen.seen is not None and screen.candidates.count:
        candidate = screen.seen.candidates[screen.candidates.cursor]
        if candidate.fork:
            screen.begin_review(candidate.fork)
        else:
            screen.app.notify(standing(candidate), markup=False)


def hunk(screen: CandidateScreen, by: int) -> None:
    if screen.pane is screen.candidates or not screen.diff.next_stop(by):
        screen.paths.move(by)


# --- the display ---


def side(screen: CandidateScreen, which: int) -> None:
    pair = screen.pair
    if pair is None or screen.seen is None:
        return
    changed = next_side(screen.seen, pair[which])
    screen.want((changed, pair[1]) if which == 0 else (pair[0], changed))


def both_sides(screen: CandidateScreen) -> None:
    screen.want(None)


async def choose_extent(screen: CandidateScreen) -> None:
    if screen.seen is None:
        return
    counts = screen.seen.counts()
    rows: list[Pieces] = [[(f"{counts[extent]:>7,}  ", "dim"), (EXTENT_NAMES[extent], "")] for extent in EXTENTS]
    cursor = EXTENTS.index(screen.extent)
    number = await screen.app.push_screen_wait(Choose("Show only paths …", rows, cursor=cursor))
    if number is not None:
        screen.show_extent(EXTENTS[number])


async def output(screen: CandidateScreen) -> None:
    if screen.seen is None or not screen.candidates.count:
        return
    report = screen.model.report(screen.seen, screen.candidates.cursor)
    await screen.app.push_screen_wait(TextDialog(report.title, plain(*report.lines)))


# --- the application ---


def reload(screen: CandidateScreen) -> None:
    screen.reload()


def show_help(screen: CandidateScreen) -> None:
    screen.app.push_screen(help_for(CANDIDATES, "Keys of the candidates"))


def leave(screen: CandidateScreen) -> None:
    kept = f"nothing was applied; the candidates stay: mudroom review {screen.model.name}"
    screen.app.leave("" if screen.app.applied else kept)


AT_ONCE: Mapping[str, Callable[..., None]] = {
    **COMMON,
    "other_pane": other_pane,
    "back": back,
    "enter": enter,
    "side": side,
    "both_sides": both_sides,
    "hunk": hunk,
    "reload": reload,
    "help": show_help,
    "leave": leave,
}
"""Actions performed when their key arrives."""
ASKING: Mapping[str, Callable[[CandidateScreen], Awaitable[None]]] = {
    "filters": choose_extent,
    "output": output,
}
"""Actions that ask. Their keys are dropped while one is running."""


class CandidateReview(CandidateScreen, inherit_bindings=False):
    """The screen with its keys."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(CANDIDATES)

    async def action_do(self, name: str, *arguments: int) -> None:
        """Perform an action from the tables."""
        if name in ASKING:
            self.queue.run_unless_busy(partial(ASKING[name], self))
        else:
            AT_ONCE[name](self, *arguments)
