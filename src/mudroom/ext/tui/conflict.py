"""The conflict screen: three sides for each place, and its decision.

Places are decided one by one; a file is decided with its last place. A decision holds for the next apply while both
versions stay the same. The result is shown below the sides, and each place can be decided again.
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

from mudroom.core.merge.diff3 import Chunk, MergedText
from mudroom.core.merge.marker import chosen_lines, why_not_mergeable
from mudroom.core.merge.read_resolution import read_choices
from mudroom.core.merge.resolution_words import OPEN, Choice, Either, choice_words, take_words
from mudroom.core.merge.resolve_hunks import lines_at, resolve_text
from mudroom.core.text.linediff import split_lines
from mudroom.core.tree.path import show_path
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, SideMoved
from mudroom.ext.tui.dialog import Lines, help_for
from mudroom.ext.tui.key import CONFLICTS, bindings, brief
from mudroom.ext.tui.line import pieces
from mudroom.ext.tui.pane import Pieces
from mudroom.ext.tui.review_model import ReviewModel
from mudroom.ext.tui.worker import WorkerQueue

if TYPE_CHECKING:
    from mudroom.ext.tui.base_app import BaseApp
    from mudroom.session import ForkConflict
    from mudroom.vault.conflict.rule_merge import RuleMerge


# --- A conflict as rows: one place's sides and result, or type and size for files that cannot be merged ---


CONTEXT_LINES = 3
"""Context lines shown before and after a place."""
MOST_LINES = 2_000
"""Maximum lines shown."""


def decision_words(conflict: ForkConflict) -> str:
    if conflict.how:
        return f"decided: {conflict.how}"
    return take_words(conflict.take) if conflict.decided else OPEN


def decided_choices(conflict: ForkConflict, merged: MergedText | None) -> dict[int, Choice]:
    """Return the choice for each place; empty if the conflict is undecided, or was not decided place by place."""
    content = conflict.result
    choices = read_choices(merged, content) if merged is not None and content is not None else None
    return dict(enumerate(choices or ()))


def rows_of_side(merged: MergedText, place: int, side: str) -> list[Pieces]:
    """Return one side of a place, with a few context lines."""
    chunks = merged.chunks
    chunk_number = [number for number, chunk in enumerate(chunks) if chunk.kind == "conflict"][place]
    before = [
        line
        for chunk in chunks[max(0, chunk_number - CONTEXT_LINES) : chunk_number]
        for line in _side_lines(chunk, side)
    ][-CONTEXT_LINES:]
    after = [
        line
        for chunk in chunks[chunk_number + 1 : chunk_number + 1 + CONTEXT_LINES]
        for line in _side_lines(chunk, side)
    ][:CONTEXT_LINES]
    style = "removed" if side == "base" else "added"
    return [*_dim(before), *_marked_rows(_side_lines(chunks[chunk_number], side), style), *_dim(after)]


def _side_lines(chunk: Chunk, side: str) -> tuple[bytes, ...]:
    return {"base": chunk.base, "ours": chunk.ours, "theirs": chunk.theirs}[side]


def rows_of_version(conflict: ForkConflict, side: str, *, masked: bool) -> list[Pieces]:
    """Return rows for a version that cannot be merged. ``masked``: its content is hidden."""
    version = {"base": conflict.base, "ours": conflict.ours, "theirs": conflict.theirs}[side]
    entry = version.entry
    if entry is None:
        return [[("no file" if conflict.reason else "", "dim")]]
    rows: list[Pieces] = [[(f"{entry.kind}, {entry.size:,} bytes, {entry.mode:04o}", "head")]]
    if version.path != conflict.path:
        rows.append([(f"at {show_path(version.path)}", "warn")])
    if entry.kind == "symlink":
        rows.append([(f"to {show_path(entry.target)}", "")])
    if masked:
        rows.append([("a secret: it is not shown", "warn")])
    elif version.content is not None and b"\0" not in version.content:
        lines = version.content[: 1 << 20].split(b"\n")[:MOST_LINES]
        rows += [_line(line + b"\n", "") for line in lines]
    return rows


def rows_of_place(merged: MergedText, choices: Mapping[int, Choice], place: int) -> list[Pieces]:
    chunks = merged.chunks
    numbers = [chunk_number for chunk_number, chunk in enumerate(chunks) if chunk.kind == "conflict"]
    chunk_number = numbers[place]
    lines = {
        number: _chosen_lines(merged, number, choices.get(numbers.index(number)))
        if number in numbers
        else chunks[number].outcome
        for number in range(max(0, chunk_number - CONTEXT_LINES), min(len(chunks), chunk_number + CONTEXT_LINES + 1))
    }
    before = [line for number in lines if number < chunk_number for line in lines[number]][-CONTEXT_LINES:]
    after = [line for number in lines if number > chunk_number for line in lines[number]][:CONTEXT_LINES]
    return [*_dim(before), *_marked_rows(lines[chunk_number], "added"), *_dim(after)]


def _chosen_lines(merged: MergedText, number: int, choice: Choice | None) -> Sequence[bytes]:
    chunk = merged.chunks[number]
    is_last = number + 1 == len(merged.chunks)
    if isinstance(choice, list):
        return split_lines(b"".join(chosen_lines(chunk, lines_at(chunk, choice, is_last=is_last), is_last=is_last)))
    return chosen_lines(chunk, choice, is_last=is_last) if choice is not None else ()


def rows_of_all(conflict: ForkConflict) -> list[Pieces]:
    """Return the result of a conflict that was not decided place by place."""
    content = conflict.result
    if content is None:
        return [[("the file will be gone", "dim")]] if conflict.take == "delete" else []
    if why_not_mergeable(content):
        return [[(f"{len(content):,} bytes", "head")]]
    lines = split_lines(content)
    return [_line(line, "") for line in lines[:MOST_LINES]] + _more(len(lines))


def _marked_rows(lines: Sequence[bytes], style: str) -> list[Pieces]:
    rows: list[Pieces] = [[("▐ ", style), *_line(line, style)] for line in lines[:MOST_LINES]]
    return (rows or [[("▐ (nothing)", "dim")]]) + _more(len(lines))


def _more(count: int) -> list[Pieces]:
    return [[(f"… {count - MOST_LINES:,} more lines", "odd")]] if count > MOST_LINES else []


def _dim(lines: list[bytes]) -> list[Pieces]:
    return [_line(line, "dim") for line in lines]


def _line(line: bytes, style: str) -> Pieces:
    return [(piece.text, "odd" if piece.odd else style) for piece in pieces(line)]


_SIDES = (("base", "the original"), ("ours", "1 the project's"), ("theirs", "2 the fork's"))


class ConflictScreen(Screen[bool], inherit_bindings=False):
    """Dismissed with whether any conflict was decided."""

    app: BaseApp
    BINDINGS: ClassVar[list[BindingType]] = bindings(CONFLICTS)

    def __init__(self, model: ReviewModel, conflicts: Sequence[ForkConflict], at: bytes) -> None:
        super().__init__()
        self.model, self.conflicts = model, list(conflicts)
        self.number = next((index for index, conflict in enumerate(self.conflicts) if conflict.path == at), 0)
        self.place_number = 0
        self.is_whole = False
        self.choices: dict[bytes, dict[int, Choice]] = {}
        """Decisions about places, for files not yet completely decided."""
        self.changed = False
        self._queue = WorkerQueue(self, self.app.tell_error)
        """Drops keys until the last decision is stored: they would apply to another conflict."""
        self._cached: tuple[ForkConflict | None, MergedText | None, dict[int, Choice]] = (None, None, {})

    def compose(self) -> ComposeResult:
        yield Static(id="what", markup=False)
        with Horizontal():
            for side, name in _SIDES:
                with Vertical(classes="side"):
                    yield Static(name, classes="name", markup=False)
                    yield Lines([], id=side)
        with Vertical(id="outcome"):
            yield Static("the result", classes="name", markup=False)
            yield Lines([], id="result")
        yield Static(brief(CONFLICTS), id="keys", markup=False)

    def on_mount(self) -> None:
        self.show_place()

    # --- the current conflict ---

    @property
    def conflict(self) -> ForkConflict:
        return self.conflicts[self.number]

    @property
    def merged(self) -> MergedText | None:
        """This conflict's texts, merged as far as possible. None if they are hidden, or do not conflict (both sides
        changed the mode, for example, and different lines)."""
        return self._read_sides()[0]

    @property
    def is_remade(self) -> bool:
        """Whether a command makes the file again, and nothing is decided about it."""
        conflict = self.conflict
        return not conflict.decided and not self.model.is_masked(conflict) and bool(conflict.remade_by)

    @property
    def rule(self) -> RuleMerge | None:
        return None if self.model.is_masked(self.conflict) else self.conflict.by_rule

    @property
    def said(self) -> dict[int, Choice]:
        """The choices for this conflict's places: made here, or else from the stored decision."""
        return self.choices.get(self.conflict.path) or self._read_sides()[1]

    def _read_sides(self) -> tuple[MergedText | None, dict[int, Choice]]:
        if self._cached[0] is not self.conflict:
            merged = None if self.model.is_masked(self.conflict) else self.conflict.merged
            merged = merged if merged is not None and merged.conflicts else None
            self._cached = (self.conflict, merged, decided_choices(self.conflict, merged))
        return self._cached[1:]

    @property
    def places(self) -> int:
        return self.merged.conflicts if self.merged is not None else 0

    def show_place(self) -> None:
        conflict, places = self.conflict, self.places
        lines = [f" conflict {self.number + 1} of {len(self.conflicts)}: {show_path(conflict.path)}"]
        lines[0] += f"   [{decision_words(conflict)}]"
        rule = self.rule
        by_rule = f"   r merges it by rule: {rule.words}" if rule is not None and not conflict.decided else ""
        again = f"   mudroom resolve --rule makes it again: {conflict.remade_by}" if self.is_remade else ""
        lines.append(f" {conflict.reason}{by_rule}{again}")
        if places:
            place_state = (
                choice_words(self.said.get(self.place_number))
                if self.said or not conflict.decided
                else "decided as a whole"
            )
            scope = "the whole file" if self.is_whole else "one place"
            lines.append(f" place {self.place_number + 1} of {places}: {place_state}   1, 2 and 3 are for {scope}")
        self.query_one("#what", Static).update("\n".join(lines))
        result = self._result()
        self.query_one("#outcome").set_class(bool(result), "some")
        for pane in self.query(Lines):
            pane.replace(result if pane.id == "result" else self._side(pane.id or ""))
            pane.scroll_to(y=0, animate=False, force=True, immediate=True)

    def _side(self, side: str) -> list[Pieces]:
        merged = self.merged
        if merged is None:
            return rows_of_version(self.conflict, side, masked=self.model.is_masked(self.conflict))
        return rows_of_side(merged, self.place_number, side)

    def _result(self) -> list[Pieces]:
        """Return the result's rows, or none if no place is decided or the file is masked."""
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
        for pane in self.query(Lines):
            pane.move(by * max(1, pane.size.height - 1))

    def action_whole(self) -> None:
        self.is_whole = not self.is_whole
        self.show_place()

    def action_help(self) -> None:
        self.app.push_screen(help_for(CONFLICTS, "Keys of the conflicts"))

    def action_leave(self) -> None:
        undecided = {path for path, choices in self.choices.items() if choices}
        if undecided:
            names = ", ".join(show_path(path) for path in sorted(undecided)[:3])
            self.app.notify(f"not all places are decided, so nothing is: {names}", markup=False, severity="warning")
        self.dismiss(self.changed)

    # --- deciding ---

    def action_take(self, side: Either) -> None:
        self._queue.run_unless_busy(partial(self._take, side))

    async def _take(self, side: Either) -> None:
        conflict, merged = self.conflict, self.merged
        if merged is not None and not self.is_whole:
            choices = self.choices.setdefault(conflict.path, dict(self.said))
            choices[self.place_number] = side
            undecided = [number for number in range(merged.conflicts) if number not in choices]
            if undecided:
                self.place_number = next((number for number in undecided if number > self.place_number), undecided[0])
                self.show_place()
                return
            await self._decide(lambda: self._decide_places(conflict, merged, choices))
        elif side == "both":
            await self._decide(lambda: self._decide_both(conflict, conflict.merged))
        else:
            await self._decide(lambda: self.model.decide(conflict, side))

    def _decide_places(self, conflict: ForkConflict, merged: MergedText, choices: Mapping[int, Choice]) -> None:
        self.model.decide(conflict, "content", resolve_text(merged, [choices[at] for at in range(merged.conflicts)]))

    def _decide_both(self, conflict: ForkConflict, merged: MergedText | None) -> None:
        if merged is not None:
            self._decide_places(conflict, merged, dict.fromkeys(range(merged.conflicts), "both"))
        else:
            self.model.keep_both(conflict)

    def action_rule(self) -> None:
        conflict, rule = self.conflict, self.rule
        if self.is_remade:
            words = show_words([self.model.fork.encode(), conflict.path])
            self.app.notify(f"a command makes it again: mudroom resolve {words} --rule", markup=False)
            return
        if rule is None:
            self.app.notify("no rule merges it: 1, 2, 3 or 4 decides it", markup=False)
            return
        self.choices.pop(conflict.path, None)
        self._queue.run_unless_busy(
            partial(
                self._decide, lambda: self.model.decide(conflict, "content", rule.content, how=rule.how), stays=True
            )
        )

    def action_undecide(self) -> None:
        self.choices.pop(self.conflict.path, None)
        conflict = self.conflict
        self._queue.run_unless_busy(partial(self._decide, lambda: self.model.undecide(conflict)))

    def action_edit(self) -> None:
        """Edit the conflict in the user's editor, which has the terminal meanwhile."""
        conflict = self.conflict
        if self.model.is_masked(conflict):
            self.app.tell_error(
                MudroomError(f"{show_path(conflict.path)} is a secret: it is not shown", "1 or 2 decide it")
            )
            return
        problem: MudroomError | None = None
        try:
            with self.app.suspend():
                root, own = self.model.own_of(conflict)
                self.app.hooks.edit(root.session, root.fork, own)
        except MudroomError as error:
            problem = error
        except SuspendNotSupported:
            words = f"mudroom resolve {self.model.fork} --edit"
            problem = MudroomError("no editor can be started from this terminal", words)
        self.refresh()
        if problem is not None:
            self.app.tell_error(problem)
            if not isinstance(problem, SideMoved):
                return
        self._queue.run_unless_busy(partial(self._decide, lambda: None, stays=problem is not None))

    async def _decide(self, decide: Callable[[], object], *, stays: bool = False) -> None:
        """Store a decision, read the conflicts again, and go to the next undecided conflict. ``stays``: stay at this
        conflict."""
        path = self.conflict.path
        try:
            await self.model.ask(decide)
        except SideMoved as moved:
            self.app.tell_error(moved)
            stays = True
        conflicts = await self.model.ask(self.model.conflicts)
        self.changed = True
        self.choices.pop(path, None)
        if not conflicts:
            self.dismiss(True)
            return
        self.conflicts = conflicts
        self.number = next((index for index, conflict in enumerate(conflicts) if conflict.path == path), 0)
        if self.conflict.decided and not stays:
            order = itertools.chain(range(self.number + 1, len(conflicts)), range(self.number))
            self.number = next((index for index in order if not conflicts[index].decided), self.number)
        self.place_number = 0
        self.show_place()
        if all(conflict.decided for conflict in conflicts) and not stays:
            self.app.notify("all conflicts are decided: Esc, then a applies")
