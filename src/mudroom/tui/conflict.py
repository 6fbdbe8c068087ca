"""Conflicts, one after the other: the three sides of each place, and the decision about it.

A place is decided for itself; when the last one of a file is, the file is. What is decided holds for the next apply, as
long as both versions stay what they are. It is shown below the sides, and each of its places can be decided anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Static

from mudroom.core.merge.diff3 import MergedText
from mudroom.core.merge.resolution_words import Choice, Either, said
from mudroom.core.merge.resolve_hunks import resolved
from mudroom.core.tree.path import show_path
from mudroom.errors import MudroomError, SideMoved
from mudroom.tui.conflictrow import (
    decided_choices,
    rows_of_all,
    rows_of_place,
    rows_of_side,
    rows_of_version,
    said_of_all,
)
from mudroom.tui.dialog import Lines, help_for
from mudroom.tui.key import CONFLICTS, bindings, brief
from mudroom.tui.pane import Pieces
from mudroom.tui.review_model import ReviewModel
from mudroom.tui.worker import WorkerQueue

if TYPE_CHECKING:
    from mudroom.session import ForkConflict
    from mudroom.tui.base_app import BaseApp

_SIDES = (("base", "the original"), ("ours", "1 the project's"), ("theirs", "2 the fork's"))


class Side3(Lines):
    def __init__(self, side: str) -> None:
        super().__init__([], id=side)
        self.side = side


class ConflictScreen(Screen[bool], inherit_bindings=False):
    """Gives whether anything was decided."""

    app: BaseApp
    BINDINGS: ClassVar[list[BindingType]] = bindings(CONFLICTS)
    DEFAULT_CSS = """
    ConflictScreen #what { height: auto; max-height: 4; background: $surface; }
    ConflictScreen #keys { height: 1; background: $surface; color: $text-muted; }
    ConflictScreen .side { width: 1fr; border-right: solid $panel; }
    ConflictScreen #outcome { height: 30%; border-top: solid $panel; display: none; }
    ConflictScreen #outcome.some { display: block; }
    ConflictScreen .name { height: 1; text-style: bold; }
    """

    def __init__(self, model: ReviewModel, conflicts: Sequence[ForkConflict], at: bytes) -> None:
        super().__init__()
        self.model, self.conflicts = model, list(conflicts)
        self.number = next((n for n, one in enumerate(self.conflicts) if one.path == at), 0)
        self.place_number = 0
        self.is_whole = False
        self.choices: dict[bytes, dict[int, Choice]] = {}
        """What was said about single places of files of which not all are decided."""
        self.changed = False
        self._turn = WorkerQueue(self, self.app.tell_error)
        """A key that comes before the last decision is kept would be about another conflict."""
        self._looked: tuple[ForkConflict | None, MergedText | None, dict[int, Choice]] = (None, None, {})

    def compose(self) -> ComposeResult:
        yield Static(id="what", markup=False)
        with Horizontal():
            for side, name in _SIDES:
                with Vertical(classes="side"):
                    yield Static(name, classes="name", markup=False)
                    yield Side3(side)
        with Vertical(id="outcome"):
            yield Static("the result", classes="name", markup=False)
            yield Side3("result")
        yield Static(brief(CONFLICTS), id="keys", markup=False)

    def on_mount(self) -> None:
        self.show_place()

    # --- what is looked at ---

    @property
    def conflict(self) -> ForkConflict:
        return self.conflicts[self.number]

    @property
    def merged(self) -> MergedText | None:
        """The texts of this conflict, merged as far as they can be; None if they are not shown."""
        return self._look()[0]

    @property
    def said(self) -> dict[int, Choice]:
        """What becomes of the places of this conflict: as it was said here, or else as it is decided."""
        return self.choices.get(self.conflict.path) or self._look()[1]

    def _look(self) -> tuple[MergedText | None, dict[int, Choice]]:
        if self._looked[0] is not self.conflict:
            merged = None if self.model.is_masked(self.conflict) else self.conflict.merged
            self._looked = (self.conflict, merged, decided_choices(self.conflict, merged))
        return self._looked[1:]

    @property
    def places(self) -> int:
        return self.merged.conflicts if self.merged is not None else 0

    def show_place(self) -> None:
        conflict, places = self.conflict, self.places
        lines = [f" conflict {self.number + 1} of {len(self.conflicts)}: {show_path(conflict.path)}"]
        lines[0] += f"   [{said_of_all(conflict)}]"
        lines.append(f" {conflict.reason}")
        if places:
            here = said(self.said.get(self.place_number)) if self.said or not conflict.decided else "decided as a whole"
            how = "the whole file" if self.is_whole else "one place"
            lines.append(f" place {self.place_number + 1} of {places}: {here}   1, 2 and 3 are for {how}")
        self.query_one("#what", Static).update("\n".join(lines))
        result = self._result()
        self.query_one("#outcome").set_class(bool(result), "some")
        for pane in self.query(Side3):
            pane.replace(result if pane.side == "result" else self._side(pane.side))
            pane.scroll_to(y=0, animate=False, force=True, immediate=True)

    def _side(self, side: str) -> list[Pieces]:
        merged = self.merged
        if merged is None:
            return rows_of_version(self.conflict, side, masked=self.model.is_masked(self.conflict))
        return rows_of_side(merged, self.place_number, side)

    def _result(self) -> list[Pieces]:
        """Nothing, where nothing is decided yet, or is to be shown."""
        merged, choices = self.merged, self.said
        if self.model.is_masked(self.conflict):
            return []
        if merged is not None and self.place_number in choices:
            return rows_of_place(merged, choices, self.place_number)
        return rows_of_all(self.conflict) if not choices else []

    # --- moving ---

    def action_move(self, by: int) -> None:
        self.number = (self.number + by) % len(self.conflicts)
        self.place_number = 0
        self.show_place()

    def action_place(self, by: int) -> None:
        if self.places:
            self.place_number = (self.place_number + by) % self.places
            self.show_place()

    def action_page(self, by: int) -> None:
        for pane in self.query(Side3):
            pane.move(by * max(1, pane.size.height - 1))

    def action_whole(self) -> None:
        self.is_whole = not self.is_whole
        self.show_place()

    def action_help(self) -> None:
        self.app.push_screen(help_for(CONFLICTS, "Keys of the conflicts"))

    def action_leave(self) -> None:
        left = {path for path, choices in self.choices.items() if choices}
        if left:
            names = ", ".join(show_path(path) for path in sorted(left)[:3])
            self.app.notify(f"not all places are decided, so nothing is: {names}", markup=False, severity="warning")
        self.dismiss(self.changed)

    # --- deciding ---

    def action_take(self, side: Either) -> None:
        self._turn.take(partial(self._take, side))

    async def _take(self, side: Either) -> None:
        conflict, merged = self.conflict, self.merged
        if merged is not None and not self.is_whole:
            choices = self.choices.setdefault(conflict.path, dict(self.said))
            choices[self.place_number] = side
            left = [number for number in range(merged.conflicts) if number not in choices]
            if left:
                self.place_number = next((number for number in left if number > self.place_number), left[0])
                self.show_place()
                return
            await self._decide(lambda: self._keep(conflict, merged, choices))
        elif side == "both":
            await self._decide(lambda: self._both(conflict, conflict.merged))
        else:
            await self._decide(lambda: self.model.decide(conflict, side))

    def _keep(self, conflict: ForkConflict, merged: MergedText, choices: Mapping[int, Choice]) -> None:
        self.model.decide(conflict, "content", resolved(merged, [choices[at] for at in range(merged.conflicts)]))

    def _both(self, conflict: ForkConflict, merged: MergedText | None) -> None:
        if merged is not None:
            self._keep(conflict, merged, dict.fromkeys(range(merged.conflicts), "both"))
        else:
            self.model.keep_both(conflict)

    def action_undecide(self) -> None:
        self.choices.pop(self.conflict.path, None)
        conflict = self.conflict
        self._turn.take(partial(self._decide, lambda: self.model.undecide(conflict)))

    def action_edit(self) -> None:
        """The editor has the terminal for itself meanwhile."""
        conflict = self.conflict
        if self.model.is_masked(conflict):
            self.app.tell_error(
                MudroomError(f"{show_path(conflict.path)} is a secret: it is not shown", "1 or 2 decide it")
            )
            return
        problem: MudroomError | None = None
        try:
            with self.app.suspend():
                self.app.hooks.edit(self.model.session, self.model.fork, conflict)
        except MudroomError as error:
            problem = error
        except SuspendNotSupported:
            problem = MudroomError("an editor cannot be had here", "mudroom resolve --edit")
        self.refresh()
        if problem is not None:
            self.app.tell_error(problem)
            if not isinstance(problem, SideMoved):
                return
        self._turn.take(partial(self._decide, lambda: None, stays=problem is not None))

    async def _decide(self, decide: Callable[[], object], *, stays: bool = False) -> None:
        """Keep a decision, and look at the conflicts again; then go on to the next that is not decided. ``stays``: not
        yet, for this one is to be looked at again."""
        path = self.conflict.path
        try:
            await self.model.ask(decide)
        except SideMoved as moved:
            self.app.tell_error(moved)
            stays = True
        found = await self.model.ask(self.model.conflicts)
        self.changed = True
        self.choices.pop(path, None)
        if not found:
            self.dismiss(True)
            return
        self.conflicts = found
        self.number = next((n for n, one in enumerate(found) if one.path == path), 0)
        if self.conflict.decided and not stays:
            order = itertools.chain(range(self.number + 1, len(found)), range(self.number))
            self.number = next((n for n in order if not found[n].decided), self.number)
        self.place_number = 0
        self.show_place()
        if all(one.decided for one in found) and not stays:
            self.app.notify("all conflicts are decided: Esc, then a applies")
