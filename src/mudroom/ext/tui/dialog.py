"""Dialogs over the review: a title, lines of text and a few keys."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Generic, Literal, TypeAlias, TypeVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widgets import Input, Static

from mudroom.core.text.plural import progress_line
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError
from mudroom.ext.tui.key import LEGEND, Key
from mudroom.ext.tui.pane import Pane, Pieces
from mudroom.ext.tui.review_model import Busy
from mudroom.ext.tui.worker import begin

T = TypeVar("T")

RETRY = 0.5
"""Seconds between attempts while another process holds the vault."""


class Lines(Pane):
    """Rows of text. There is a cursor only if a row can be chosen."""

    def __init__(
        self,
        rows: Sequence[Pieces],
        *,
        chooses: bool = False,
        cursor: int = 0,
        id: str = "lines",  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self._rows: Sequence[Pieces] = rows
        self._shown: Sequence[Pieces] = rows
        """The rows, broken into lines with at most ``_cells`` cells."""
        self._cells = 0
        """Cells in the longest line; 0: lines are not broken."""
        self._chooses = chooses
        self._first = cursor

    def on_mount(self) -> None:
        self._break()
        self.show_rows(len(self._shown), self._first)

    def replace(self, rows: Sequence[Pieces], *, at_end: bool = False) -> None:
        self._rows = rows
        self._break()
        self.show_rows(len(self._shown), len(self._shown) - 1 if at_end else self.cursor)

    def break_at(self, cells: int) -> int:
        """Break rows longer than this, unless rows can be chosen. Return how many lines that adds."""
        if cells != self._cells and not self._chooses:
            self._cells = cells
            self._break()
            self.show_rows(len(self._shown), self.cursor)
        return len(self._shown) - len(self._rows)

    def _break(self) -> None:
        self._shown = (
            self._rows if not self._cells else [line for row in self._rows for line in broken(row, self._cells)]
        )

    def move(self, by: int) -> None:
        if self._chooses:
            super().move(by)
            return
        height = max(1, self.size.height)
        self.scroll_to(
            y=max(0, min(round(self.scroll_y) + by, self.count - height)), animate=False, force=True, immediate=True
        )

    def row(self, number: int, _width: int) -> Pieces:
        pointer = [("▌" if number == self.cursor else " ", "head")] if self._chooses else []
        return [*pointer, *self._shown[number]]

    def render_line(self, y: int) -> Strip:
        if self._chooses:
            return super().render_line(y)
        cursor, self.cursor = self.cursor, -1
        try:
            return super().render_line(y)
        finally:
            self.cursor = cursor


def broken(row: Pieces, cells: int) -> list[Pieces]:
    """Return the row as lines with at most ``cells`` cells, broken at spaces where possible. A continuation line is
    indented below the text: after the label if the first piece is a label, otherwise two cells further than the
    text."""
    text = "".join(part for part, _style in row)
    if cell_len(text) <= cells:
        return [row]
    styles = [style for part, style in row for _character in part]
    label = row[0][0]
    hang = cell_len(label) if len(row) > 1 and label.endswith(" ") else len(text) - len(text.lstrip(" ")) + 2
    hang = min(hang, cells // 2)
    lines: list[Pieces] = []
    begin = 0
    while begin < len(text):
        indent = hang if lines else 0
        end = begin + _fitting(text[begin:], cells - indent)
        blank = text.rfind(" ", begin, end + 1)
        if end < len(text) and blank > begin and text[begin:blank].strip(" "):
            end = blank
        parts = itertools.groupby(range(begin, end), key=styles.__getitem__)
        pieces = [("".join(text[at] for at in places), style) for style, places in parts]
        lines.append([(" " * indent, ""), *pieces] if indent else pieces)
        begin = end + len(text[end:]) - len(text[end:].lstrip(" "))
    return lines


def _fitting(text: str, cells: int) -> int:
    """Return how many characters fit into so many cells, at least one."""
    used = 0
    for at, character in enumerate(text):
        used += cell_len(character)
        if used > cells:
            return max(at, 1)
    return len(text)


def plain(*lines: str, style: str = "") -> list[Pieces]:
    return [[(line, style)] for line in lines]


_WIDEST = 110
"""A dialog's width in cells on a wide terminal, as in its style sheet."""
_FRAME = 5
"""Cells taken by border, padding and scroll bar."""


