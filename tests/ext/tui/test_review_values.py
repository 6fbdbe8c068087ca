"""What the terminal review is made of, without a screen: choices, rows, lines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color
from rich.style import Style
from textual.actions import parse
from textual.app import App, ComposeResult
from textual.screen import Screen

from kernel_calls import within
from mudroom.core.merge.pick import WHOLE, Pick
from mudroom.core.text.escaping import WIDEST
from mudroom.core.text.hunk import select_blocks
from mudroom.core.text.linediff import Block, split_lines
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.ext.tui.app import AT_ONCE, ONE_AT_A_TIME, ReviewScreen
from mudroom.ext.tui.choice import (
    Item,
    carry_picks,
    choice_of,
    first_choice,
    items_of,
    mark_of_all,
    toggle_block,
    toggle_mode,
)
from mudroom.ext.tui.conflict import ConflictScreen
from mudroom.ext.tui.dialog import Lines
from mudroom.ext.tui.diffrow import CONTEXTS, FileRows, FileText, Marker, lay_out, text_of
from mudroom.ext.tui.filelist import IGNORED, rows_of, title_of
from mudroom.ext.tui.key import CONFLICTS, REVIEW, Key
from mudroom.ext.tui.line import pieces
from mudroom.ext.tui.pane import Pane
from mudroom.ext.tui.pane_screen import COMMON

FILE = Entry("file", 0o644, 1, b"", 1, 1, 1, 0, 0, 1, 1)
DIRECTORY = FILE._replace(kind="directory", mode=0o755)


def added(path: bytes, entry: Entry = FILE) -> Change:
    return Change(path, "added", None, entry)


def deleted(path: bytes, entry: Entry = FILE) -> Change:
    return Change(path, "deleted", entry, None)


CHANGES = (
    added(b".git/HEAD"),
    added(b".git/config"),
    added(b".git/objects"),
    added(b"a"),
    deleted(b"gone", DIRECTORY),
    deleted(b"gone/1"),
    deleted(b"gone/2"),
    added(b"new", DIRECTORY),
    added(b"new/file"),
)


def test_a_repository_is_one_row_and_its_settings_are_another() -> None:
    items = items_of(CHANGES)
    assert [(item.path, len(item.inside)) for item in items] == [
        (b".git", 2), (b".git/config", 0), (b"a", 0), (b"gone/1", 0), (b"gone/2", 0), (b"new/file", 0),
    ]  # fmt: skip
    assert set(first_choice(items)) == {b"a", b"gone/1", b"gone/2", b"new/file"}


def test_all_that_needs_no_name_is_an_apply_of_everything() -> None:
    items = items_of(CHANGES)
    found = choice_of(items, first_choice(items))
    assert found is not None and found.paths == () and not found.picks
    assert choice_of(items, {}) is None


def test_what_is_named_is_named_with_all_the_rest() -> None:
    items = items_of(CHANGES)
    found = choice_of(items, first_choice(items) | {b".git": WHOLE})
    assert found is not None and found.git
    assert set(found.paths) == {b".git/HEAD", b".git/objects", b"a", b"gone/1", b"gone/2", b"new/file"}


def test_a_choice_when_a_fork_is_looked_at_again() -> None:
    before = items_of((added(b"a"), added(b"b"), added(b"c"), added(b"d")))
    changed = FILE._replace(mtime=2)
    after = items_of((added(b"a", changed), added(b"b"), added(b"c", changed), added(b"d", changed), added(b"e")))
    picks = {b"a": WHOLE, b"b": Pick(frozenset((1,))), b"c": Pick(frozenset((1,)))}
    assert carry_picks(before, after, picks) == {b"a": WHOLE, b"b": Pick(frozenset((1,))), b"e": WHOLE}


def test_choosing_blocks_one_by_one_comes_to_all_and_to_nothing() -> None:
    every = frozenset(range(3))
    pick = None
    for number in every:
        pick = toggle_block(pick, frozenset((number,)), every, has_mode=False)
    assert pick == WHOLE
    for number in every:
        pick = toggle_block(pick, frozenset((number,)), every, has_mode=False)
    assert pick is None
    assert toggle_mode(WHOLE, every) == Pick(None, False)
    assert toggle_mode(None, every) == Pick(frozenset(), True)
    assert mark_of_all(["all", "none"]) == "part" == mark_of_all(["part"]) and mark_of_all([]) == "none"


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n"]), max_size=30).map(b"".join)


@given(LINES, LINES, st.sampled_from(CONTEXTS), st.booleans(), st.frozensets(st.integers(0, 8), max_size=4))
def test_rows_hold_every_changed_line_once_and_in_order(
    old: bytes, new: bytes, context: int, side: bool, cuts: frozenset[int]
) -> None:
    text = text_of(old, new)
    layout = lay_out(FileRows(text=text), context, cuts, side_by_side=side)
    olds = [row.old for row in layout.rows if row.old >= 0]
    news = [row.new for row in layout.rows if row.new >= 0]
    assert olds == sorted(set(olds)) and news == sorted(set(news))
    changed = {line for block in text.blocks for line in range(block.old_start, block.old_end)}
    assert changed <= set(olds) and changed == {r.old for r in layout.rows if r.kind in ("old", "pair")} - {-1}
    assert sorted(number for group in layout.groups for number in group.blocks) == sorted(text.numbers)
    assert select_blocks(old, new, text.numbers) == new, "blocks are numbered as an apply numbers them"
    folded = sum(group.folded for group in layout.groups) + layout.tail
    assert not layout.groups or len(olds) + folded == len(split_lines(old))


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_a_line_is_printable_whatever_is_in_it(old: bytes, new: bytes) -> None:
    text = FileText([old], [new], [Block(0, 1, 0, 1)])
    spans = Marker(text).spans(0, 0, 0)
    for line, marked in ((old, spans[0]), (new, spans[1])):
        assert all(piece.text.isprintable() for piece in pieces(line.replace(b"\n", b""), marked))


def test_words_that_differ() -> None:
    text = text_of(b"a = one + two\nalpha beta\n", b"a = 1 + two\n\tsomething else\n")
    marker = Marker(text)
    assert marker.spans(0, 0, 0) == (((4, 7),), ((4, 5),)) and marker.spans(0, 1, 1) == ((), ())
    assert "".join(piece.text for piece in pieces(b"\tx\ty\n")) == "    x   y"
    assert "".join(piece.text for piece in pieces("ä\u202eb".encode() + b"\xff\r\n")) == "ä\\u{202e}b\\xff\\r"


def test_words_that_differ_in_a_long_block() -> None:
    """Lines of the same place are compared, and only those that are drawn."""
    text = text_of(b"".join(b"a = %d\n" % n for n in range(500)), b"".join(b"b = %d\n" % n for n in range(400)))
    marker = Marker(text)
    assert len(text.blocks) == 1
    assert marker.spans(0, 7, -1) == marker.spans(0, -1, 7) == (((0, 1),), ((0, 1),))
    assert marker.spans(0, 450, -1) == ((), ())


def test_a_line_of_five_megabytes() -> None:
    line = "ä".encode() * 2_500_000
    found = within(10_000, lambda: pieces(line))
    assert found[0].text == "ä" * WIDEST and found[-1].text == f" … {len(line) - 2 * WIDEST:,} more bytes"


def test_a_hundred_thousand_lines() -> None:
    old = b"".join(b"line %d\n" % number for number in range(100_000))
    text = text_of(old, old.replace(b"0\n", b"zero\n"))
    layout = within(10_000_000, lambda: lay_out(FileRows(text=text), CONTEXTS[0], frozenset()))
    assert len(layout.rows) > 60_000


def test_keys_are_there_once() -> None:
    for table in (REVIEW, CONFLICTS):
        names = [name for key in table for name in key.names.split(",")]
        assert len(names) == len(set(names))


def test_what_is_written_can_be_read_in_both_themes() -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1, on the pane, on the row of the cursor, and on a background of its own."""
    found: dict[tuple[str, str, bool], float] = {}

    class Themes(App[None]):
        def compose(self) -> ComposeResult:
            yield Lines([[("x", "")]])

    async def run() -> None:
        app = Themes()
        async with app.run_test() as pilot:
            for theme in ("textual-dark", "textual-light"):
                app.theme = theme
                await pilot.pause()
                pane = app.query_one(Lines)
                for here in (True, False):
                    for name in sorted(Pane.COMPONENT_CLASSES - {"pane--cursor"}):
                        base = pane._style("plain") + (pane._style("cursor") if here else Style())
                        found[theme, name, here] = contrast(base + pane._style(name.removeprefix("pane--")))

    asyncio.run(run())
    assert {where: ratio for where, ratio in found.items() if ratio < 4.5} == {}


