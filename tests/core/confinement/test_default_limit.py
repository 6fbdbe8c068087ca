"""The limits of a command whose policy names none."""

from __future__ import annotations

from typing import Any

import pytest

from mudroom.core.confinement.default_limit import (
    INOTIFY,
    INOTIFY_WATCHES,
    PROCESSES,
    Counter,
    TmpfsSize,
    counters,
    group_defaults,
    session_rlimits,
    tmpfs_size,
)
from mudroom.core.confinement.limit import OFF, PREPARED_PROCESSES, RLIMIT_NPROC, Limits, requested
from tiers import each

INSTANCES, WATCHES = b"max_inotify_instances", b"max_inotify_watches"


@each(
    ("limits", "users_own", "expected"),
    [
        (Limits(), (128, 200_000), ((INSTANCES, INOTIFY, True), (WATCHES, INOTIFY_WATCHES, True))),
        (Limits(), (32, 8192), ((INSTANCES, 16, True), (WATCHES, 4096, True))),  # half is left to the user
        (Limits(), (0, 0), ()),  # the kernel does not tell
        (Limits(inotify=OFF, inotify_watches=OFF), (128, 200_000), ()),
        (Limits(inotify=500), (128, 200_000), ((INSTANCES, 500, False), (WATCHES, INOTIFY_WATCHES, True))),
        (Limits(inotify=5, inotify_watches=7), (0, 0), ((INSTANCES, 5, False), (WATCHES, 7, False))),
    ],
)
def test_counters(limits: Limits, users_own: tuple[int, int], expected: tuple[Counter, ...]) -> None:
    assert counters(limits, users_own) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), TmpfsSize(b"25%", b"12%")),
        (Limits(tmp=OFF), TmpfsSize(b"50%", b"50%")),
        (Limits(tmp=1 << 30), TmpfsSize(b"1073741824", b"536870912")),
    ],
)
def test_sizes_in_memory(limits: Limits, expected: TmpfsSize) -> None:
    assert tmpfs_size(limits) == expected


def off(*names: str) -> Limits:
    changes: dict[str, Any] = dict.fromkeys(names, OFF)
    return Limits()._replace(**changes)


def test_processes() -> None:
    count = PROCESSES + PREPARED_PROCESSES
    assert session_rlimits(Limits(), counts_processes=True) == ((RLIMIT_NPROC, count, count),)
    assert session_rlimits(Limits(), counts_processes=False) == ()
    assert session_rlimits(off("processes"), counts_processes=True) == ()
    assert session_rlimits(Limits(processes=10), counts_processes=True) == (), "what was asked for is held elsewhere"


def test_what_a_group_holds_besides() -> None:
    assert group_defaults(Limits(cpus=1), 1 << 34) == Limits(memory=3 << 32, processes=PROCESSES)
    assert group_defaults(off("memory")._replace(processes=7), 1 << 34) == Limits()
    assert group_defaults(Limits(), 0) == Limits(processes=PROCESSES)


def test_what_is_switched_off_was_not_asked_for() -> None:
    limits = off("memory", "inotify", "tmp")._replace(processes=1, missing="degrade")
    assert requested(limits) == Limits(processes=1, missing="degrade")
