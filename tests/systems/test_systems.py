"""The model story on all sorts of file systems (``story.py``, ``file_systems.py``): alone, beside a crowd, with a clock
that is set, on full disks, with kills, and with hundreds of checkpoints. ``dev/systems`` plays all of it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from file_systems import Cell, FileSystem, Missing, Where, Who, by_name, cells, play, run_story, unexpected
from systems_document import DOCUMENT, document
from tiers import SEED

ME: Who = "root" if os.geteuid() == 0 else "user"
STORM = int(os.environ.get("MUDROOM_KILLS", "4"))
"""Rounds of a kill storm, of six kills each."""
FILL = ("--filler", "TARGET/fill")
OTHERS: tuple[tuple[str, Where, tuple[str, ...]], ...] = (
    ("overlayfs", "project", ("--kills", str(STORM))),
    ("overlayfs", "both", ("--kills", str(STORM))),
    ("bindfs", "both", ("--kills", str(STORM))),
    ("ext4, small inodes", "both", ("--kills", str(STORM))),
    ("tmpfs", "both", ("--kills", str(STORM), "--full", "bytes", *FILL)),
    ("tmpfs", "project", ("--full", "bytes", *FILL)),
    ("tmpfs", "state", ("--full", "bytes", *FILL)),
    ("ext4", "both", ("--full", "bytes", *FILL)),
    ("ext4", "both", ("--full", "inodes", *FILL)),
    ("overlayfs", "project", ("--clock",)),
    ("bindfs", "both", ("--clock",)),
    ("ext4, small inodes", "both", ("--clock",)),
    ("ext4", "both", ("--crowd",)),
    ("overlayfs", "both", ("--crowd",)),
    ("overlayfs", "project", ("--checkpoints", "300")),
    ("overlayfs", "both", ("--checkpoints", "300")),
    ("tmpfs", "both", ("--checkpoints", "300")),
)
"""Stories that are more than the plain one, by file system and place."""


def test_the_document_is_of_this_table() -> None:
    assert DOCUMENT.read_text() == document(), "run: python tests/systems/systems_document.py"


@pytest.mark.deep
@pytest.mark.slow
def test_a_story(tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in ("project", "state", "home", "model")]
    outcome = run_story(places, user=False)
    assert (outcome.result, outcome.text) == ("works", ""), outcome


def check(system: FileSystem, where: Where, cell: Cell, who: Who, *options: str) -> None:
    try:
        outcome = play(system, where, who, "--seed", SEED, *options)
    except Missing as error:
        kind = re.sub(r"\W+", "_", system.name)
        pytest.skip(f"{kind} cannot be mounted here: {error}")
    sys.stdout.write(f"{outcome.figures}\n")
    assert not unexpected(cell, outcome), outcome


def name_of(value: object) -> str:
    if isinstance(value, tuple) and not isinstance(value, FileSystem | Cell):
        return str(value[0])
    return value.name if isinstance(value, FileSystem) else value if isinstance(value, str) else ""


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.both_users
@pytest.mark.parametrize(
    ("who", "system", "where", "cell"),
    [(who, *row) for who in ("root", "user") if who == "user" or ME == "root" for row in cells(who)],
    ids=name_of,
)
def test_the_story_on(who: Who, system: FileSystem, where: Where, cell: Cell) -> None:
    check(system, where, cell, who)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.limit(900)
@pytest.mark.skipif(ME != "root", reason="mounting file systems needs root")
@pytest.mark.parametrize(("name", "where", "options"), OTHERS, ids=name_of)
def test_another_story_on(name: str, where: Where, options: tuple[str, ...]) -> None:
    system = by_name(name)
    cell = system.cells[("project", "state", "both").index(where)]
    if options[0] == "--checkpoints":
        cell = cell._replace(says=(), may_say=(*cell.says, *cell.may_say))
    check(system, where, cell, "root", *options)
