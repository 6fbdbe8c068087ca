"""The document of the library: each block is run, in order, in one program."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mudroom
from conftest import Place
from mudroom.core.registry import part_or_none
from rooms import environ_of
from tiers import each

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/LIBRARY.md").read_text()


OF_A_SATELLITE = {
    "Try a task several times": "attempts",
    "Send forks elsewhere, and take them in": "archives",
    "Give a model tools": "tools",
}
"""A section, and its row of the registry."""


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def installed(text: str) -> str:
    """Return the page without the sections whose satellite is absent."""
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    rows = {section: OF_A_SATELLITE.get(section.partition("\n")[0].removeprefix("## ")) for section in sections}
    assert len(list(filter(None, rows.values()))) == len(OF_A_SATELLITE)
    return "".join(section for section, row in rows.items() if row is None or part_or_none("call", row) is not None)


@pytest.mark.slow
def test_every_block_runs(place: Place) -> None:
    place.write("Makefile", "test:\n\t@echo tested\n")
    place.write("README.md", "# proj\n")
    place.write("src/x", "")
    program = "".join(f"\n# block {number}\n{block}" for number, block in enumerate(blocks(installed(PAGE)), 1))
    place.project.rename(place.root / "proj")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=place.root, env=environ_of(place), capture_output=True, text=True, check=False, timeout=80,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert len(blocks(PAGE)) > 10


def test_every_public_name_is_in_the_document() -> None:
    decision = (ROOT / "docs/decisions/0050-what-of-the-library-is-public.md").read_text()
    assert f"{len(mudroom.__all__)} names" in decision
    handles = {"Room": "room", "AsyncRoom": "aopen", "ForkHandle": "fork", "AsyncForkHandle": "aopen"}
    others = {"ChangedFile": "changes", "OutputChunk": "chunk", "Question": "question", "Applied": "applied"}
    for name in mudroom.__all__:
        assert (handles | others).get(name, name) in PAGE, name


@pytest.mark.parametrize("kind", [mudroom.Room, mudroom.ForkHandle, mudroom.RunResult], ids=lambda kind: kind.__name__)
def test_every_method_and_field_is_in_the_document(kind: type) -> None:
    names = [name for name in dir(kind) if not name.startswith("_") and name not in dir(tuple)]
    missing = [name for name in names if not re.search(rf"\b{name}\b", PAGE)]
    assert set(missing) <= {"command", "fork"}, missing


@each("name", [name for name in mudroom.__all__ if name != "errors"])
def test_no_public_signature_has_any_in_it(name: str) -> None:
    """These tests themselves are checked by mypy --strict, which sees the names through ``py.typed``."""
    found = getattr(mudroom, name)
    functions = [found] if inspect.isfunction(found) else [vars(found)[each] for each in vars(found) if each[0] != "_"]
    annotations = [str(text) for function in functions for text in getattr(function, "__annotations__", {}).values()]
    annotations += map(str, getattr(found, "__annotations__", {}).values())
    assert [text for text in annotations if re.search(r"\bAny\b", text)] == []
    assert (ROOT / "src/mudroom/py.typed").exists()
