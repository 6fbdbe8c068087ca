"""Every ink of the page can be read on every paper that it is put on, light and dark.

WCAG 2.2, 1.4.3 (text, 4.5 to 1) and 1.4.11 (edges of controls, 3 to 1); the ratio is its "contrast ratio" definition.
"""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import product

import pytest

PAGE = files("mudroom.ext.web") / "page"
STYLE = (PAGE / "style.css").read_text()
COLOURS = {
    name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{3,6}), (#[0-9a-f]{3,6})\)", STYLE)
}
PLAIN = ("paper", "panel", "hover", "chosen")
LINES = ("panel", "added", "removed", "added-strong", "removed-strong")
CODE = ("word", "text", "number", "name", "type", "note")
PAIRS = [
    *product(("ink", "dim", "accent", "added-ink", "removed-ink", "danger", "warn"), PLAIN),
    *product(("ink", *("code-" + one for one in CODE)), LINES),
    *product(("dim",), ("added", "removed")),
    ("added-ink", "added"), ("removed-ink", "removed"), ("accent-ink", "accent"), ("danger-ink", "danger"),
    ("safe", "safe-paper"), ("open", "open-paper"), ("warn", "warn-paper"), ("ink", "warn-paper"), ("panel", "focus"),
]  # fmt: skip
EDGES = [*product(("edge", "focus"), PLAIN)]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("pairs, least", [(PAIRS, 4.5), (EDGES, 3.0)], ids=["text", "edges"])
def test_inks_can_be_read_on_their_papers(theme: int, pairs: list[tuple[str, str]], least: float) -> None:
    ratios = {(ink, paper): contrast(COLOURS[ink][theme], COLOURS[paper][theme]) for ink, paper in pairs}
    assert {pair: round(ratio, 2) for pair, ratio in ratios.items() if ratio < least} == {}


def test_the_measure_is_right() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)


def test_colours_are_said_in_one_place() -> None:
    for file in PAGE.iterdir():
        if file.name.endswith(".css"):
            text = re.sub(r"(?s)/\*.*?\*/|:root \{.*?\n\}", "", file.read_text())
            assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?![^{]*\{)|\b(?:rgba?|hsla?|oklch)\(", text) == [], file.name
            used = set(re.findall(r"var\(--([\w-]+)", file.read_text()))
            local = set(re.findall(r"--([\w-]+):", file.read_text() + STYLE))
            assert used <= local, file.name
