"""The two tiers of the tests, and the seed of what is drawn.

The quick tier is what ``./check`` runs, and CI: MUDROOM_TESTS=quick, without tests marked ``deep``, each test once, as
an ordinary user, and those marked ``root`` as root too: identities, capabilities, control groups, owners, permissions
and mounts of the kernel are others for root. ``dev/deep`` runs everything as both users. Property
tests have a quarter of their examples in the quick tier (``examples``; 25 where a test names no number), and the fault
tests a smaller sample (``sample``, ``every``, ``pairs``, ``half``, ``daily``).

The calls in which the fault tests inject faults are drawn at random. The seed is MUDROOM_SEED, by default the date
(UTC). A failed test prints the command that runs it again with the same seed.
"""

from __future__ import annotations

import gc
import os
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

Row = TypeVar("Row")
Column = TypeVar("Column")
QUICK = os.environ.get("MUDROOM_TESTS") == "quick"
SEED = os.environ.setdefault("MUDROOM_SEED", time.strftime("%Y%m%d", time.gmtime()))
"""Exported to the processes of xdist, too: midnight may pass between their start and ours."""


def examples(full: int) -> int:
    """Return the number of examples of a long property test: a quarter of ``full`` in the quick tier. MUDROOM_EXAMPLES
    overrides it."""
    return int(os.environ.get("MUDROOM_EXAMPLES", full // 4 if QUICK else full))


hypothesis_settings.register_profile(  # a busy machine is no finding
    "here", deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("here")


def sample(full: int) -> int:
    """Return the number of calls of each kind in which a fault test injects a fault: 1 in the quick tier."""
    return 1 if QUICK else full


def every(step: int, limit: int) -> range:
    """Return the numbers from 1 below ``limit`` of the calls at which a test cuts something off: in the quick tier one
    of ``step``, and another one each day."""
    return range(1 + zlib.crc32(SEED.encode()) % step, limit, step) if QUICK else range(1, limit)


def pairs(rows: Sequence[Row], columns: Sequence[Column], step: int = 2) -> list[tuple[Row, Column]]:
    """Return every pair of a row and a column; in the quick tier one diagonal of ``step``, as the seed of the day says:
    two are the white fields of a chessboard and the black ones. With as many columns or more, each row has some of its
    fields each day."""
    first = zlib.crc32(SEED.encode()) % step
    return [
        (row, column)
        for number, row in enumerate(rows)
        for other, column in enumerate(columns)
        if not QUICK or (number + other) % step == first
    ]


def half(rows: Iterable[Row]) -> list[Row]:
    """Return the rows; in the quick tier every second one, and the others if the seed of the day is another one."""
    return [row for row, _one in pairs(list(rows), [None])]


def daily(rows: Iterable[Row]) -> list[Row]:
    """Return the rows; in the quick tier one of them, and another one each day."""
    chosen = list(rows)
    return [chosen[zlib.crc32(SEED.encode()) % len(chosen)]] if QUICK else chosen


def together(scripts: Mapping[str, str]) -> dict[str, str]:
    """Return the scripts of a shell by name; in the quick tier as a single one, in which each has a shell and a
    directory of its own, and what it does to a directory is no matter to the next one."""
    if not QUICK:
        return dict(scripts)
    parts = (f"(mkdir in{number}; cd in{number}\n{script}\n)" for number, script in enumerate(scripts.values()))
    return {"all": "\n".join(parts)}


def each(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Mark a test of thousands of rows that takes microseconds for each, and no fixture: as parametrized, but one test
    in the quick tier. pytest takes some milliseconds for a test, in two processes. Every row that fails is told."""
    if not QUICK:
        return pytest.mark.parametrize(names, list(rows))

    def of_all(test: Callable[..., None]) -> Callable[[], None]:
        def all_rows() -> None:
            failures = []
            for row in rows:
                try:
                    test(*(row if isinstance(names, tuple) else (row,)))
                except Exception as error:  # noqa: BLE001 - raised below, with all others
                    error.add_note(f"row: {row!r}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} rows fail", failures)

        all_rows.__name__, all_rows.__doc__, all_rows.__module__ = test.__name__, test.__doc__, test.__module__
        return all_rows

    return of_all


def pytest_report_header() -> str:
    return f"tier: {'quick' if QUICK else 'deep'}, MUDROOM_SEED={SEED}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the collector of garbage, which would visit the 600,000 objects that all stay, again and again;
    afterwards it leaves them alone, and a fork of this process shares their pages."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if QUICK:
        chosen = in_one_view(items, os.geteuid() == 0 if os.name == "posix" else False)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    if hasattr(config, "workerinput"):
        longest_first(items)


VIEWS = frozenset(("overlay", "copy", "fuse"))


def in_one_view(items: Iterable[pytest.Item], is_root: bool) -> set[pytest.Item]:
    """Return the tests to run in the quick tier: of those that differ only in the view one, and another one each day.
    Root has another one than the ordinary user."""
    alike: defaultdict[tuple[str, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        parts = item.nodeid.rstrip("]").replace("[", "-").split("-")
        view = next((number for number, part in enumerate(parts) if part in VIEWS), len(parts))
        alike[*parts[:view], "", *parts[view + 1 :]].append(item)
    turn = zlib.crc32(SEED.encode()) + is_root
    return {row[(turn + number) % len(row)] for number, row in enumerate(alike.values())}


def longest_first(items: list[pytest.Item]) -> None:
    """Sort the files by the seconds that their marks suggest: a long file that starts last would run alone at the
    end."""
    seconds: defaultdict[Path, float] = defaultdict(float)
    for item in items:
        limit = item.get_closest_marker("limit")
        seconds[item.path] += limit.args[0] / 10 if limit else 1 if item.get_closest_marker("slow") else 0.01
    items.sort(key=lambda item: -seconds[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):  # type: ignore[no-untyped-def]  # pytest's own type is not public
    report = yield
    if report.failed:
        tier = "MUDROOM_TESTS=quick " if QUICK else ""
        again = f"{tier}MUDROOM_SEED={SEED} .venv/bin/python -m pytest '{item.nodeid}'"
        report.sections.append(("To run it again", again))
    return report
