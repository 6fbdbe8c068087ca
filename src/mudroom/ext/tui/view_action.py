"""Review actions that change the display or the choice. They touch neither fork nor project."""

from __future__ import annotations

from collections import Counter

from mudroom.core.merge.pick import WHOLE
from mudroom.ext.tui.dialog import Choose, TextInput, help_for
from mudroom.ext.tui.fork_reader import ReviewParts
from mudroom.ext.tui.key import REVIEW
from mudroom.ext.tui.selection import FILTERS

# --- moving ---


def other_pane(parts: ReviewParts) -> None:
    screen = parts.screen
    screen.set_focus(screen.files if screen.pane is screen.diff else screen.diff)


def enter(parts: ReviewParts) -> None:
    screen = parts.screen
    row = screen.files.current
    if screen.pane is screen.diff:
        screen.diff.unfold()
    elif row is not None and row.item is None:
        screen.files.fold()
    else:
        screen.set_focus(screen.diff)


def back(parts: ReviewParts) -> None:
    screen = parts.screen
    if screen.pane is screen.diff:
        screen.set_focus(screen.files)
    elif screen.filter.text():
        screen.filter.clear()
        _show_filtered(parts)


async def hunk(parts: ReviewParts, by: int) -> None:
    files, diff, pane = parts.screen.files, parts.screen.diff, parts.screen.pane
    if (pane is files or not diff.next_stop(by)) and files.next_file(by):
        await parts.differences.load(at_end=by < 0 and pane is diff)


def split(parts: ReviewParts) -> None:
    if not parts.screen.diff.split():
        parts.screen.app.notify("this hunk cannot be split")


def order(parts: ReviewParts) -> None:
    parts.screen.files.turn()
    parts.differences.begin()


def show_parts(parts: ReviewParts) -> None:
    """Show the file's parts instead of its text, or its text again."""
    parts.differences.turn()


# --- choosing ---


def choose(parts: ReviewParts) -> None:
    """Select or deselect at the cursor. The key is dropped if its differences are not shown yet."""
    screen, selection = parts.screen, parts.screen.selection
    row = screen.files.current
    if row is None or screen.is_behind:
        return
    can_toggle, pick = screen.diff.toggled() if screen.pane is screen.diff else (False, None)
    if row.item is None:
        selection.choose_all(row.members, not all(selection.picks.get(item.path) == WHOLE for item in row.members))
    elif can_toggle:
        selection.choose(row.item, pick)
    else:
        selection.choose(row.item, None if row.item.path in selection.picks else WHOLE)
    screen.show_choice()


def choose_all(parts: ReviewParts, wanted: bool) -> None:
    parts.screen.selection.choose_all(parts.screen.listed, wanted)
    parts.screen.show_choice()


def mark(parts: ReviewParts) -> None:
    """Mark a hunk, file or directory as reviewed. The key is dropped if its differences are not shown yet."""
    screen = parts.screen
    row, group = screen.files.current, screen.diff.group
    if row is None or screen.is_behind:
        return
    if screen.pane is screen.diff and row.item is not None and group is not None:
        screen.marks.toggle_blocks(row.item.path, group.blocks)
    else:
        screen.marks.toggle_files([item.path for item in ((row.item,) if row.item is not None else row.members)])
    screen.show_choice()


# --- filtering the list ---


async def choose_filter(parts: ReviewParts) -> None:
    screen = parts.screen
    flags, picks = screen.files.flags, screen.selection.picks
    kinds = Counter((flags.get(item.path, frozenset()), picks.get(item.path)) for item in screen.selection.items)
    rows = []
    for filter_ in FILTERS:
        count = sum(times for kind, times in kinds.items() if filter_.accepts(*kind))
        rows.append([(f"{count:>7,}  ", "dim"), (filter_.name, "")])
    cursor = FILTERS.index(screen.filter.kind)
    number = await screen.app.push_screen_wait(Choose("Show only what …", rows, cursor=cursor))
    if number is not None:
        screen.filter.kind = FILTERS[number]
        _show_filtered(parts)


async def search(parts: ReviewParts) -> None:
    screen = parts.screen
    text = await screen.app.push_screen_wait(TextInput("Show only paths with …", screen.filter.words))
    if text is not None:
        screen.filter.words = text.strip()
        _show_filtered(parts)


def _show_filtered(parts: ReviewParts) -> None:
    parts.screen.show_list()
    parts.differences.begin()


# --- the application ---


def reload(parts: ReviewParts) -> None:
    parts.reader.begin()


def show_help(parts: ReviewParts) -> None:
    parts.screen.app.push_screen(help_for(REVIEW, "Keys of the review", legend=True))


def candidates(parts: ReviewParts) -> None:
    if not parts.screen.app.to_candidates():
        parts.screen.app.notify("this review was not begun from a try; mudroom try ls shows the tries")


def leave(parts: ReviewParts) -> None:
    parts.screen.app.leave()
