"""The candidates of a try: the list of candidates, the paths where they differ, and two of them at a path. Nothing is
applied here: Enter leads to the review of a candidate, and ``b`` back."""

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

from mudroom.core.tree.agreement import EXTENTS, Extent
from mudroom.core.tree.path import show_path
from mudroom.errors import MudroomError
from mudroom.review.candidate import ComparedPath, TryReview
from mudroom.review.candidate_text import differences, standing, table
from mudroom.tui.candidate_model import CandidateModel, Pair, next_side, pair_of
from mudroom.tui.dialog import Choose, TextDialog, help_for, plain
from mudroom.tui.diffrow import FileRows
from mudroom.tui.diffview import WIDE, DiffView
from mudroom.tui.filelist import fit_text
from mudroom.tui.key import CANDIDATES, bindings, brief
from mudroom.tui.line import styled_path
from mudroom.tui.pane import Pane, Pieces
from mudroom.tui.worker import WorkerQueue, begin

if TYPE_CHECKING:
    from mudroom.tui.base_app import BaseApp

CHECK_INTERVAL = 1.0
"""Seconds between two checks whether a candidate has changed."""
MOST_ROWS = 8
"""Candidates that are shown at one time."""
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
        """Show the candidates; return the heading of their columns."""
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
        """Show the paths of an extent. The cursor stays at its path if that is still listed."""
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
    BINDINGS: ClassVar[list[BindingType]] = bindings(CANDIDATES)
    DEFAULT_CSS = """
    CandidateScreen #top { height: 1; background: $surface; }
    CandidateScreen #heading { height: 1; color: $text-muted; padding: 0 0 0 4; }
    CandidateScreen #banner { height: auto; max-height: 3; background: $warning-muted; color: $text-warning;
                              display: none; }
    CandidateScreen #banner.shown { display: block; }
    CandidateScreen #candidates { height: 1; border-bottom: solid $panel; }
    CandidateScreen #paths { width: 36%; min-width: 24; max-width: 70; border-right: solid $panel; }
    CandidateScreen #diff { width: 1fr; }
    CandidateScreen #keys { height: 1; background: $surface; color: $text-muted; }
    """

    def __init__(self, model: CandidateModel, review: Callable[[str], Awaitable[None]]) -> None:
        """``review``: shows the review of a fork."""
        super().__init__()
        self.model = model
        self.seen: TryReview | None = None
        self._begin_review = review
        self._extent: Extent = "different"
        self._wanted: Pair | None = None
        """The sides that the user has chosen; None: those that show a difference."""
        self._stamp: object = None
        self._moved = False
        self._queue = WorkerQueue(self, self.app.tell_error)

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
    def _pane(self) -> Pane:
        """The pane that has the keyboard."""
        return next((pane for pane in self._panes if self.focused is pane), self.candidates)

    @property
    def _panes(self) -> tuple[Pane, ...]:
        return self.candidates, self.paths, self.diff

    def on_mount(self) -> None:
        self.set_focus(self.candidates)
        self.set_interval(CHECK_INTERVAL, self._check)
        self.reload()

    def on_resize(self) -> None:
        if self.size.width < WIDE:
            self.diff.set_side_by_side(False)

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
            self._banner(f"the try cannot be read: {error}")
            return
        self.seen, self._moved = seen, False
        self._stamp = self.model.stamp(seen)
        counts = seen.counts()
        if not counts[self._extent]:
            self._extent = next((extent for extent in EXTENTS if counts[extent]), "different")
        self.query_one("#heading", Static).update(self.candidates.show_review(seen))
        self.candidates.styles.height = min(MOST_ROWS, max(1, len(seen.candidates))) + 1
        self._banner("attempts still run: R looks again" if seen.running else "")
        self._show_paths()

    def _show_paths(self) -> None:
        seen = self.seen
        if seen is None:
            return
        self.paths.show_paths(seen, self._extent)
        project = show_path(self.model.project.rpartition(b"/")[2] or self.model.project)
        counts = seen.counts()
        top = f" {project} / {self.model.name}  {len(seen.record.attempts):,} attempts"
        top += f"  {counts[self._extent]:,} of {len(seen.paths):,} paths: {EXTENT_NAMES[self._extent]}"
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
        """The sides that are shown; None if no path is listed."""
        path = self.paths.current
        if path is None or self.seen is None:
            return None
        readable = (-1, *self.seen.compared)
        wanted = self._wanted
        return wanted if wanted is not None and all(place in readable for place in wanted) else pair_of(path)

    def _check(self) -> None:
        """Tell that a candidate has changed. Not while a review lies above: it uses the session."""
        seen = self.seen
        if seen is None or self._moved or self.app.screen is not self:
            return
        if self.model.stamp(seen) != self._stamp:
            self._moved = True
            self._banner("a candidate has changed: R looks again")

    def _banner(self, text: str) -> None:
        banner = self.query_one("#banner", Static)
        banner.update(text)
        banner.set_class(bool(text), "shown")

    # --- keys ---

    async def action_do(self, name: str, *arguments: int) -> None:
        """Do an action of the table."""
        if name in _ASKING:
            self._queue.run_unless_busy(partial(_ASKING[name], self))
        else:
            _AT_ONCE[name](self, *arguments)

    def move(self, by: int) -> None:
        self._pane.move(by)

    def page(self, by: int) -> None:
        self._pane.page(by)

    def edge(self, by: int) -> None:
        self._pane.go(0 if by < 0 else self._pane.count - 1)

    def other_pane(self, by: int) -> None:
        panes = self._panes
        self.set_focus(panes[(panes.index(self._pane) + by) % len(panes)])

    def back(self) -> None:
        self.set_focus(self.candidates)

    def enter(self) -> None:
        if self._pane is self.paths:
            self.set_focus(self.diff)
        elif self._pane is self.candidates and self.seen is not None and self.candidates.count:
            candidate = self.seen.candidates[self.candidates.cursor]
            if candidate.fork:
                self._queue.run_unless_busy(partial(self._begin_review, candidate.fork))
            else:
                self.app.notify(standing(candidate), markup=False)

    def side(self, which: int) -> None:
        pair = self.pair
        if pair is None or self.seen is None:
            return
        changed = next_side(self.seen, pair[which])
        self._wanted = (changed, pair[1]) if which == 0 else (pair[0], changed)
        self._load()

    def both_sides(self) -> None:
        self._wanted = None
        self._load()

    def hunk(self, by: int) -> None:
        if self._pane is self.candidates or not self.diff.next_stop(by):
            self.paths.move(by)

    def side_by_side(self) -> None:
        if self.size.width < WIDE and not self.diff.side_by_side:
            self.app.notify(f"side by side needs {WIDE} columns; there are {self.size.width}")
            return
        self.diff.set_side_by_side(not self.diff.side_by_side)

    def theme(self) -> None:
        self.app.theme = "textual-light" if self.app.current_theme.dark else "textual-dark"

    def leave(self) -> None:
        kept = f"nothing was applied; the candidates stay: mudroom review {self.model.name}"
        self.app.leave("" if self.app.applied else kept)

    async def choose_filter(self) -> None:
        if self.seen is None:
            return
        counts = self.seen.counts()
        rows: list[Pieces] = [[(f"{counts[extent]:>7,}  ", "dim"), (EXTENT_NAMES[extent], "")] for extent in EXTENTS]
        number = await self.app.push_screen_wait(Choose("Show only paths …", rows, cursor=EXTENTS.index(self._extent)))
        if number is not None:
            self._extent = EXTENTS[number]
            self._show_paths()

    async def output(self) -> None:
        if self.seen is None or not self.candidates.count:
            return
        report = self.model.report(self.seen, self.candidates.cursor)
        await self.app.push_screen_wait(TextDialog(report.title, plain(*report.lines)))


_AT_ONCE: Mapping[str, Callable[..., None]] = {
    "move": CandidateScreen.move,
    "page": CandidateScreen.page,
    "edge": CandidateScreen.edge,
    "sideways": lambda screen, by: screen.diff.shift(by),
    "other_pane": CandidateScreen.other_pane,
    "back": CandidateScreen.back,
    "enter": CandidateScreen.enter,
    "side": CandidateScreen.side,
    "both_sides": CandidateScreen.both_sides,
    "hunk": CandidateScreen.hunk,
    "context": lambda screen, by: screen.diff.widen(by),
    "side_by_side": CandidateScreen.side_by_side,
    "theme": CandidateScreen.theme,
    "reload": CandidateScreen.reload,
    "help": lambda screen: screen.app.push_screen(help_for(CANDIDATES, "Keys of the candidates")),
    "leave": CandidateScreen.leave,
}
"""Actions that are done when their key comes."""
_ASKING: Mapping[str, Callable[[CandidateScreen], Awaitable[None]]] = {
    "filters": CandidateScreen.choose_filter,
    "output": CandidateScreen.output,
}
"""Actions that ask. A key of theirs that comes while one of them runs is dropped."""
