"""Work that is cut off at a call that changes something on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.sandbox.client.client import Client
from mudroom.stage import disk
from tiers import every

CALLS = ("rename", "unlink", "mkdir", "rmdir", "fsync", "chmod", "link")


def counted(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None], calls: Sequence[str] = CALLS
) -> Callable[..., None]:
    """Every call of os, and every rename of the stage, first calls ``act`` with its number. Return a step to count."""
    count = [0]

    def step(*_what: object) -> None:
        count[0] += 1
        act(count[0])

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            step()
            return function(*arguments, **named)

        return wrapped

    for name in calls:
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    monkeypatch.setattr(disk, "_renameat2", wrap(disk._renameat2))
    return step


def fresh(root: Path, client: Client, number: int) -> Place:
    place = root / f"n{number}"
    place.mkdir()
    return Place(place, client)


def crash_in_child(work: Callable[[], object], at: int, calls: Sequence[str] = CALLS) -> bool:
    """Run ``work`` in a child that ends itself before change number ``at``. False if it got to its end."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            with pytest.MonkeyPatch.context() as patch:
                counted(patch, lambda number: os._exit(7) if number == at else None, calls)
                work()
            code = 0
        finally:
            os._exit(code)
    _pid, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 7)
    return code == 7


def points(limit: int = 400) -> Iterator[int]:
    """Every change; in the quick tier one of six."""
    yield from every(6, limit)
    raise AssertionError("the work never came to its end")
