"""``mudroom acp`` between a played editor and a played agent, started by a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from editor import Editor

from conftest import Place

FORK = Path(os.path.realpath("/proc/self/exe")).name
"""The fork of the scripted agent: no profile knows its program."""
Start = Callable[..., Editor]


@pytest.fixture
def start(place: Place) -> Iterator[Start]:
    """Return a function that starts an editor with its agent."""
    editors: list[Editor] = []

    def begin(*options: str, **more: Any) -> Editor:
        editors.append(Editor(place, *options, **more))
        return editors[-1]

    yield begin
    for editor in editors:
        editor.__exit__()


both = pytest.mark.parametrize("options", [(), ("--outside",)], ids=["inside", "outside"])


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def processes_of(place: Place) -> list[int]:
    """Return the pids of processes that name this place."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(place.root) in path.read_bytes() and runs(int(path.parent.name)):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
