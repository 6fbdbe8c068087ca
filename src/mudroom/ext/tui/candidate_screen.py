"""The screen for a try: candidates, the paths where they differ, and two sides of a path; at the end its keys and their
actions. No changes are applied here: Enter opens a candidate's review, and ``b`` leads back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Static

from mudroom.core.tree.path import show_path
from mudroom.errors import MudroomError
from mudroom.ext.attempts.agreement import EXTENTS, Extent
from mudroom.ext.attempts.candidate import ComparedPath, TryReview
from mudroom.ext.attempts.candidate_text import differences, standing, table
from mudroom.ext.tui.candidate_model import CandidateModel, Pair, next_side, pair_of
from mudroom.ext.tui.dialog import Choose, TextDialog, help_for, plain
from mudroom.ext.tui.diffrow import FileRows
from mudroom.ext.tui.diffview import DiffView
from mudroom.ext.tui.filelist import fit_text
from mudroom.ext.tui.key import CANDIDATES, bindings, brief
from mudroom.ext.tui.line import styled_path
from mudroom.ext.tui.pane import Pane, Pieces
from mudroom.ext.tui.pane_screen import COMMON, narrowed, show_banner
from mudroom.ext.tui.worker import WorkerQueue, begin

if TYPE_CHECKING:
    from mudroom.ext.tui.base_app import BaseApp


CHECK_INTERVAL = 1.0
"""Seconds between checks for changed candidates."""
MOST_ROWS = 8
"""Candidates shown at one time."""


EXTENT_NAMES: Mapping[Extent, str] = {
    "different": "where the candidates differ",
    "some": "that only some change",
    "unknown": "that were not compared",
    "same": "that all change alike",
}


class CandidateList(Pane):
    def __init__(self) -> None:
        super().__init__(id="candidates")
        self._lines: list[str] = []
        self._sides: Pair = (-1, -1)

    def show_review(self, review: TryReview) -> str:
        """Show the candidates and return the column headings."""
        heading, *self._lines = table(review)
        self.show_rows(len(self._lines), self.cursor)
        return heading

    def show_sides(self, sides: Pair) -> None:
        self._sides = sides
        self.refresh()

    def row(self, number: int, _width: int) -> Pieces:
        side = "".join(sign for sign, place in zip("12", self._sides, strict=True) if place == number)
        return [("▌" if number == self.cursor else " ", "head"), (f"{side:<3}", "good"), (self._lines[number], "")]


class PathList(Pane):
    def __init__(self) -> None:
        super().__init__(id="paths")
        self.paths: list[ComparedPath] = []
        self._numbers: list[int] = []

    def show_paths(self, review: TryReview, extent: Extent) -> None:
        """Show the paths with this extent. The cursor stays on its path if that is still listed."""
        before = self.current
        self.paths = [path for path in review.paths if path.extent == extent]
        self._numbers = [candidate.attempt.number for candidate in review.candidates]
        at = (number for number, path in enumerate(self.paths) if before is not None and path.path == before.path)
        self.show_rows(len(self.paths), next(at, 0))

    @property
    def current(self) -> ComparedPath | None:
        return self.paths[self.cursor] if self.cursor < len(self.paths) else None

    def row(self, number: int, width: int) -> Pieces:
        path = self.paths[number]
        groups = [" ".join(str(self._numbers[place]) for place in group.candidates) for group in path.groups]
        tail = "  " + "|".join(groups)
        tail = tail if cell_len(tail) <= width // 2 else f"  {len(groups)} results"
        return [
            ("▌" if number == self.cursor else " ", "head"),
            *styled_path(fit_text(show_path(path.path), max(4, width - 1 - cell_len(tail))), ""),
            (tail, "dim"),
        ]


class CandidateScreen(Screen[None], inherit_bindings=False):
    app: BaseApp

    def __init__(self, model: CandidateModel, review: Callable[[str], Awaitable[None]]) -> None:
        """``review`` opens the review of a fork."""
        super().__init__()
        self.model = model
        self.seen: TryReview | None = None
        self._begin_review = review
        self.extent: Extent = "different"
        self._wanted: Pair | None = None
        """Sides chosen by the user. None: sides that show a difference."""
        self._stamp: object = None
        self._moved = False
        self.queue = WorkerQueue(self, self.app.tell_error)

    def compose(self) -> ComposeResult:
        yield Static(id="top", markup=False)
        yield Static(id="banner", markup=False)
        yield Static(id="heading", markup=False)
        yield CandidateList()
        with Horizontal():
            yield PathList()
            yield DiffView(chooses=False)
        yield Static(brief(CANDIDATES), id="keys", markup=False)

    @property
    def candidates(self) -> CandidateList:
        return self.query_one(CandidateList)

    @property
    def paths(self) -> PathList:
        return self.query_one(PathList)

    @property
    def diff(self) -> DiffView:
        return self.query_one(DiffView)

    @property
    def pane(self) -> Pane:
        """The pane with keyboard focus."""
        return next((pane for pane in self.panes if self.focused is pane), self.candidates)

    @property
    def panes(self) -> tuple[Pane, ...]:
        return self.candidates, self.paths, self.diff

    def on_mount(self) -> None:
        self.set_focus(self.candidates)
        self.set_interval(CHECK_INTERVAL, self._check)
        self.reload()

    def on_resize(self) -> None:
        narrowed(self)

    def banner(self, text: str) -> None:
        show_banner(self.query_one("#banner", Static), text)

    def on_pane_moved(self, event: Pane.Moved) -> None:
        if event.pane is self.paths:
            self._load()

    # --- reading ---

    def reload(self) -> None:
        begin(self, self._look, "look", exclusive=True)

    async def _look(self) -> None:
        try:
            seen = await self.model.ask(self.model.see)
        except (MudroomError, OSError) as error:
            self.seen = None
            self.banner(f"the try cannot be read: {error}")
            return
        self.seen, self._moved = seen, False
        self._stamp = self.model.stamp(seen)
        counts = seen.counts()
        if not counts[self.extent]:
            self.extent = next((extent for extent in EXTENTS if counts[extent]), "different")
        self.query_one("#heading", Static).update(self.candidates.show_review(seen))
        self.candidates.styles.height = min(MOST_ROWS, max(1, len(seen.candidates))) + 1
        self.banner("attempts still run: R looks again" if seen.running else "")
        self._show_paths()

    def _show_paths(self) -> None:
        seen = self.seen
        if seen is None:
            return
        self.paths.show_paths(seen, self.extent)
        project = show_path(self.model.project.rpartition(b"/")[2] or self.model.project)
        counts = seen.counts()
        top = f" {project} / {self.model.name}  {len(seen.record.attempts):,} attempts"
        top += f"  {counts[self.extent]:,} of {len(seen.paths):,} paths: {EXTENT_NAMES[self.extent]}"
        top += f"  ({seen.paths_left:,} more not compared)" if seen.paths_left else ""
        self.query_one("#top", Static).update(top)
        self._load()

    def _load(self) -> None:
        begin(self, self._load_sides, "file", exclusive=True)

    async def _load_sides(self) -> None:
        seen, path = self.seen, self.paths.current
        if seen is None:
            return
        pair = self.pair
        if path is None or pair is None:
            self.diff.show_item(None, FileRows(tuple(differences(seen, 0)) or ("no path is listed",)))
            return
        self.candidates.show_sides(pair)
        shown = await self.model.show(seen, path, pair)
        if shown is not None:
            self.diff.show_item(None, shown)

    @property
    def pair(self) -> Pair | None:
        """The sides on display, or None if no path is listed."""
        path = self.paths.current
        if path is None or self.seen is None:
            return None
        readable = (-1, *self.seen.compared)
        wanted = self._wanted
        return wanted if wanted is not None and all(place in readable for place in wanted) else pair_of(path)

    def _check(self) -> None:
        """Report that a candidate has changed."""
        seen = self.seen
        # a review above this screen uses the session
        if seen is None or self._moved or self.app.screen is not self:
            return
        if self.model.stamp(seen) != self._stamp:
            self._moved = True
            self.banner("a candidate has changed: R looks again")

    # --- for the key actions ---

    def begin_review(self, fork: str) -> None:
        self.queue.run_unless_busy(partial(self._begin_review, fork))

    def want(self, pair: Pair | None) -> None:
        """Show these sides. None: for each path, sides that show a difference."""
        self._wanted = pair
        self._load()

    def show_extent(self, extent: Extent) -> None:
        """List the paths with this extent."""
        self.extent = extent
        self._show_paths()


# --- the keys and their actions ---


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
