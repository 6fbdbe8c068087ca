"""Pytest plugin of ``dev/wine``: skip the tests of ``tests/stage`` and ``tests/vault`` that a Windows cannot run.

``tests/ext/windows/left_out.toml`` names them with their reasons. A test that is renamed or made anew runs until it is
there.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def read_table() -> dict[str, str]:
    """Return the reason of each test, as ``FILE::FUNCTION``, and of each whole module."""
    rows = tomllib.loads((TESTS / "ext/windows/left_out.toml").read_text())["left"]
    return {name: row["reason"] for row in rows for name in (*row.get("tests", ()), *row.get("modules", ()))}


LEFT = read_table() if sys.platform == "win32" else {}


def name_of(path: Path) -> str:
    return path.as_posix().removeprefix(f"{TESTS.as_posix()}/")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if name_of(collection_path) in LEFT else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items if LEFT else ():
        name = f"{name_of(item.path)}::{getattr(item, 'originalname', item.name)}"
        if name in LEFT:
            item.add_marker(pytest.mark.skip(reason=f"left out on Windows: {LEFT[name]}"))
