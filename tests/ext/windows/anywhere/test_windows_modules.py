"""The list of files that a Windows Python cannot import, as far as any system can check it."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
TABLE = tomllib.loads((ROOT / "tests/ext/windows/modules.toml").read_text())


def test_each_file_of_the_list_exists_and_has_a_reason() -> None:
    rows = {**TABLE["open"], **TABLE["elsewhere"]}
    assert all((ROOT / "src/mudroom" / file).is_file() for file in rows)
    assert all(rows.values())


def test_a_session_needs_none_of_them() -> None:
    assert TABLE["open"] == {}


def test_the_document_tells_their_number() -> None:
    assert f"lists the {len(TABLE['elsewhere'])} files" in (ROOT / "docs/WINDOWS.md").read_text()
