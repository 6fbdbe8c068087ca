"""Pytest plugin of ``dev/wine``: the tests of ``tests/stage`` and ``tests/vault`` that a Windows cannot run.

``tests/ext/windows/left_out.toml`` names each of them with its reason. Modules that name what Windows lacks at their
top are not imported. ``tests/ext/windows/anywhere/test_left_out.py`` counts the names and looks whether each is a test,
so a test that is renamed or made anew runs until somebody writes it there.

    [[left]]
    reason = "links"              # what the tests need
    number = 2                    # how many names there are
    tests = ["stage/test_beneath.py::test_no_link_is_followed"]
    modules = ["stage/test_hand_over.py"]
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent
TABLE = TESTS / "ext" / "windows" / "left_out.toml"


class Left(NamedTuple):
    reason: str
    number: int
    tests: list[str]
    modules: list[str]


def read_table() -> list[Left]:
    rows = tomllib.loads(TABLE.read_text())["left"]
    return [Left(row["reason"], row["number"], row.get("tests", []), row.get("modules", [])) for row in rows]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if sys.platform != "win32" or not collection_path.is_relative_to(TESTS):
        return None
    name = collection_path.relative_to(TESTS).as_posix()
    return True if any(name in row.modules for row in read_table()) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if sys.platform != "win32":
        return
    reasons = {name: row.reason for row in read_table() for name in row.tests}
    for item in (item for item in items if item.path.is_relative_to(TESTS)):
        function = getattr(item, "originalname", item.name)
        reason = reasons.get(f"{item.path.relative_to(TESTS).as_posix()}::{function}")
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"left out on Windows: {reason}"))
