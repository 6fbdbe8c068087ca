"""The keys that every screen with panes has, and its line of news."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from textual.geometry import Size
from textual.widgets import Static

from mudroom.ext.tui.diffview import WIDE, DiffView
from mudroom.ext.tui.pane import Pane

if TYPE_CHECKING:
    from mudroom.ext.tui.base_app import BaseApp


class PaneScreen(Protocol):
    """A screen with panes and differences."""

    @property
    def app(self) -> BaseApp: ...

    @property
    def size(self) -> Size: ...

    @property
    def pane(self) -> Pane:
        """The pane with keyboard focus."""

    @property
    def diff(self) -> DiffView: ...


def narrowed(screen: PaneScreen) -> None:
    """End the display side by side where the screen has become too narrow."""
    if screen.size.width < WIDE:
        screen.diff.set_side_by_side(False)


def show_banner(banner: Static, text: str) -> None:
    """Show a line of news above the panes; empty: hide it."""
    banner.update(text)
    banner.set_class(bool(text), "shown")


def move(screen: PaneScreen, by: int) -> None:
    screen.pane.move(by)


def page(screen: PaneScreen, by: int) -> None:
    screen.pane.page(by)


def edge(screen: PaneScreen, by: int) -> None:
    screen.pane.go(0 if by < 0 else screen.pane.count - 1)


def sideways(screen: PaneScreen, by: int) -> None:
    screen.diff.shift(by)


def context(screen: PaneScreen, by: int) -> None:
    screen.diff.widen(by)


def side_by_side(screen: PaneScreen) -> None:
    if screen.size.width < WIDE and not screen.diff.side_by_side:
        screen.app.notify(f"side by side needs {WIDE} columns; there are {screen.size.width}")
        return
    screen.diff.set_side_by_side(not screen.diff.side_by_side)


def theme(screen: PaneScreen) -> None:
    screen.app.theme = "textual-light" if screen.app.current_theme.dark else "textual-dark"


COMMON: Mapping[str, Callable[..., None]] = {
    "move": move,
    "page": page,
    "edge": edge,
    "sideways": sideways,
    "context": context,
    "side_by_side": side_by_side,
    "theme": theme,
}
"""Actions of every such screen, performed when their key arrives."""
