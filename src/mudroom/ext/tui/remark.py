"""Remarks in the review: written at the cursor, listed, answered, settled, sent."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static, TextArea

from mudroom.core.tree.path import show_path
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.remarks.core.listing import ListedRemarks, first_line, remark_lines, state_words
from mudroom.ext.remarks.session import Remarks, prompt_id
from mudroom.ext.review.roots import roots_of
from mudroom.ext.tui.dialog import Dialog, TextDialog, plain
from mudroom.ext.tui.fork_action import LINES, line_row
from mudroom.ext.tui.fork_reader import ReviewParts
from mudroom.ext.tui.pane import Pieces

if TYPE_CHECKING:
    from mudroom.ext.remarks.core.value import Side


class RemarkPlace(NamedTuple):
    """Lines of a file."""

    path: bytes
    first: int = 0
    """0: the file."""
    last: int = 0
    side: Side = "new"
    lines: tuple[bytes, ...] = ()
    """Those that a suggestion would replace."""

    @property
    def label(self) -> str:
        if not self.first:
            return show_path(self.path) if self.path else "the whole"
        lines = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{show_path(self.path)}:{lines}{' (removed)' if self.side == 'old' else ''}"


class RemarkEditor(Dialog["tuple[str, str | None] | None"]):
    """Write a remark, and lines to put in the place. Dismissed with both, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", show=False, priority=True),
        Binding("ctrl+l", "suggest", show=False, priority=True),
        Binding("escape", "none", show=False, priority=True),
    ]

    def __init__(self, title: str, lines: str | None = None) -> None:
        """``lines``: the present lines, for a suggestion; None: none can be made."""
        more = "Ctrl+L suggest lines   " if lines is not None else ""
        super().__init__(title, [], f"Ctrl+S keep it   {more}Esc back")
        self._present, self._suggests = lines, False

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._title, classes="title", markup=False)
            yield TextArea(id="remark")
            suggestion = TextArea(self._present or "", id="suggestion")
            suggestion.display = False
            yield suggestion
            yield Static(self._keys, classes="keys", markup=False)

    def on_mount(self) -> None:
        self.query_one("#remark", TextArea).focus()

    def on_resize(self) -> None:
        """There are no lines to fit."""

    def action_suggest(self) -> None:
        if self._present is not None:
            self._suggests = not self._suggests
            field = self.query_one("#suggestion", TextArea)
            field.display = self._suggests
            (field if self._suggests else self.query_one("#remark", TextArea)).focus()

    def action_save(self) -> None:
        text = self.query_one("#remark", TextArea).text.strip("\n")
        if text.strip():
            self.dismiss((text, self.query_one("#suggestion", TextArea).text if self._suggests else None))

    def action_none(self) -> None:
        self.dismiss(None)


class ChooseRemark(Dialog["tuple[str, int] | None"]):
    """The remarks. Dismissed with an action and a remark's number, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take('look')", show=False),
        Binding("r", "take('answer')", show=False),
        Binding("y", "take('take')", show=False),
        Binding("s", "take('settle')", show=False),
        Binding("x", "take('remove')", show=False),
        Binding("S", "take('send')", show=False),
        Binding("N", "take('new')", show=False),
        Binding("a", "take('whole')", show=False),
        Binding("escape,q,w", "none", show=False),
    ]

    def __init__(self, title: str, rows: list[Pieces], cursor: int) -> None:
        keys = "Enter read  r answer  y take it  s settle  x remove  S send  N what is new  a about the whole  Esc back"
        super().__init__(title, rows, keys, chooses=True, cursor=cursor)

    def action_take(self, action: str) -> None:
        self.dismiss((action, self.lines.cursor))

    def action_none(self) -> None:
        self.dismiss(None)


class ConfirmSending(Dialog["str | None"]):
    """What will be sent, and where to. Dismissed with ``agent``, ``wait`` or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('agent')", show=False),
        Binding("l", "answer('wait')", show=False),
        Binding("n,q,escape", "none", show=False),
    ]

    def __init__(self, rows: list[Pieces], *, has_agent: bool) -> None:
        yes = "y send   " if has_agent else ""
        super().__init__("Send the remarks?", rows, f"{yes}l leave them for the agent's look   Esc back")
        self._has_agent = has_agent

    def action_answer(self, answer: str) -> None:
        if answer == "wait" or self._has_agent:
            self.dismiss(answer)

    def action_none(self) -> None:
        self.dismiss(None)


def place_at(parts: ReviewParts) -> RemarkPlace | None:
    """Return the place at the cursor: a line, a hunk's changed lines, or a file; None if there is none."""
    screen, diff = parts.screen, parts.screen.diff
    row = screen.files.current
    item = diff.item if screen.pane is diff else row.item if row is not None else None
    if item is None or screen.is_behind:
        return None
    path, text, rows = item.change.path, diff.shown.text, diff.layout_of.rows
    if screen.pane is not diff or text is None or not rows:
        return RemarkPlace(path)
    at = rows[diff.cursor]
    if at.new >= 0:
        return RemarkPlace(path, at.new + 1, at.new + 1, "new", (text.new[at.new],))
    if at.old >= 0 and at.kind in ("old", "pair"):
        return RemarkPlace(path, at.old + 1, at.old + 1, "old")
    if diff.group is None:
        return RemarkPlace(path)
    first, last = text.blocks[diff.group.blocks[0]], text.blocks[diff.group.blocks[-1]]
    if last.new_end > first.new_start:
        return RemarkPlace(
            path, first.new_start + 1, last.new_end, "new", tuple(text.new[first.new_start : last.new_end])
        )
    return RemarkPlace(path, first.old_start + 1, last.old_end, "old")


