"""Reads the fork for its screen: the list, a file's differences, and whether the fork has changed since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from mudroom.core.tree.path import show_path
from mudroom.errors import ForkMoved, MudroomError
from mudroom.ext.tui.choice import FLAGS
from mudroom.ext.tui.diffrow import FileRows
from mudroom.ext.tui.fork_screen import ForkScreen
from mudroom.ext.tui.review_model import ForkVanished
from mudroom.ext.tui.worker import begin
from mudroom.vault.forks.review import not_reviewed

T = TypeVar("T")


class DifferenceLoader:
    """Loads the differences for the file at the list's cursor."""

    def __init__(self, screen: ForkScreen) -> None:
        self._screen = screen
        self._shown: bytes | None = None
        self._turned: set[bytes] = set()
        """Files that are shown by their parts, or as text, where the other is the first."""

    def turn(self) -> None:
        """Show the file's parts instead of its text, or its text again."""
        row = self._screen.files.current
        if row is not None and row.item is not None:
            self._turned ^= {row.item.path}
            self.begin(again=True)

    def begin(self, *, again: bool = False) -> None:
        """Load in the background. ``again``: load even if this file is already shown."""
        if again:
            self._shown = None
        begin(self._screen, self.load, "file", exclusive=True)

    async def load(self, *, at_end: bool = False) -> None:
        """Load the differences. ``at_end``: put the cursor at the last hunk."""
        screen = self._screen
        row = screen.files.current
        item = row.item if row is not None else None
        if item is None:
            if row is not None:
                heading = f"{screen.files.title(row)}: {len(row.members):,} changed"
            else:
                is_filtered = bool(screen.selection.items)
                heading = "nothing is listed" if is_filtered else await screen.model.ask(screen.model.why_empty)
            self._shown = None
            screen.diff.show_item(None, FileRows((heading,)))
            return
        if self._shown == item.path:
            return
        try:
            shown = await screen.model.show(item, screen.selection.seen, turned=item.path in self._turned)
        except ForkVanished:
            screen.show_gone()
            return
        except (MudroomError, OSError) as error:
            shown = FileRows((f"it cannot be shown: {error}",))
        if shown is None:
            return  # the cursor has moved on
        self._shown = item.path
        if shown.text is not None:
            screen.marks.set_blocks(item.path, shown.text.numbers)
        flags = screen.files.flags.get(item.path, frozenset())
        told = flags - {"executes-later"} if item.change.runs else flags  # its note says when
        notes = (show_path(item.path), *(f"{sign} {words}" for flag, sign, words in FLAGS if flag in told))
        screen.diff.show_item(item, shown._replace(notes=(*notes, *shown.notes)))
        screen.show_choice_of_blocks()
        if at_end:
            screen.diff.to_edge(-1)


class ForkReader:
    """Reads the fork, and watches for later changes."""

    def __init__(self, screen: ForkScreen, differences: DifferenceLoader) -> None:
        self._screen, self._differences = screen, differences
        self._stamp: object = None
        self._watches = True
        """False while the review itself changes the fork."""
        self.moved = False
        """Whether the fork has changed since it was read."""

    def begin(self) -> None:
        """Read the fork again, in the background."""
        begin(self._screen, self.look, "look")

    async def look(self) -> None:
        """Read the fork again. Unchanged rows keep their choice."""
        screen, selection = self._screen, self._screen.selection
        self._stamp = screen.model.stamp()
        try:
            seen = await screen.model.ask(screen.model.see)
        except ForkVanished:
            screen.show_gone()
            return
        except (MudroomError, OSError) as error:
            screen.banner(f"the fork cannot be read: {error}")
            return
        screen.marks.keep_unchanged(selection.items, seen.items)
        selection.replace(seen)
        self.moved = False
        screen.app.holds = bool(seen.items)
        waiting = (
            f"{len(seen.pushes)} held effect{'s' * (len(seen.pushes) > 1)}: a sends them, e shows, chooses and drops"
        )
        in_use = f"{not_reviewed(seen.fork, seen.in_use)}; R looks again"
        screen.banner(in_use if seen.in_use else waiting if seen.pushes else "")
        screen.show_list()
        self._differences.begin(again=True)

    def check(self) -> None:
        """Check whether the fork may have changed; if so, compare fingerprints in the background."""
        if self._screen.selection.seen is None or self.moved or not self._watches:
            return
        if self._screen.model.stamp() != self._stamp:
            self.moved = True
            begin(self._screen, self._check_fingerprint, "look")

    async def _check_fingerprint(self) -> None:
        """Compare the fork's fingerprint with the one seen. A command that starts, or changes no file, is ignored."""
        model = self._screen.model
        stamp = model.stamp()
        try:
            fingerprint = await model.ask(model.fingerprint) if stamp is not None else None
        except (MudroomError, OSError):
            fingerprint = None if model.stamp() is None else ""
        seen = self._screen.selection.seen
        if fingerprint is None:
            self._screen.show_gone()
        elif not self._watches:
            self.moved = False
        elif seen is not None and fingerprint != seen.fingerprint:
            self._screen.banner("the fork has changed since you looked at it: R looks again; nothing is applied before")
        else:
            self.moved, self._stamp = False, stamp

    def tell_moved(self, error: ForkMoved) -> None:
        """Show that an action was refused because the fork has changed."""
        self._screen.app.code, self.moved = 4, True
        self._screen.banner(f"{error.message}: R looks again")

    async def change(self, title: str, work: Callable[[], Awaitable[T]]) -> T | MudroomError:
        """Show a dialog while ``work`` changes the fork or the project. Return its result or error."""
        # changes to the fork from here on are the review's own
        self._watches = False
        try:
            return await self._screen.app.work(title, work)
        finally:
            self._watches = True


class ReviewParts(NamedTuple):
    """A review's parts, on which its key actions work."""

    screen: ForkScreen
    differences: DifferenceLoader
    reader: ForkReader
