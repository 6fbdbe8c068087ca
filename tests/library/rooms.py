"""Rooms of the library for tests: a project, a home and a state directory of their own. No test is here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import mudroom
from clocks import give_way
from conftest import Place

if TYPE_CHECKING:
    from mudroom.library.question import Ask

PATIENCE = 60.0
LONG = str(7_000_000 + os.getpid())
"""Seconds that only the commands of this process sleep, by which they are found."""


def environ_of(place: Place, **more: str) -> dict[str, str]:
    own = {"HOME": str(place.home), "MUDROOM_STATE": str(place.state), "LC_ALL": "C.UTF-8"}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **own, **more}


def open_room(place: Place, *, agent: str | None = None, ask: Ask | None = None) -> mudroom.Room:
    return mudroom.open(place.project, agent=agent, ask=ask, environ=environ_of(place))


def policy(place: Place, text: str) -> None:
    """Write a policy of the user's own, which is trusted."""
    path = place.home / ".config/mudroom/policy.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def until(condition: Callable[[], object]) -> None:
    """Wait until something holds, looking at it again and again."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        give_way()


def processes_with(word: str) -> list[str]:
    """Return the pids of processes with this word in their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as stream:
                    words = stream.read().split(b"\0")
            except OSError:
                continue  # it has ended
            if word.encode() in words:
                found.append(name)
    return found