def contrast(style: Style) -> float:
    assert style.color is not None and style.bgcolor is not None
    light, dark = sorted((luminance(style.color), luminance(style.bgcolor)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: Color) -> float:
    """Relative, as WCAG 2.2 defines it."""
    assert color.triplet is not None
    parts = [one / 255 for one in color.triplet]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("screen", "keys"), [(ReviewScreen, REVIEW), (ConflictScreen, CONFLICTS)])
def test_every_key_does_something(screen: type[Screen[Any]], keys: tuple[Key, ...]) -> None:
    for key in keys:
        assert hasattr(screen, "action_" + parse(key.action)[1]), key


def test_every_action_of_the_review_has_a_key() -> None:
    actions = [parse(key.action) for key in REVIEW]
    assert {name for _namespace, name, _arguments in actions} == {"do"}
    assert {arguments[0] for _namespace, _name, arguments in actions} == {*COMMON, *AT_ONCE, *ONE_AT_A_TIME}
    assert len(COMMON) + len(AT_ONCE) + len(ONE_AT_A_TIME) == len({*COMMON, *AT_ONCE, *ONE_AT_A_TIME})


def test_ignored_rows_are_together_at_the_end_and_folded() -> None:
    items = items_of([added(b"build/a"), added(b"src/a"), added(b"src/b.pyc"), added(b"z")])

    def ignored(item: Item) -> bool:
        return item.path in (b"build/a", b"src/b.pyc")

    rows = rows_of(items, frozenset({IGNORED}), ignored)
    assert [title_of(row) if row.item is None else row.item.path for row in rows] == [
        "src/",
        b"src/a",
        b"z",
        "ignored by git",
    ]
    assert [item.path for item in rows[-1].members] == [b"build/a", b"src/b.pyc"]
    unfolded = rows_of(items, frozenset(), ignored)
    assert [row.item.path for row in unfolded[-2:] if row.item is not None] == [b"build/a", b"src/b.pyc"]
    assert len(rows_of(items[:1], frozenset({IGNORED}), ignored)) == 2, "nothing else is listed: as ever"
