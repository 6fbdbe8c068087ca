"""The tables in ``src/mudroom/data``: a row over several lines is one row, and each table has one reader."""

from __future__ import annotations

from pathlib import Path

import pytest

import mudroom
from mudroom.core.text import table
from mudroom.core.text.table import read_table
from tiers import each

PACKAGE = Path(mudroom.__file__).parent
TABLES = sorted(path.stem for path in (PACKAGE / "data").iterdir())


def test_a_row_goes_on_in_indented_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.txt").write_bytes("# head\n#   more\n\na: 1\r\n    2\n    # 3\nb é: 4".encode())
    monkeypatch.setattr(table, "_DATA", str(tmp_path))
    assert [row.split() for row in read_table("x")] == [["a:", "1", "2", "#", "3"], ["b", "é:", "4"]]


@each("name", TABLES)
def test_a_table_has_a_head_and_one_reader(name: str) -> None:
    text = (PACKAGE / f"data/{name}.txt").read_text()
    assert text.startswith("# ") and text.endswith("\n") and not text.endswith("\n\n")
    assert all(line == line.rstrip() and "\t" not in line for line in text.splitlines())
    readers = [
        path.name
        for path in PACKAGE.rglob("*.py")
        if "import read_table" in (source := path.read_text()) and f'"{name}"' in source
    ]
    assert len(readers) == 1, readers
    assert read_table(name)
