"""What was observed at the hunk at the cursor, or at all hunks of the file in the list."""

from __future__ import annotations

from collections.abc import Collection

from mudroom.core.tree.path import show_path
from mudroom.ext.reasons.session import Reasons
from mudroom.ext.reasons.telling import observed_lines, where
from mudroom.ext.tui.dialog import TextDialog
from mudroom.ext.tui.fork_reader import ReviewParts
from mudroom.ext.tui.pane import Pieces


async def show_observed(parts: ReviewParts) -> None:
    screen, model = parts.screen, parts.screen.model
    row, group = screen.files.current, screen.diff.group
    item = row.item if row is not None else None
    if item is None or screen.is_behind:
        screen.app.notify("there is no file at the cursor")
        return
    path = item.change.path
    blocks = group.blocks if screen.pane is screen.diff and group is not None else None

    def read() -> list[Pieces]:
        return _rows(Reasons(model.session, model.fork), path, blocks)

    await screen.app.push_screen_wait(TextDialog(show_path(path), await model.ask(read)))


def _rows(reasons: Reasons, path: bytes, blocks: Collection[int] | None) -> list[Pieces]:
    """Return the lines of a file's hunks with these blocks; None: of all."""
    seen = reasons.of_file(path)
    rows: list[Pieces] = []
    for row in seen.rows:
        if blocks is None or row.hunk is None or not set(blocks).isdisjoint(row.hunk.blocks):
            rows.append([(where(row), "strong")])
            rows += ([("  " + line, "")] for line in observed_lines(reasons, seen, row))
    return rows
