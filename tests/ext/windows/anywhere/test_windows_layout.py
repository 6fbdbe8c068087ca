"""Structures and constants against the headers of mingw-w64 (recorded by dev/windows-layout)."""

from __future__ import annotations

import ctypes
from pathlib import Path

from mudroom.ext.windows.win32 import types
from tiers import each

ROWS = [
    line.split()
    for line in (Path(__file__).parents[1] / "windows_layout.txt").read_text().splitlines()
    if not line.startswith("#")
]
STRUCTURES = {one.__name__: one for one in types.STRUCTURES}


def ours(name: str) -> int:
    structure, _, field = name.partition(".")
    if field:
        return int(getattr(STRUCTURES[structure], field).offset)
    if name in STRUCTURES:
        return ctypes.sizeof(STRUCTURES[name])
    return int(types.ENUM[name] if name in types.ENUM else getattr(types, name))


@each(("name", "value"), ROWS)
def test_as_in_the_headers(name: str, value: str) -> None:
    assert ours(name) == int(value)


def test_everything_is_in_the_table() -> None:
    named = {row[0] for row in ROWS}
    constants = {name for name, value in vars(types).items() if isinstance(value, int) and name.isupper()}
    assert constants | set(types.ENUM) | set(STRUCTURES) <= named


def test_nothing_is_without_a_source() -> None:
    assert [row[0] for row in ROWS if row[1] == "absent"] == []