class Dialog(ModalScreen[T], Generic[T], inherit_bindings=False):
    """A box in the middle: a title, lines, and the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
    ]

    def __init__(
        self, title: str, rows: Sequence[Pieces], keys: str, *, chooses: bool = False, cursor: int = 0
    ) -> None:
        super().__init__()
        self._title, self._keys = title, keys
        self.lines = Lines(rows, chooses=chooses, cursor=cursor)
        self._height = len(rows)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._title, classes="title", markup=False)
            yield self.lines
            yield Static(self._keys, classes="keys", markup=False)

    def on_mount(self) -> None:
        self.fit(self._height)
        self.lines.focus()

    def on_resize(self) -> None:
        self.fit(self._height)

    def fit(self, rows: int) -> None:
        """Set the height for at most ``rows`` rows, some of which may be broken into several lines."""
        self._height = rows
        rows += self.lines.break_at(max(min(self.app.size.width * 9 // 10, _WIDEST) - _FRAME, 1))
        self.lines.styles.height = max(1, min(rows, self.app.size.height * 9 // 10 - 5))

    def action_move(self, by: int) -> None:
        self.lines.move(by)

    def action_page(self, by: int) -> None:
        self.lines.move(by * max(1, self.lines.size.height - 1))


class Confirm(Dialog[bool]):
    """Confirm with ``y`` only: keys typed by accident must not change a project."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,q,escape", "answer(False)", show=False),
    ]

    def __init__(self, title: str, rows: Sequence[Pieces], yes: str) -> None:
        super().__init__(title, rows, f"y {yes}   Esc back")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


ApplyAnswer: TypeAlias = Literal["apply", "commit", "files"]


class ConfirmApply(Dialog["ApplyAnswer | None"]):
    """Confirm an apply. ``can_commit``: also offer to commit it. ``can_leave``: also offer to leave its pushes in the
    fork. Dismissed with None for no apply."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "apply", show=False),
        Binding("c", "commit", show=False),
        Binding("f", "files", show=False),
        Binding("n,q,escape", "none", show=False),
    ]

    def __init__(self, title: str, rows: Sequence[Pieces], *, can_commit: bool, can_leave: bool) -> None:
        more = ("c apply as one commit   " if can_commit else "") + ("f files only   " if can_leave else "")
        super().__init__(title, rows, f"y apply   {more}Esc back")
        self._can_commit, self._can_leave = can_commit, can_leave

    def action_apply(self) -> None:
        self.dismiss("apply")

    def action_commit(self) -> None:
        if self._can_commit:
            self.dismiss("commit")

    def action_files(self) -> None:
        if self._can_leave:
            self.dismiss("files")

    def action_none(self) -> None:
        self.dismiss(None)


class TextDialog(Dialog[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark", "close", show=False)]

    def __init__(self, title: str, rows: Sequence[Pieces]) -> None:
        super().__init__(title, rows, "Esc back")

    def action_close(self) -> None:
        self.dismiss(None)


class ApplyOutcomeDialog(Dialog[bool]):
    """An apply's outcome. Dismissed with True to undo the apply."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u", "answer(True)", show=False),
        Binding("escape,q,enter", "answer(False)", show=False),
    ]

    def __init__(self, title: str, rows: Sequence[Pieces]) -> None:
        super().__init__(title, rows, "u undo   Esc back")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


def help_for(keys: tuple[Key, ...], title: str, *, legend: bool = False) -> TextDialog:
    rows: list[Pieces] = [[(f"{key.shown:<8}", "head"), (key.text, "")] for key in keys]
    if legend:
        rows += [[("", "")], *([(f"{sign:<12}", "warn"), (text, "")] for sign, text in LEGEND)]
    return TextDialog(title, rows)


