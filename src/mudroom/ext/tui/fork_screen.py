"""The review screen: file list, differences, and the lines above and below. It draws its own state;
``ext/tui/fork_reader.py`` reads the fork, and the keys are in ``ext/tui/app.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Static

from mudroom.api import show_path
from mudroom.ext.tui.choice import Item, flags_of
from mudroom.ext.tui.diffrow import FileRows
from mudroom.ext.tui.diffview import DiffView
from mudroom.ext.tui.filelist import FileList
from mudroom.ext.tui.key import REVIEW, brief
from mudroom.ext.tui.pane import Pane
from mudroom.ext.tui.pane_screen import narrowed, show_banner
from mudroom.ext.tui.review_model import ReviewModel
from mudroom.ext.tui.selection import ListFilter, ReviewMarks, Selection

if TYPE_CHECKING:
    from mudroom.ext.tui.base_app import BaseApp

BADGES = {None: "Not known", 0: "Not sandboxed", 1: "Sandboxed: safe to edit", 2: "Sandboxed: safe to edit"}


class ForkScreen(Screen[None], inherit_bindings=False):
    app: BaseApp

    def __init__(self, model: ReviewModel) -> None:
        super().__init__()
        self.model = model
        self.selection, self.marks, self.filter = Selection(), ReviewMarks(), ListFilter()

    def compose(self) -> ComposeResult:
        yield Static(id="top", markup=False)
        yield Static(id="banner", markup=False)
        with Horizontal():
            yield FileList()
            yield DiffView()
        yield Static(brief(REVIEW), id="keys", markup=False)

    @property
    def files(self) -> FileList:
        return self.query_one(FileList)

    @property
    def diff(self) -> DiffView:
        return self.query_one(DiffView)

    @property
    def pane(self) -> Pane:
        """The pane with keyboard focus."""
        return self.diff if self.focused is self.diff else self.files

    @property
    def is_behind(self) -> bool:
        """Whether the focused pane still shows another file than the list's cursor, or an earlier reading."""
        row = self.files.current
        return self.pane is self.diff and row is not None and row.item is not None and row.item != self.diff.item

    @property
    def listed(self) -> list[Item]:
        """The rows that pass the filter and the search."""
        return self.filter.rows(self.selection.items, self.files.flags, self.selection.picks)

    def on_resize(self) -> None:
        narrowed(self)

    def banner(self, text: str) -> None:
        show_banner(self.query_one("#banner", Static), text)

    def show_top(self) -> None:
        project = show_path(self.model.project.rpartition(b"/")[2] or self.model.project)
        line = f" {project} / {self.model.fork}"
        seen = self.selection.seen
        if seen is not None:
            count = seen.summary
            picked = sum(item.path in self.selection.picks for item in seen.items)
            undecided = sum(not decided for decided in seen.decided.values())
            line += f"  [{BADGES.get(seen.level, 'Not known')}]" if seen.items else ""
            line += f"  {picked:,} of {len(seen.items):,} chosen"
            line += f"  {undecided:,} conflict{'s' if undecided > 1 else ''}" if undecided else ""
            line += f"  +{count.lines_added:,} -{count.lines_removed:,}"
        line += f"  (only: {self.filter.text()})" if self.filter.text() else ""
        self.query_one("#top", Static).update(line)

    def show_list(self) -> None:
        """Redraw the list's rows."""
        seen = self.selection.seen
        if seen is not None:
            self.files.flags = {
                item.path: flags_of(item, seen.tags.get(item.change.path, ()), seen.decided) for item in seen.items
            }
            self.files.labels, self.files.risks = seen.labels, seen.risks
            self.files.remarked = seen.remarked
        self.files.picks, self.files.seen = self.selection.picks, self.marks.by_path()
        self.files.show_items(self.listed)
        self.show_top()

    def show_choice(self) -> None:
        """Show which rows and blocks are chosen and marked, without changing the rows."""
        self.files.picks, self.files.seen = self.selection.picks, self.marks.by_path()
        self.files.refresh()
        self.show_top()
        self.show_choice_of_blocks()

    def show_choice_of_blocks(self) -> None:
        """Show which blocks in the displayed file are chosen and marked."""
        diff, picks = self.diff, self.selection.picks
        if diff.item is None:
            return
        moved = diff.shown.moved
        diff.pick = picks.get(diff.item.path)
        diff.picks_other = moved is not None and moved.path in picks
        diff.seen = self.marks.blocks(diff.item.path)
        diff.refresh()

    def show_gone(self) -> None:
        """Show that the fork no longer exists."""
        self.selection.clear()
        self.app.holds = False
        self.files.show_items(())
        self.diff.show_item(None, FileRows())
        self.show_top()
        self.banner(
            f"{self.model.fork} is gone: all its changes are applied, u takes them back"
            if self.app.applied
            else f"{self.model.fork} is gone: it was applied or discarded elsewhere"
        )
