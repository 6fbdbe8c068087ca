"""Each kind of metadata through a run, an apply and an undo: docs/evidence/METADATA.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from metadata_table import DOCUMENT, FUNCTIONS, ROWS, document
from mudroom.core.settings import Settings
from tiers import daily

SHELL = f"PYTHON={sys.executable}\n{FUNCTIONS}"

pytestmark = [pytest.mark.both_users, pytest.mark.root]


def seen(project: Path) -> dict[str, str]:
    looks = "\n".join(f"(cd r{number}\n{row.look}\n); printf '\\0'" for number, row in enumerate(ROWS))
    done = subprocess.run(["sh", "-c", SHELL + looks], cwd=project, capture_output=True, text=True, check=False)
    texts = done.stdout.split("\0")
    return {row.what: text.strip() for row, text in zip(ROWS, texts, strict=False)}


def told(result: Any) -> dict[str, str]:
    """All words about each row: of its changes and of its remarks."""
    words: dict[str, list[str]] = {row.what: [] for row in ROWS}
    for change in result.changeset.changes:
        words[what_of(change.path)] += [change.verb, *change.flags]
    for remark in result.changeset.remarks:
        words[what_of(remark.path)].append(remark.text)
    return {what: " ".join(found) for what, found in words.items()}


def what_of(path: bytes) -> str:
    return ROWS[int(path.split(b"/")[0][1:])].what


@pytest.mark.parametrize("view", ["overlay", *daily(["copy", "checkpoint", "without namespaces"])])
def test_each_row(place: Place, view: str) -> None:
    for number, _row in enumerate(ROWS):
        os.setxattr(place.write(f"r{number}/f", f"{number}\n"), "user.old", b"1")
        place.write(f"r{number}/d/a", "a\n")
        (place.project / f"r{number}/l").symlink_to("f")
    before = seen(place.project)
    level = 0 if view == "without namespaces" else 1
    session = place.session(Settings(view="copy" if view == "copy" or not level else "overlay", level=level))
    script = "\n".join(
        f"(cd r{number} && {{ {row.script}\n}} 2> /dev/null) || echo 'failed: {row.what}'\n"
        f"(cd r{number} && {{ {row.look}\n}} 2> /dev/null); printf '\\0'"
        for number, row in enumerate(ROWS)
    )
    result = session.run([b"sh", b"-c", (SHELL + script).encode()], fork="f")
    assert b"failed" not in result.stdout, result.stdout
    inside = dict(zip((row.what for row in ROWS), result.stdout.decode().split("\0"), strict=False))
    said = told(result)
    if view == "checkpoint":
        session.forks.checkpoint("f", "point")
    assert {
        row.what: said[row.what]
        for row in ROWS
        if row.shown not in said[row.what] or bool(row.shown) != bool(said[row.what])
    } == {}
    assert session.changes.apply("f").conflicts == ()
    expected = {
        row.what: row.found or (inside[row.what].strip() if row.lands == "yes" else before[row.what]) for row in ROWS
    }
    landed = seen(place.project)
    for row in ROWS if view != "overlay" else ():
        if row.copied:
            assert landed[row.what] != inside[row.what].strip()
            expected[row.what] = landed[row.what] if row.found_copied is None else row.found_copied
    assert landed == expected
    for _turn in range(2):
        assert session.changes.undo().conflicts == ()
        assert seen(place.project) == before
        assert session.changes.redo().conflicts == ()
        assert seen(place.project) == landed


def test_the_document_is_the_table() -> None:
    assert DOCUMENT.read_text() == document(), "python tests/metadata_table.py writes it"
