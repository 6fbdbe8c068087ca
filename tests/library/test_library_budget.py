"""Budgets of the library: what it loads, and what a warm call does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from conftest import Place
from rooms import environ_of, open_room

PROGRAM = """
import sys
before = set(sys.modules)
import mudroom
print(*sorted(set(sys.modules) - before))
room = mudroom.open(sys.argv[1])
print(*sorted(set(sys.modules) - before))
room.run(["true"])
print(*sorted(set(sys.modules) - before))
room.close()
"""
OF_PYTHON = frozenset(
    (
        "__future__", "_blake2", "_collections", "_ctypes", "_functools", "_operator", "_signal", "_socket", "_struct",
        "_weakrefset", "atexit", "collections", "collections.abc", "contextlib", "copyreg", "ctypes", "ctypes._endian",
        "errno", "fcntl", "functools", "itertools", "keyword", "operator", "reprlib", "resource", "select", "struct",
        "threading", "types", "weakref",
    )
)  # fmt: skip
"""All modules of the standard library that ``mudroom.open`` loads: no ``asyncio``, ``typing``, ``re``, ``enum``,
``json``, ``dataclasses``, ``pathlib`` or ``inspect``. A first command adds those of the journal."""
OF_A_COMMAND = frozenset(("_json", "_sha2", "_sha256", "_sqlite3", "resource", "unicodedata"))
MOST_OWN = 143
"""mudroom's own modules that ``mudroom.open`` loads, packages included; a cold ``mudroom run`` loads about 170."""


@pytest.mark.parametrize("name", ["project", "key-server"])
def test_what_the_library_loads(place: Place, name: str) -> None:
    """Also in a project whose path reads like the option for a secret."""
    project = place.project.parent / name
    project.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, str(project)],
        env=environ_of(place), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    imported, opened, ran = (set(line.split()) for line in done.stdout.splitlines())
    assert imported == {"mudroom"}, "import mudroom loads nothing else"
    assert {name for name in opened if not name.startswith(("mudroom", "encodings"))} <= OF_PYTHON
    assert {name for name in ran - opened if not name.startswith("mudroom")} <= OF_A_COMMAND
    assert len([name for name in opened if name.startswith("mudroom")]) <= MOST_OWN


def calls_of(action: Callable[[], object]) -> int:
    """Return the number of calls of functions, of Python and of C, in this thread."""
    count = 0

    def watch(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


MOST_CALLS = 170


def test_a_call_of_the_library_adds_little_to_that_of_its_session(place: Place) -> None:
    """The least of some: how often a command is looked at depends on how long it takes."""
    with open_room(place) as room, room._life.call() as session:
        for _warm in range(4):
            session.run([b"true"], fork="a")
        plain = min(calls_of(lambda: session.run([b"true"], fork="a")) for _time in range(5))
        ours = min(calls_of(lambda: room.run(["true"], fork="a")) for _time in range(5))
    assert ours - plain <= MOST_CALLS, (ours, plain)
