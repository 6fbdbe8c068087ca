"""The table of protections: whole, as the document has it, and true where the code can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom.core.confinement.protection import PROTECTIONS, WAYS, Protection, document, rows

ROOT = Path(__file__).parents[3]


def test_the_document_is_made_from_it() -> None:
    text = (ROOT / "docs/evidence/PROTECTIONS.md").read_text()
    assert text == document(), "python -m mudroom doctor --table >docs/evidence/PROTECTIONS.md"


@pytest.mark.parametrize("one", PROTECTIONS, ids=lambda one: one.name)
def test_every_way_says_what_it_does(one: Protection) -> None:
    assert set(one.by) == set(WAYS)
    assert set(one.tested) <= set(WAYS)
    assert all(text and "|" not in text and "\n" not in text for text in (*one.by.values(), *one.tested.values()))


def test_nothing_is_said_to_be_tried_where_it_was_not() -> None:
    for name, level, platform, _by, tested in rows():
        if platform in ("macOS", "Windows", "an engine in a virtual machine"):
            assert tested.startswith("never"), (name, level, platform)
    assert len(list(rows())) == len(PROTECTIONS) * len(WAYS)
