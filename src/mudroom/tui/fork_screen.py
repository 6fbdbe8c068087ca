"""The screen of a review: the list of files, the differences, and a watch on whether the fork has changed. The keys are
in ``tui/review.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Static

from mudroom.core.tree.path import show_path
from mudroom.errors import MudroomError
from mudroom.tui.choice import FLAGS, WHOLE, Item, Pick, carry_picks, first_choice, flags_of
from mudroom.tui.diffrow import FileRows
from mudroom.tui.diffview import WIDE, DiffView
from mudroom.tui.filelist import FileList
from mudroom.tui.key import REVIEW, brief
from mudroom.tui.pane import Pane
from mudroom.tui.review_model import ForkVanished, ReviewModel, SeenFork
from mudroom.tui.worker import WorkerQueue, begin

if TYPE_CHECKING:
    from mudroom.tui.base_app import BaseApp

T = TypeVar("T")

CHECK_INTERVAL = 1.0
"""Seconds between two checks whether the fork has changed."""
EVENTS = 200
BADGES = {None: "Not known", 0: "Not sandboxed", 1: "Sandboxed: safe to edit", 2: "Sandboxed: safe to edit"}


class Filter(NamedTuple):
    name: str
    accepts: Callable[[frozenset[str], Pick | None], bool]


FILTERS = (
    Filter("all files", lambda _flags, _pick: True),
    Filter("chosen", lambda _flags, pick: pick is not None),
    Filter("left out, or in part", lambda _flags, pick: pick != WHOLE),
    *(Filter(words, lambda flags, _pick, flag=flag: flag in flags) for flag, _sign, words in FLAGS),  # type: ignore[misc]
)


class ForkScreen(Screen[None], inherit_bindings=False):
    app: BaseApp
    DEFAULT_CSS = """
    ForkScreen #top { height: 1; background: $surface; }
    ForkScreen #banner { height: auto; max-height: 3; background: $warning-muted; color: $text-warning;
                           display: none; }
    ForkScreen #banner.shown { display: block; }
    ForkScreen #list { width: 36%; min-width: 24; max-width: 70; border-right: solid $panel; }
    ForkScreen #diff { width: 1fr; }
    ForkScreen #keys { height: 1; background: $surface; color: $text-muted; }
    """

    def __init__(self, model: ReviewModel) -> None:
        super().__init__()
        self.model = model
        self.seen: SeenFork | None = None
        self.picks: dict[bytes, Pick] = {}
        self.marked: dict[bytes, frozenset[int]] = {}
        """The blocks that were marked as reviewed, by path; -1 for a file without blocks."""
        self.filter = FILTERS[0]
        self.words = ""
        self._stamp: object = None
        self._moved = False
        self._queue = WorkerQueue(self, self.app.tell_error)
        self._watches = True
        """False while the review itself changes the fork."""
        self._blocks: dict[bytes, frozenset[int]] = {}
        self._shown: bytes | None = None

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
        return self.diff if self.focused is self.diff else self.files

    def on_mount(self) -> None:
        self.set_focus(self.files)
        for note in self.app.hooks.notes:
            self.app.notify(note, markup=False)
        begin(self, self.look, "look")
        self.set_interval(CHECK_INTERVAL, self._check_stamp)

    def on_resize(self) -> None:
        if self.size.width < WIDE:
            self.diff.set_side_by_side(False)

    # --- reading the fork ---

    async def look(self) -> None:
        """Read the fork again. The choice stays for rows that have not changed."""
        self._stamp = self.model.stamp()
        try:
            seen = await self.model.ask(self.model.see)
        except ForkVanished:
            self._show_gone()
            return
        except (MudroomError, OSError) as error:
            self.banner(f"the fork cannot be read: {error}")
            return
        before = self.seen
        self.picks = first_choice(seen.items) if before is None else carry_picks(before.items, seen.items, self.picks)
        rows_before = {item.path: item for item in before.items} if before is not None else {}
        self.marked = {
            item.path: self.marked[item.path]
            for item in seen.items
            if item.path in self.marked and rows_before.get(item.path) == item
        }
        self.seen, self._moved, self._shown = seen, False, None
        self.app.holds = bool(seen.items)
        running = "a command is running in this fork: its changes are not shown yet; R looks again"
        self.banner(running if seen.running else "")
        self.show_list()
        self._show_file()

    def _show_gone(self) -> None:
        self.seen, self.picks, self._shown = None, {}, None
        self.app.holds = False
        self.files.show_items(())
        self.diff.show_item(None, FileRows())
        self.show_top()
        self.banner(
            f"{self.model.fork} is gone: all its changes are applied, u takes them back"
            if self.app.applied
            else f"{self.model.fork} is gone: it was applied or discarded elsewhere"
        )

    def _check_stamp(self) -> None:
        if self.seen is None or self._moved or not self._watches:
            return
        if self.model.stamp() != self._stamp:
            self._moved = True
            begin(self, self._check_fingerprint, "look")

    async def _check_fingerprint(self) -> None:
        """Check how the fork has changed. A command that starts, or changes no file, does not matter."""
        stamp = self.model.stamp()
        try:
            fingerprint = await self.model.ask(self.model.fingerprint) if stamp is not None else None
        except (MudroomError, OSError):
            fingerprint = None if self.model.stamp() is None else ""
        if fingerprint is None:
            self._show_gone()
        elif not self._watches:
            self._moved = False
        elif self.seen is not None and fingerprint != self.seen.fingerprint:
            self.banner("the fork has changed since you looked at it: R looks again; nothing is applied before")
        else:
            self._moved, self._stamp = False, stamp

    def banner(self, text: str) -> None:
        banner = self.query_one("#banner", Static)
        banner.update(text)
        banner.set_class(bool(text), "shown")

    def show_top(self) -> None:
        project = show_path(self.model.project.rpartition(b"/")[2] or self.model.project)
        line = f" {project} / {self.model.fork}"
        seen = self.seen
        if seen is not None:
            count = seen.summary
            picked = sum(item.path in self.picks for item in seen.items)
            undecided = sum(not decided for decided in seen.decided.values())
            line += f"  [{BADGES.get(seen.level, 'Not known')}]" if seen.items else ""
            line += f"  {picked:,} of {len(seen.items):,} chosen"
            line += f"  {undecided:,} conflict{'s' if undecided > 1 else ''}" if undecided else ""
            line += f"  +{count.lines_added:,} -{count.lines_removed:,}"
        if self.filter is not FILTERS[0] or self.words:
            line += f"  (only: {' '.join(filter(None, (self.filter.name, repr(self.words) if self.words else '')))})"
        self.query_one("#top", Static).update(line)

    @property
    def listed(self) -> list[Item]:
        """The rows that pass the filter and the search."""
        if self.seen is None:
            return []
        flags, words = self.files.flags, self.words.lower()
        return [
            item
            for item in self.seen.items
            if self.filter.accepts(flags.get(item.path, frozenset()), self.picks.get(item.path))
            and (not words or words in show_path(item.path).lower())
        ]

    def show_list(self) -> None:
        seen = self.seen
        if seen is not None:
            self.files.flags = {
                item.path: flags_of(item, seen.tags.get(item.change.path, ()), seen.decided) for item in seen.items
            }
        self.files.picks = self.picks
        self.files.seen = {path: self._is_seen(path) for path in self.marked}
        self.files.show_items(self.listed)
        self.show_top()

    def _is_seen(self, path: bytes) -> bool:
        marked = self.marked.get(path, frozenset())
        return -1 in marked or (path in self._blocks and marked >= self._blocks[path])

    # --- the file at the cursor ---

    def on_pane_moved(self, event: Pane.Moved) -> None:
        if event.pane is self.files:
            self._show_file()

    def _show_file(self) -> None:
        begin(self, self._load, "file", exclusive=True)

    async def _load(self, *, at_end: bool = False) -> None:
        row = self.files.current
        item = row.item if row is not None else None
        if item is None:
            empty_text = (
                "nothing is listed" if self.seen is not None and self.seen.items else "the fork holds no changes"
            )
            heading = (f"{show_path(row.directory)}/: {len(row.members):,} changed" if row is not None else empty_text,)
            self._shown = None
            self.diff.show_item(None, FileRows(heading))
            return
        if self._shown == item.path:
            return
        try:
            shown = await self.model.show(item)
        except ForkVanished:
            self._show_gone()
            return
        except (MudroomError, OSError) as error:
            shown = FileRows((f"it cannot be shown: {error}",))
        if shown is None:
            return  # the cursor has moved on
        self._shown = item.path
        if shown.text is not None:
            self._blocks[item.path] = shown.text.numbers
        flags = self.files.flags.get(item.path, frozenset())
        notes = (show_path(item.path), *(f"{sign} {words}" for flag, sign, words in FLAGS if flag in flags))
        self.diff.show_item(item, shown._replace(notes=(*notes, *shown.notes)))
        self._show_pick(item.path)
        if at_end:
            self.diff.to_edge(-1)

    def _show_pick(self, path: bytes) -> None:
        self.diff.pick = self.picks.get(path)
        moved = self.diff.shown.moved
        self.diff.picks_other = moved is not None and moved.path in self.picks
        marked = self.marked.get(path, frozenset())
        self.diff.seen = self._blocks.get(path, frozenset()) if -1 in marked else marked
        self.diff.refresh()
