"""Calls into the kernel per file of an apply, an undo and a redo, by what happens to the file.

Of two applies that differ in their number of files, so that what each apply costs by itself is not in it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Place
from kernel_calls import counted
from mudroom.sandbox.client.client import Client

pytestmark = pytest.mark.both_users

FEW, MANY = 100, 300
DEEP = "src/main/org/part{}"
"""Directories that lie as deep as in many projects: each on the way costs an ordinary user calls of its own."""

BUDGETS = {
    "modified": ("for f in src/main/org/*/f*; do echo more >> $f; done", 22, 12, 12),
    "new": ("for f in src/main/org/*/f*; do echo new > $f.new; done", 12, 7, 7),
    "deleted": ("rm src/main/org/*/f*", 9, 7, 7),
    "mode": ("chmod 755 src/main/org/*/f*", 12, 11, 11),
    "in a new directory": ("cp -r src/main/org new", 6, 3, 3),
}
"""The command, and the calls per file of apply, undo and redo. A modified file costs four for the form of the file that
it replaces; one in a new directory two, because it must have its reviewed mode and no access control list."""


def calls_of(place: Place, files: int, script: str) -> list[int]:
    for number in range(files):
        place.write(f"{DEEP.format(number % 4)}/f{number}", f"{number}\n" * 9)
    session, result = place.sh(script)
    numbers = []
    for work in (lambda: session.changes.apply(result.fork), session.changes.undo, session.changes.redo):
        with counted() as calls:
            landed = work()
        assert not landed.conflicts
        numbers.append(sum(calls.values()))
    session.close()
    return numbers


@pytest.mark.parametrize("kind", BUDGETS)
def test_what_a_file_costs(tmp_path: Path, client: Client, kind: str) -> None:
    script, *budget = BUDGETS[kind]
    for name in ("warm", "few", "many"):
        (tmp_path / name).mkdir()
    calls_of(Place(tmp_path / "warm", client), 2, script)  # what is imported at first use
    few = calls_of(Place(tmp_path / "few", client), FEW, script)
    many = calls_of(Place(tmp_path / "many", client), MANY, script)
    per_file = [(more - less) / (MANY - FEW) for less, more in zip(few, many, strict=True)]
    assert all(one <= most for one, most in zip(per_file, budget, strict=True)), f"{per_file}, allowed {budget}"