async def write(parts: ReviewParts) -> None:
    """Write a remark at the cursor."""
    place = place_at(parts)
    if place is None:
        parts.screen.app.notify("there is nothing to remark on at the cursor")
        return
    await _write(parts, place)


async def _write(parts: ReviewParts, place: RemarkPlace) -> None:
    app, model = parts.screen.app, parts.screen.model
    present = _plain(place.lines) if place.side == "new" and place.first else None
    answer = await app.push_screen_wait(RemarkEditor(f"Remark about {place.label}", present))
    if answer is None:
        return
    text, suggestion = answer

    def add() -> str:
        remarks = Remarks(model.session, model.fork)
        return remarks.add(place.path, place.first, place.last, text, side=place.side, suggestion=suggestion)

    name = await model.ask(add)
    app.notify(f"{name} is kept; w lists the remarks and sends them")
    parts.differences.begin(again=True)


def _plain(lines: tuple[bytes, ...]) -> str | None:
    """Return lines to edit; None if they are no plain text."""
    try:
        text = b"".join(lines).decode()
    except UnicodeDecodeError:
        return None
    return text.removesuffix("\n") if text.replace("\n", "").replace("\t", "").isprintable() else None


async def show_remarks(parts: ReviewParts) -> None:
    """List the remarks, and perform an action on one until the user leaves."""
    app, model, cursor = parts.screen.app, parts.screen.model, 0
    while True:
        listed = await model.ask(lambda: Remarks(model.session, model.fork).listed())
        rows = _rows(listed)
        title = f"Remarks about {model.fork}" + (f", round {listed.round}" if listed.round else "")
        answer = await app.push_screen_wait(ChooseRemark(title, rows, cursor))
        if answer is None:
            parts.differences.begin(again=True)
            return
        action, cursor = answer
        try:
            await _perform(parts, action, cursor, listed)
        except UsageError as error:
            app.tell_error(error)


def _rows(listed: ListedRemarks) -> list[Pieces]:
    rows: list[Pieces] = []
    for one in listed.remarks:
        style = "dim" if one.remark.settled else "warn" if one.where in ("answered", "outdated") else ""
        state = state_words(one, listed.cut_off)
        rows.append(
            [(f"{one.name:<4}{one.label}  ", "strong"), (first_line(one), ""), (f"  ({state})", style or "dim")]
        )
    return [*rows, *plain(*listed.damaged, style="bad")] or plain("there are none; a writes one about the whole")


async def _perform(parts: ReviewParts, action: str, cursor: int, listed: ListedRemarks) -> None:
    app, model = parts.screen.app, parts.screen.model
    if action == "whole":
        await _write(parts, RemarkPlace(b""))
    elif action == "send":
        await _send(parts)
    elif action == "new":
        await _show_new(parts, listed)
    elif cursor < len(listed.remarks):
        one = listed.remarks[cursor]
        remarks = Remarks(model.session, model.fork)
        if action == "look":
            await app.push_screen_wait(TextDialog(one.label, plain(*remark_lines(one, listed.cut_off))))
        elif action == "answer":
            answer = await app.push_screen_wait(RemarkEditor(f"Answer to {one.name}, {one.label}"))
            if answer is not None:
                await model.ask(remarks.answer, one.name, answer[0])
        elif action == "take":
            await model.ask(remarks.take, one.name)
            await parts.reader.look()
        elif action == "settle":
            await model.ask(partial(remarks.settle, one.name, is_settled=not one.remark.settled))
        else:
            await model.ask(remarks.remove, one.name)


async def _send(parts: ReviewParts) -> None:
    app, model = parts.screen.app, parts.screen.model
    prompt = await model.ask(Remarks(model.session, model.fork).prompt)
    try:
        words = await model.ask(app.hooks.agent_words, model.session, model.fork)
        told = f"The agent goes on with its conversation: {show_words([os.fsencode(word) for word in words])}"
    except UsageError as error:
        words, told = (), f"{error.message}."
    rows = [*plain(told, "", style="strong"), *plain(*prompt.rstrip("\n").replace("\t", "    ").split("\n"))]
    answer = await app.push_screen_wait(ConfirmSending(rows, has_agent=bool(words)))
    if answer is None:
        return
    loop = asyncio.get_running_loop()

    async def work() -> dict[str, object]:
        return await loop.run_in_executor(None, app.hooks.send, model.fork, prompt_id(prompt), answer == "wait")

    done = await parts.reader.change("sending: the agent works on the remarks", work)
    if isinstance(done, MudroomError):
        app.tell_error(done)
        return
    if done.get("exit_code"):
        app.notify(f"the agent ended with {done['exit_code']}: it has read the remarks or not", severity="warning")
    await parts.reader.look()


async def _show_new(parts: ReviewParts, listed: ListedRemarks) -> None:
    """Show what has changed since the last round."""
    app, model = parts.screen.app, parts.screen.model
    if not listed.point:
        app.notify("nothing was sent yet" if not listed.round else f"the checkpoint of round {listed.round} is gone")
        return

    def lines() -> list[bytes]:
        found: list[bytes] = []
        for root in roots_of(model.session, model.fork):
            mask = root.session.forks.secrets.hides
            with root.session.forks.compare(f"{root.fork}@{listed.point}", root.fork) as compared:
                shown = [change for change in compared.changeset.changes if not mask(change.path)]
                found += [b"# in %s:\n" % root.label.encode()] if root.label and shown else []
                found += islice(compared.lines(shown), LINES - len(found))
        return found

    rows = [line_row(line) for line in await model.ask(lines)]
    await app.push_screen_wait(TextDialog(f"New since round {listed.round}", rows or plain("nothing has changed")))