class Choose(Dialog["int | None"]):
    """Choose a row. Dismissed with its number, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "take", show=False),
        Binding("escape,q", "none", show=False),
    ]

    def __init__(self, title: str, rows: Sequence[Pieces], *, keys: str = "Enter choose   Esc back", cursor: int = 0):
        super().__init__(title, rows, keys, chooses=True, cursor=cursor)

    def action_take(self) -> None:
        self.dismiss(self.lines.cursor if self.lines.count else None)

    def action_none(self) -> None:
        self.dismiss(None)


class ChooseEffects(Dialog["tuple[str, int] | None"]):
    """Held effects. Dismissed with the key's action and the row's number, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "take('flip')", show=False),
        Binding("enter", "take('look')", show=False),
        Binding("x", "take('drop')", show=False),
        Binding("escape,q,e", "none", show=False),
    ]

    def __init__(self, title: str, rows: Sequence[Pieces], cursor: int) -> None:
        keys = "Space send or leave   Enter look   x drop   Esc back"
        super().__init__(title, rows, keys, chooses=True, cursor=cursor)

    def action_take(self, action: str) -> None:
        self.dismiss((action, self.lines.cursor))

    def action_none(self) -> None:
        self.dismiss(None)


class TextInput(Dialog["str | None"]):
    """Enter a line of text. Dismissed with the text, or with None to leave it unchanged."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "none", show=False)]

    def __init__(self, title: str, value: str, *, enter: str = "search") -> None:
        super().__init__(title, [], f"Enter {enter}   Esc back")
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._title, classes="title", markup=False)
            yield Input(self._value, id="words", compact=True)
            yield Static(self._keys, classes="keys", markup=False)

    def on_mount(self) -> None:
        """Set no focus: the input is the only widget that can have it, and Escape may remove the dialog before its
        widgets exist."""

    def on_resize(self) -> None:
        """There are no lines to fit."""

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_none(self) -> None:
        self.dismiss(None)


class Working(Dialog["T | MudroomError"], Generic[T]):
    """Show work until it is done, then dismiss with its result or error. Esc ends only the wait for another process, or
    the verify command."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c", "give_up", show=False)]

    def __init__(self, title: str, work: Callable[[], Awaitable[T]], interrupt: Callable[[], bool]) -> None:
        super().__init__(title, plain("…"), "")
        self._work, self._interrupt = work, interrupt
        self._gave_up = asyncio.Event()
        self._output = b""

    def on_mount(self) -> None:
        super().on_mount()
        begin(self, self._run, "work")

    async def _run(self) -> None:
        self.dismiss(await self._outcome())

    async def _outcome(self) -> T | MudroomError:
        while True:
            try:
                return await self._work()
            except Busy as busy:
                self.say(f"waiting for {busy.holder} to end; Esc gives up")
            except MudroomError as error:
                return error
            except OSError as error:
                return MudroomError(f"{show(str(error.filename or '').encode())}: {error.strerror or error}")
            try:
                await asyncio.wait_for(self._gave_up.wait(), RETRY)
            except TimeoutError:
                continue
            return MudroomError(
                "nothing was done: another process is at work in this project", "try again when it has ended"
            )

    def say(self, line: str) -> None:
        self.lines.replace(plain(line))
        self.fit(1)

    def progress(self, label: str, done: int, total: int) -> None:
        self.say(progress_line(label, done, total))

    def begin_output(self, command: tuple[bytes, ...]) -> None:
        """Show that the verify command is running."""
        self._output = b""
        self.query_one(".title", Static).update(f"{self._title}: first {show_words(command)}; Esc ends it")

    def output(self, data: bytes) -> None:
        """Show the verify command's output as it arrives."""
        self._output = (self._output + data)[-64_000:]
        lines = self._output.decode("utf-8", "replace").splitlines()[-200:]
        self.lines.replace(plain(*(show(line.encode()) for line in lines)), at_end=True)
        self.fit(min(len(lines), 16))

    def action_give_up(self) -> None:
        self._gave_up.set()
        self._interrupt()
