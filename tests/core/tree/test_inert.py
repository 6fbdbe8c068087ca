"""Which changed files may land without a question."""

from __future__ import annotations

import pytest

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.inert import ending_of, is_inert
from mudroom.core.tree.path import name, parent
from mudroom.core.tree.runs_later import runs_later
from mudroom.typing import Any
from tiers import each

PROJECT = b"main.py src/a.py src/web/app.ts tests/data/a.json README .hidden/a.py src/deep/notes.txt".split()
FILE, LINK = "file", "symlink"


def _entry(kind: Any) -> Entry:
    return Entry(kind, 0o644, 1, b"", 0, 1, 1, 0, 0, 0, 0)


def _endings(directory: bytes) -> frozenset[bytes]:
    return frozenset(ending_of(name(path)) for path in PROJECT if parent(path) == directory)


@each(
    "path",
    [
        "README.md", "docs/new/a.rst", "LICENSE", "a/data.csv", "logo.png", "src/b.py", "src/new/c.py",
        "src/deep/d.py", "tests/data/x/b.json", "main.py", "sub/.gitkeep", "SRC/A.TXT", "src/web/B.TS",
    ],
)  # fmt: skip
def test_inert(path: str) -> None:
    base = _entry(FILE) if path.encode() in PROJECT else None
    assert is_inert(Change(path.encode(), "added", base, _entry(FILE)), _endings)


@each(
    "path",
    [
        "new.py", "lib/new.py", "a.json", "src/a.json", "config", "run", "a.xyz", ".foo", ".foo/a.txt", "src/.x/a.py",
        ".hidden/b.py", "src/a.rb", "x.md.exe", "a.", "b.json5", ".md", ".gitkeep2",
    ],
)  # fmt: skip
def test_not_known_to_be_inert(path: str) -> None:
    assert not is_inert(Change(path.encode(), "added", None, _entry(FILE)), _endings)


def test_links_ask_and_directories_do_not() -> None:
    assert not is_inert(Change(b"a.txt", "added", None, _entry(LINK)), _endings)
    assert not is_inert(Change(b"src/a.py", "modified", _entry(LINK), _entry(FILE)), lambda _path: frozenset())
    assert is_inert(Change(b"build", "added", None, _entry("directory")), _endings)


@pytest.mark.parametrize("path", ["a.md", "src/a.txt", "src/b.py"])
def test_no_file_is_inert_that_runs_later_by_the_same_name(path: str) -> None:
    assert runs_later(path.encode()) == ""
