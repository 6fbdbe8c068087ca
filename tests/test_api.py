"""``mudroom.api``: every name is there, in both lists, and none is loaded before its use."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom import api
from tiers import each

NAMES = {name: f"mudroom.{place}" for place, names in api.PLACES.items() for name in names}


@each("name", NAMES)
def test_a_name_is_that_of_its_module(name: str) -> None:
    __import__(NAMES[name])
    assert getattr(api, name) is getattr(sys.modules[NAMES[name]], name)
    assert name in dir(api)


def test_a_type_checker_reads_the_same_names() -> None:
    tree = ast.parse(Path(api.__file__).read_text())
    read = {
        alias.asname: node.module
        for top in tree.body
        if isinstance(top, ast.If)
        for node in top.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert read == NAMES
    assert all(place.split(".")[1] != "ext" for place in NAMES.values())


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Sesion'"):
        _ = api.Sesion


def test_the_import_loads_nothing_else() -> None:
    program = "import sys; import mudroom.api; print(*(name for name in sys.modules if name.startswith('mudroom')))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"mudroom", "mudroom.api", "mudroom.typing"}
