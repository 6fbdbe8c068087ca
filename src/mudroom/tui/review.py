"""The review: the actions of its keys on the screen of ``tui/fork_screen.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import ClassVar, TypeVar

from textual.binding import BindingType

from mudroom.core.tree.path import show, show_path
from mudroom.errors import ForkMoved, MudroomError
from mudroom.tui import summary
from mudroom.tui.choice import WHOLE, Choice, Item, Pick, choice_of, complete_picks
from mudroom.tui.conflict import ConflictScreen
from mudroom.tui.dialog import ApplyOutcomeDialog, Choose, Confirm, TextDialog, TextInput, help_for, plain
from mudroom.tui.diffview import WIDE
from mudroom.tui.fork_screen import FILTERS, ForkScreen
from mudroom.tui.key import REVIEW, bindings
from mudroom.tui.worker import begin

T = TypeVar("T")

EVENTS = 200


class ReviewScreen(ForkScreen, inherit_bindings=False):
    BINDINGS: ClassVar[list[BindingType]] = bindings(REVIEW)

    # --- moving ---

    def action_move(self, by: int) -> None:
        self.pane.move(by)

    def action_page(self, by: int) -> None:
        self.pane.page(by)

    def action_edge(self, by: int) -> None:
        self.pane.go(0 if by < 0 else self.pane.count - 1)

    def action_sideways(self, by: int) -> None:
        self.diff.shift(by)

    def action_other_pane(self) -> None:
        self.set_focus(self.files if self.pane is self.diff else self.diff)

    def action_enter(self) -> None:
        row = self.files.current
        if self.pane is self.files and row is not None and row.item is None:
            self.files.fold()
        else:
            self.set_focus(self.diff)

    def action_back(self) -> None:
        if self.pane is self.diff:
            self.set_focus(self.files)
        elif self.words or self.filter is not FILTERS[0]:
            self.words, self.filter = "", FILTERS[0]
            self.show_list()
            self._show_file()

    async def action_hunk(self, by: int) -> None:
        if (self.pane is self.files or not self.diff.next_stop(by)) and self.files.next_file(by):
            await self._load(at_end=by < 0 and self.pane is self.diff)

    def action_context(self, by: int) -> None:
        self.diff.widen(by)

    def action_side_by_side(self) -> None:
        if self.size.width < WIDE and not self.diff.side_by_side:
            self.app.notify(f"side by side needs {WIDE} columns; there are {self.size.width}")
            return
        self.diff.set_side_by_side(not self.diff.side_by_side)

    def action_split(self) -> None:
        if not self.diff.split():
            self.app.notify("this hunk cannot be split")

    # --- choosing ---

    def action_choose(self) -> None:
        row = self.files.current
        if row is None:
            return
        if self.pane is self.diff and row.item is not None:
            can_toggle, pick = self.diff.toggled()
            if can_toggle:
                self._pick(row.item, pick)
                return
        if row.item is not None:
            self._pick(row.item, None if row.item.path in self.picks else WHOLE)
            return
        self._choose(row.members, not all(self.picks.get(item.path) == WHOLE for item in row.members))

    def _pick(self, item: Item, pick: Pick | None) -> None:
        before = set(self.picks)
        if pick is None:
            self.picks.pop(item.path, None)
        else:
            self.picks[item.path] = pick
        self._choose_together(before)

    def _choose(self, items: Sequence[Item], wanted: bool) -> None:
        """Choose rows. Rows that have to be named are chosen one by one only."""
        before = set(self.picks)
        for item in items:
            if not wanted:
                self.picks.pop(item.path, None)
            elif not item.to_be_named:
                self.picks[item.path] = WHOLE
        self._choose_together(before, by_name=False)

    def _choose_together(self, before: Collection[bytes], *, by_name: bool = True) -> None:
        """Complete the choice with the rows it needs. ``before``: the choice before. ``by_name`` False: do not add rows
        that have to be named."""
        if self.seen is not None:
            items = self.seen.items
            picks = complete_picks(items, self.picks, before)
            unnamed = any(item.to_be_named and item.path in picks and item.path not in before for item in items)
            self.picks = complete_picks(items, self.picks, None) if unnamed and not by_name else picks
            self.files.picks = self.picks
        self._refresh_choice()

    def _refresh_choice(self) -> None:
        self.files.refresh()
        self.show_top()
        if self.diff.item is not None:
            self._show_pick(self.diff.item.path)

    def action_choose_all(self, wanted: bool) -> None:
        self._choose(self.listed, wanted)

    def action_seen(self) -> None:
        row = self.files.current
        if row is None:
            return
        group = self.diff.group
        if self.pane is self.diff and row.item is not None and group is not None:
            path = row.item.path
            before = self.marked.get(path, frozenset()) - {-1} | (
                self.diff.seen if self._is_seen(path) else frozenset()
            )
            self.marked[path] = before ^ frozenset(group.blocks)
        else:
            items: Sequence[Item] = [row.item] if row.item is not None else row.members
            all_seen = all(self._is_seen(item.path) for item in items)
            for item in items:
                self.marked[item.path] = frozenset() if all_seen else frozenset((-1,))
        self.files.seen = {path: self._is_seen(path) for path in self.marked}
        self._refresh_choice()

    def action_filters(self) -> None:
        self._queue.run_unless_busy(self._choose_filter)

    async def _choose_filter(self) -> None:
        items = self.seen.items if self.seen is not None else ()
        flags = self.files.flags
        rows = []
        kinds = Counter((flags.get(item.path, frozenset()), self.picks.get(item.path)) for item in items)
        for filter_ in FILTERS:
            count = sum(times for kind, times in kinds.items() if filter_.accepts(*kind))
            rows.append([(f"{count:>7,}  ", "dim"), (filter_.name, "")])
        number = await self.app.push_screen_wait(Choose("Show only what …", rows, cursor=FILTERS.index(self.filter)))
        if number is not None:
            self.filter = FILTERS[number]
            self.show_list()
            self._show_file()

    def action_search(self) -> None:
        self._queue.run_unless_busy(self._search)

    async def _search(self) -> None:
        text = await self.app.push_screen_wait(TextInput("Show only paths with …", self.words))
        if text is not None:
            self.words = text.strip()
            self.show_list()
            self._show_file()

    # --- actions on the fork ---

    async def _work(self, title: str, work: Callable[[], Awaitable[T]]) -> T | MudroomError:
        self._watches = False
        try:
            return await self.app.work(title, work)
        finally:
            self._watches = True

    def _picked(self) -> Choice | None:
        return choice_of(self.seen.items, self.picks) if self.seen is not None else None

    def action_apply(self) -> None:
        self._queue.run_unless_busy(self._apply)

    async def _apply(self) -> None:
        seen, choice = self.seen, self._picked()
        if seen is None or choice is None:
            self.app.notify("nothing is chosen; space chooses, A chooses all")
            return
        if self._moved:
            self.app.code = 4
            self.app.notify("the fork has changed since you looked at it: R looks again", severity="warning")
            return
        question = summary.before_apply(seen, choice, self.files.flags, self.app.hooks.verifies)
        if not await self.app.push_screen_wait(
            Confirm(f"Apply to {show_path(self.model.project)}?", question, "apply")
        ):
            return
        landed = await self._work(
            "applying", lambda: self.model.ask(self.model.apply, seen, choice, self.app.verifying)
        )
        if not isinstance(landed, MudroomError):
            failed = landed.verified is not None and not landed.verified.passed
            self.app.code = 5 if failed else 3 if landed.conflicts else 0
            self.app.applied = self.app.applied or not failed
            await self.look()
            title = "Nothing was applied" if failed else "Applied"
            rows, name = summary.landed(landed, choice), landed.applied.name
            if not name or failed:
                await self.app.push_screen_wait(TextDialog(title, rows))
            elif await self.app.push_screen_wait(ApplyOutcomeDialog(title, rows)):
                await self._undo(name)
        elif isinstance(landed, ForkMoved):
            self._tell_moved(landed)
        else:
            self.app.tell_error(landed)

    def _tell_moved(self, error: ForkMoved) -> None:
        self.app.code, self._moved = 4, True
        self.banner(f"{error.message}: R looks again")

    def action_discard(self) -> None:
        self._queue.run_unless_busy(self._discard)

    async def _discard(self) -> None:
        seen = self.seen
        if seen is None:
            return
        rows = plain(f"{len(seen.items):,} changed files are thrown away with it; the project stays as it is.")
        rows += plain("This cannot be taken back.", style="warn")
        if not await self.app.push_screen_wait(Confirm(f"Discard the fork {self.model.fork}?", rows, "discard")):
            return
        done = await self._work("discarding", lambda: self.model.ask(self.model.discard, seen))
        if isinstance(done, ForkMoved):
            self._tell_moved(done)
            return
        if isinstance(done, MudroomError):
            self.app.tell_error(done)
            return
        self.app.leave(f"discarded: {self.model.fork}")

    def action_undo(self) -> None:
        self._queue.run_unless_busy(self._undo)

    async def _undo(self, name: str = "") -> None:
        """Undo an apply. ``name`` empty: the last one."""
        name = name or await self.model.ask(self.model.last_apply)
        if not name:
            self.app.notify("there is no apply to take back")
            return
        rows = plain("The project gets back what it held before. mudroom redo applies it again.")
        if not await self.app.push_screen_wait(Confirm(f"Take the last apply back ({name})?", rows, "undo")):
            return
        undone = await self._work("undoing", lambda: self.model.ask(self.model.undo, name))
        if not isinstance(undone, MudroomError):
            self.app.code = 3 if undone.conflicts else 0
            await self.look()
            await self.app.push_screen_wait(TextDialog("Undone", summary.undone(undone)))
        else:
            self.app.tell_error(undone)

    def action_conflicts(self) -> None:
        self._queue.run_unless_busy(self._conflicts)

    async def _conflicts(self) -> None:
        if self.seen is None or not self.seen.conflicts:
            self.app.notify("nothing conflicts with the project as it is now")
            return
        row = self.files.current
        at = row.item.path if row is not None and row.item is not None else b""
        changed = await self.app.push_screen_wait(ConflictScreen(self.model, self.seen.conflicts, at))
        if changed:
            await self.look()

    def action_timeline(self) -> None:
        self._queue.run_unless_busy(self._timeline)

    async def _timeline(self) -> None:
        if self.seen is None:
            return
        points = (await self.model.ask(self.model.checkpoints))[::-1]
        if not points:
            self.app.notify(f"{self.model.fork} has no checkpoints: mudroom checkpoint NAME makes one")
            return
        rows = [summary.checkpoint(point) for point in points]
        title = f"Checkpoints of {self.model.fork}, newest first"
        number = await self.app.push_screen_wait(
            Choose(title, rows, keys="Enter what going back would drop   Esc back")
        )
        if number is None:
            return
        point = points[number].name
        dropped = await self.model.ask(self.model.dropped, point)
        preview = summary.rollback(dropped.rows)
        if not await self.app.push_screen_wait(
            Confirm(f"Roll {self.model.fork} back to {point}?", preview, "roll back")
        ):
            return
        undo = await self._work("rolling back", lambda: self.model.ask(self.model.roll_back, point, dropped))
        if isinstance(undo, MudroomError):
            self.app.tell_error(undo)
            return
        self.app.notify(f"rolled back to {point}" + (f"; {undo} has what was dropped" if undo else ""), markup=False)
        await self.look()

    def action_journal(self) -> None:
        self._queue.run_unless_busy(self._journal)

    async def _journal(self) -> None:
        events = await self.model.ask(self.model.events, EVENTS)
        rows = plain(*(show(self.app.hooks.tell(event).encode()) for event in events)) or plain("nothing yet")
        await self.app.push_screen_wait(TextDialog("Journal, newest first (mudroom log shows all)", rows))

    def action_theme(self) -> None:
        self.app.theme = "textual-light" if self.app.current_theme.dark else "textual-dark"

    def action_reload(self) -> None:
        begin(self, self.look, "look")

    def action_help(self) -> None:
        self.app.push_screen(help_for(REVIEW, "Keys of the review", legend=True))

    def action_leave(self) -> None:
        self.app.leave()
