"""What the kernel is offered as level 2."""

from __future__ import annotations

from mudroom.core.registry import part
from mudroom.ext.containers import level
from mudroom.ext.containers.engine.box import ContainedLauncher
from mudroom.session.confinement.level_two import LevelTwo, level_two

OFFERED: LevelTwo = level
"""A type checker compares the two."""


def test_it_is_found_by_its_row() -> None:
    assert level_two() is part("level", "2", "level 2") is OFFERED


def test_no_program_is_started_in_a_container() -> None:
    """Its path may lead there to a file that a command has written."""
    assert ContainedLauncher.is_local is False
