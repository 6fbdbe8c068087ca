"""A review on a terminal of 40 columns: nothing of a dialog is cut off, and the keys that matter are in sight."""

from __future__ import annotations

import pytest

from tiers import each

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive
from rich.cells import cell_len

from conftest import Place
from mudroom.ext.tui.dialog import TextDialog, broken, help_for
from mudroom.ext.tui.key import CONFLICTS, REVIEW, brief
from mudroom.ext.tui.pane import Pieces

TEXTS = (
    "", "word", "several words that are longer than a line", "a" * 200, "  indented " + "b" * 90 + " and more",
    "汉字" * 40, "x \u0301" * 30, "   ", "C conflicts, and stays in the fork:",
)  # fmt: skip


def text_of(row: Pieces) -> str:
    return "".join(text for text, _style in row)


@each("cells", [-3, 0, 1, 2, 8, 31, 80])
def test_a_broken_row_holds_all_of_its_text(cells: int) -> None:
    for text in TEXTS:
        for row in ([(text, "warn")], [("label   ", "head"), (text, "")]):
            lines = broken(row, cells)
            whole = "".join(text_of(line) for line in lines).replace(" ", "")
            assert whole == text_of(row).replace(" ", ""), (cells, row)
            # narrower than a wide character beside its indentation: one character a line, and an end
            assert all(cell_len(text_of(line)) <= max(cells, 4) for line in lines), (cells, lines)
            assert len(lines) <= max(len(text_of(row)), 1)
            assert {style for line in lines for part, style in line if part.strip()} <= {style for _text, style in row}


def test_what_goes_on_stands_below_its_text() -> None:
    assert [text_of(line) for line in broken([("Tab     ", "head"), ("from the list to it", "")], 20)] == [
        "Tab     from the",
        "        list to it",
    ]
    assert [text_of(line) for line in broken([("  two words", "")], 10)] == ["  two", "    words"]


def test_what_matters_is_at_the_beginning_of_the_keys() -> None:
    assert brief(REVIEW)[:38] == " ? help  q quit  a apply  Space choose"
    assert brief(CONFLICTS)[:17] == " ? help  Esc back"


def test_a_dialog_on_a_narrow_terminal_is_not_cut(place: Place) -> None:
    place.write("a", "1\n")
    _session, result = place.sh("echo 2 > a")

    async def look(driver: Driver) -> None:
        await driver.ask("question_mark", "Keys of the review")
        screen = driver.app.screen
        assert isinstance(screen, TextDialog)
        await driver.until(lambda: screen.lines.count > len(help_for(REVIEW, "", legend=True).lines._rows))
        lines = [text_of(screen.lines.row(number, 0)) for number in range(screen.lines.count)]
        assert max(map(cell_len, lines)) <= screen.lines.size.width
        await driver.press("escape")
        await driver.ask("a", "Apply to")

    drive(place, result.fork, look, size=(40, 15))
