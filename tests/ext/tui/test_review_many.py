"""The terminal review of many changes: what is read for them, and how often."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive

from conftest import Place
from mudroom.session.changes import Changes
from mudroom.stage.file_cache import FileCache
from mudroom.vault.record import ForkRecord
from mudroom.vault.store import fork

pytestmark = pytest.mark.slow
FILES = 12


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often a record has been read."""
    read: list[bytes] = []
    load = fork.load_record

    def counting(path: bytes) -> ForkRecord | None:
        read.append(path)
        return load(path)

    monkeypatch.setattr(fork, "load_record", counting)
    # as if all had been written some time ago
    monkeypatch.setattr("mudroom.stage.file_cache.FileCache", lambda: FileCache(clock=lambda: time.time_ns() + 10**10))
    return lambda: len(read)


def test_a_record_is_read_once_however_many_files_are_looked_at(place: Place, seldom: Callable[[], int]) -> None:
    session, result = place.sh(f"seq -f %02g {FILES} | while read n; do echo $n > $n; done")
    before = seldom()

    async def script(driver: Driver) -> None:
        first = seldom() - before
        assert first in (1, 2)  # on a busy machine the look after a second begins before the first has ended
        for number in range(2, FILES + 1):
            await driver.to_file(b"%02d" % number)
            assert f"{number:02}" in driver.shown()[0]
        assert seldom() - before == first

    drive(place, result.fork, script, session=session)


def test_no_conflict_is_looked_for_where_the_project_is_as_it_was(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("both", "1\n")
    session, result = place.sh("echo 2 > both")
    looks: list[str] = []
    conflicts = Changes.conflicts

    def looking(changes: Changes, name: str, **more: Any) -> Any:
        looks.append(name)
        return conflicts(changes, name, **more)

    monkeypatch.setattr(Changes, "conflicts", looking)

    async def script(driver: Driver) -> None:
        assert looks == []
        place.write("both", "three\n")
        await driver.press("R")
        await driver.until(lambda: "1 conflict" in str(driver.review.query_one("#top").render()))
        assert looks == [result.fork]

    drive(place, result.fork, script, session=session)
