"""The list of the tests that ``dev/wine`` leaves out is one of tests that there are, and as long as it says."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from left_out import TESTS, Left, read_table


def functions(module: str) -> set[str]:
    tree = ast.parse((TESTS / module).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("row", read_table(), ids=lambda row: row.reason)
def test_each_name_is_one_of_a_test(row: Left) -> None:
    assert len(row.tests) + len(row.modules) == row.number
    assert row.tests == sorted(row.tests) and row.modules == sorted(row.modules)
    for name in row.tests:
        module, _colons, function = name.partition("::")
        assert function in functions(module), name
    for module in row.modules:
        assert functions(module), module


def test_each_is_left_out_for_one_reason() -> None:
    named = Counter(name for row in read_table() for name in (*row.tests, *row.modules))
    assert [name for name, count in named.items() if count > 1] == []
    assert [name for name in named if name.partition("::")[0] in named and "::" in name] == []
    assert all(name.startswith(("stage/", "vault/")) for name in named)
