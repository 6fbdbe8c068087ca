"""Read the tables in ``src/mudroom/data``, and nothing else: the only file access in ``core`` outside ``core/system``.

A table is text in UTF-8. A row is a line, joined with the indented lines below it; ``#`` begins a comment. The head of
a table says what its columns are.
"""

from __future__ import annotations

import os

_DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "data")


def read_table(name: str) -> list[str]:
    """Return the rows of ``data/NAME.txt``."""
    with open(os.path.join(_DATA, f"{name}.txt"), encoding="utf-8") as file:
        rows = file.read().replace("\n    ", "     ").split("\n")  # of one length, so that it is done in place
    return [row for row in rows if row and row[0] != "#"]


def table_files() -> list[str]:
    """Return the paths of all tables."""
    return [os.path.join(_DATA, name) for name in os.listdir(_DATA)]
