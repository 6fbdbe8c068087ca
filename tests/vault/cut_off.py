"""Work that is cut off at a call that changes something on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.sandbox.client.client import Client
from mudroom.stage import disk
from tiers import every

CALLS = ("rename", "unlink", "mkdir", "rmdir", "fsync", "chmod", "link")


def counted(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> list[int]:
    """Every call that changes the disk, from now on, first calls ``act`` with its number."""
    count = [0]

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            count[0] += 1
            act(count[0])
            return function(*arguments, **named)

        return wrapped

    for name in CALLS:
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    monkeypatch.setattr(disk, "_renameat2", wrap(disk._renameat2))
    return count


def fresh(root: Path, client: Client, number: int) -> Place:
    place = root / f"n{number}"
    place.mkdir()
    return Place(place, client)


def crash_in_child(work: Callable[[], object], at: int) -> bool:
    """Run ``work`` in a child that ends itself before change number ``at``. False if it got to its end."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            with pytest.MonkeyPatch.context() as patch:
                counted(patch, lambda number: os._exit(7) if number == at else None)
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
