"""A pane that draws only the rows on the screen: ten thousand rows cost no more than ten."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

Pieces = Sequence[tuple[str, str]]
"""Pairs of text and style name."""


class Pane(ScrollView, can_focus=True, inherit_bindings=False):
    """Subclasses set the row count (``show_rows``) and draw a row (``row``)."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "pane--plain", "pane--dim", "pane--strong", "pane--cursor", "pane--added", "pane--removed", "pane--added-word",
        "pane--removed-word", "pane--odd", "pane--head", "pane--warn", "pane--bad", "pane--good",
    }  # fmt: skip

    class Moved(Message):
        """The cursor has moved to another row."""

        def __init__(self, pane: Pane) -> None:
            super().__init__()
            self.pane = pane

        @property
        def control(self) -> Pane:
            return self.pane

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.cursor = 0
        self.count = 0
        self.sideways = 0
        """Cells by which long rows are shifted to the left."""

    @abstractmethod
    def row(self, number: int, width: int, /) -> Pieces:
        """Return a row (from 0) in ``width`` cells."""

    def show_rows(self, count: int, cursor: int = 0) -> None:
        """Set the row count and redraw all rows."""
        self.count = count
        self.cursor = max(0, min(cursor, count - 1))
        self.virtual_size = Size(0, count)
        self.keep_in_sight()
        self.refresh()

    def move(self, by: int) -> None:
        self.go(self.cursor + by)

    def go(self, to: int) -> None:
        before, self.cursor = self.cursor, max(0, min(to, self.count - 1))
        self.keep_in_sight()
        self.refresh()
        if self.cursor != before:
            self.post_message(self.Moved(self))

    def page(self, by: int) -> None:
        self.move(by * max(1, self.size.height - 2))

    def keep_in_sight(self, above: int = 0, below: int = 0) -> None:
        """Scroll to the cursor, with ``above`` and ``below`` rows around it if they fit."""
        height, top = self.size.height, round(self.scroll_y)
        if not height:
            return
        if self.cursor - above < top:
            top = self.cursor - above
        elif self.cursor + below >= top + height:
            top = min(self.cursor, self.cursor + below - height + 1)
        self.scroll_to(y=max(0, min(top, max(0, self.count - height))), animate=False, force=True, immediate=True)

    def on_resize(self) -> None:
        self.keep_in_sight()

    def render_line(self, y: int) -> Strip:
        number = round(self.scroll_y) + y
        width = self.size.width
        plain = self._style("plain")
        if number >= self.count:
            return Strip.blank(width, plain)
        base = plain + self._style("cursor") if number == self.cursor else plain
        segments = [Segment(text, base + self._style(name) if name else base) for text, name in self.row(number, width)]
        return Strip(segments).crop_extend(0, width, base)

    def _style(self, name: str) -> Style:
        """Return the style. Styles for differing words and for the cursor's row also set the background."""
        return self.get_component_rich_style(f"pane--{name}", partial=name != "plain")
