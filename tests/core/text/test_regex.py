"""Regular expressions that are compiled at first use: each of them is valid."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from house import ROOT
from mudroom.core.text.regex import regex
from tiers import each

SOURCE = ROOT / "src"


def holders() -> list[str]:
    """Return the modules that have such expressions."""
    return [_name(path) for path in sorted(SOURCE.rglob("*.py")) if "import regex\n" in path.read_text()]


def _name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def expressions(value: object) -> list[object]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else [value]
    return [item for item in inner if type(item) is type(regex(""))]


def test_an_expression_behaves_as_compiled() -> None:
    for lazy, known in ((regex(r"(?i)a(b+)"), re.compile(r"(?i)a(b+)")),):
        assert lazy.fullmatch("ABB") is not None
        assert lazy.sub(r"<\1>", "xabby") == known.sub(r"<\1>", "xabby") == "x<bb>y"
        assert (lazy.pattern, lazy.flags, lazy.groups) == (known.pattern, known.flags, known.groups)
        assert [match.span() for match in lazy.finditer("ab abb")] == [(0, 2), (3, 6)]
    with pytest.raises(AttributeError):
        regex("").nothing  # type: ignore[attr-defined]  # noqa: B018


@each("name", holders())
def test_every_expression_is_valid(name: str) -> None:
    held = [lazy for value in vars(importlib.import_module(name)).values() for lazy in expressions(value)]
    assert held
    for lazy in held:
        assert isinstance(lazy.pattern, (str, bytes))  # type: ignore[attr-defined]


def test_modules_of_the_core_compile_none_by_themselves() -> None:
    for path in sorted((SOURCE / "mudroom" / "core").rglob("*.py")):
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                assert "re.compile(" not in ast.unparse(statement.value), path
