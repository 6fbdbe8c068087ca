"""Older events move to archives: the chain goes through them, whatever is killed, and whoever has the database open."""

from __future__ import annotations

import functools
import gzip
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cut_off
from clocks import steady
from mudroom.core.journal.event import Event
from mudroom.core.journal.event_filter import EventFilter
from mudroom.errors import MudroomError
from mudroom.vault.journal.journal import DamagedArchive, Journal, JournalArchive, archives, read_archive, read_back

S = 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def filled(path: Path, count: int, size: int = 10) -> Journal:
    journal = Journal(os.fsencode(path))
    start = journal.head().number
    for number in range(start, start + count):
        journal.append(
            "run" if number % 2 else "edit", f"f{number % 3}", {"n": number, "x": "é" * size}, time=number * S
        )
    return journal


def numbers(events: Iterator[Event] | list[Event]) -> list[int]:
    return [event.number for event in events]


def live(path: Path) -> list[int]:
    database = sqlite3.connect(path)
    try:
        return [row[0] for row in database.execute("SELECT number FROM event ORDER BY number")]
    finally:
        database.close()


def names(path: Path) -> list[str]:
    return sorted(one for one in os.listdir(path.with_suffix("")) if one != "lock")


def test_everything_is_read_across(path: Path) -> None:
    journal = filled(path, 60)
    before = list(journal.events())
    first = journal.archive(20)
    second = journal.archive(45)
    assert first is not None
    assert second is not None
    assert names(path) == ["000000001-000000020.jsonl.gz", "000000021-000000045.jsonl.gz"]
    assert live(path) == list(range(46, 61))
    assert list(journal.events()) == before
    assert list(journal.events(last=30)) == before[-30:]
    assert list(journal.events(last=5)) == before[-5:]
    assert list(journal.events(last=1000)) == before
    assert list(journal.events_since(10)) == before[10:]
    assert list(journal.events_since(50)) == before[50:]
    assert journal.events_after(30, "run") == [one for one in before[30:] if one.kind == "run"]
    assert list(journal.events(where=EventFilter(("edit",), ("f0",)))) == [
        one for one in before if (one.kind, one.fork) == ("edit", "f0")
    ]
    for since in (0, 15, 30, 50, 58, 70):
        wanted = [one for one in before if one.time >= since * S]
        assert list(journal.events(where=EventFilter(since=since * S))) == wanted
        assert list(journal.events(where=EventFilter(since=since * S), last=7)) == wanted[-7:]
    assert not journal.examine().problems
    assert journal.examine().head == journal.head()
    assert journal.append("run", "f", {}, time=60 * S) == 61
    assert journal.verify() is None
    journal.close()


@pytest.mark.parametrize(("number", "archived"), [(0, 0), (-7, 0), (0, 20), (12, 20), (20, 20), (-1, 20)])
def test_a_row_put_before_the_first_is_found_and_not_read(path: Path, number: int, archived: int) -> None:
    journal = filled(path, 30)
    if archived:
        assert journal.archive(archived) is not None
    with sqlite3.connect(path) as database:
        row = (number, 10**12, "approval", "x", '{"allow":true}', "0" * 64)
        database.execute("INSERT INTO event VALUES (?,?,?,?,?,?)", row)
    database.close()
    assert numbers(journal.events()) == list(range(1, 31))
    assert numbers(journal.events(last=40)) == list(range(1, 31))
    approvals = EventFilter(("approval",))
    assert list(journal.events(last=5, where=approvals)) == list(journal.events(where=approvals)) == []
    assert list(journal.events(where=EventFilter(("approval",), since=5))) == []
    broken = journal.examine().broken
    assert broken is not None
    assert (broken.number, broken.what) == (number, "appended")
    assert f"event {number} was not written by mudroom" in broken.text
    assert journal.archive(25) is not None
    assert numbers(journal.events()) == list(range(1, 31))
    assert journal.verify() is None, "no row of it is left"


def test_an_archive_is_read_from_its_end_a_window_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = filled(path, 60)
    archive = journal.archive(50)
    assert archive is not None
    (line, *_others) = gzip.decompress(Path(os.fsdecode(archive.path)).read_bytes()).splitlines(keepends=True)[1:]
    monkeypatch.setattr("mudroom.vault.journal.journal.WINDOW", len(line) * 8)
    monkeypatch.setattr("mudroom.vault.journal.journal._AT_ONCE", 3)
    backwards = list(reversed(list(read_archive(archive))))
    pages = list(read_back(archive, 1 << 62))
    assert [event for page in pages for event in page] == backwards
    assert max(map(len, pages)) == 3
    assert [event for page in read_back(archive, 17) for event in page] == backwards[-16:]
    assert list(read_back(archive, 1)) == list(read_back(archive, -5)) == []
    made: list[bytes] = []

    def making(line: bytes) -> Event:
        made.append(line)
        return backwards[0]

    monkeypatch.setattr("mudroom.vault.journal.journal._event", making)
    assert len(next(read_back(archive, 1 << 62))) == len(made) == 3, "of all the others there is no event yet"


@pytest.mark.parametrize("lines", [slice(0, 1), slice(0, 20), slice(1, None)])
def test_an_archive_that_ends_too_early_is_no_end_of_the_journal(path: Path, lines: slice) -> None:
    journal = filled(path, 60)
    archive = journal.archive(50)
    assert archive is not None
    there = Path(os.fsdecode(archive.path))
    there.write_bytes(gzip.compress(b"".join(gzip.decompress(there.read_bytes()).splitlines(keepends=True)[lines])))
    with pytest.raises(DamagedArchive):
        list(journal.newest())


def test_a_search_far_back_opens_only_the_archives_that_it_needs(path: Path) -> None:
    journal = filled(path, 90)
    found = [journal.archive(upto) for upto in (20, 40, 60)]
    for archive in (found[0], found[2]):
        assert archive is not None
        Path(os.fsdecode(archive.path)).write_bytes(b"no archive")
    assert numbers([event for event, _ in zip(journal.newest(before=35), range(10), strict=False)]) == [
        *range(34, 24, -1)
    ]
    assert numbers(journal.newest(archived=False)) == list(range(90, 60, -1))
    assert list(journal.newest(EventFilter(("nothing",)), archived=False)) == []


def test_who_searches_is_told_how_far_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = filled(path, 200)
    journal.archive(150)
    nothing = [(len(one.events), one.down_to) for one in journal.search(EventFilter(grep="no such text"))]
    assert nothing == [(0, 151), (0, 87), (0, 23), (0, 1)]
    since = [(numbers(list(one.events)), one.down_to) for one in journal.search(EventFilter(("run",), since=190 * S))]
    assert since == [([200, 198, 196, 194, 192], 152)]


def test_the_newest_event_stays(path: Path) -> None:
    journal = filled(path, 5)
    assert journal.archive(1000) is not None
    assert live(path) == [5]
    assert journal.archive(1000) is None
    journal.close()
    again = filled(path, 1)
    assert numbers(again.events()) == [1, 2, 3, 4, 5, 6]
    assert not again.examine().problems
    again.close()


def test_by_size_and_the_file_gets_smaller(path: Path) -> None:
    journal = filled(path, 400, size=1000)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    large = path.stat().st_size
    assert journal.keep_within(10 * large + 10**7, 1e9, steady(400 * S)) is None
    found = journal.keep_within(200_000, 1e9, steady(400 * S))
    assert found is not None
    assert (found.first, found.last) == (1, 300)
    assert path.stat().st_size < large / 2
    assert os.stat(found.path).st_size < large / 10
    assert os.stat(found.path).st_mode & 0o777 == 0o600
    journal.keep_within(200_000, 1e9, steady(400 * S))
    assert len(live(path)) == 100, "so many stay whatever they weigh"
    assert journal.keep_within(1, 1e9, steady(400 * S)) is None
    assert not journal.examine().problems
    journal.close()


def test_by_age(path: Path) -> None:
    journal = filled(path, 100)
    assert journal.keep_within(10**9, 100, steady(100 * S)) is None
    found = journal.keep_within(10**9, 60, steady(100 * S))
    assert found is not None
    assert found.last == 70, "down to half of the age, so that it is not one event every time"
    assert journal.keep_within(10**9, 60, steady(110 * S)) is None
    assert not journal.examine().problems
    journal.close()


# --- damage ---


def damage(archive: JournalArchive, change: Callable[[bytes], bytes]) -> None:
    with gzip.open(archive.path) as stream:
        text = stream.read()
    with gzip.open(archive.path, "wb") as stream:
        stream.write(change(text))


def reordered(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[:5], lines[6], lines[5], *lines[7:]])


@pytest.mark.parametrize(
    ("change", "number", "what", "text"),
    [
        (lambda text: text.replace(b'"n\\":7,', b'"n\\":8,', 1), 8, "edited", "event 8 was edited"),
        (lambda text: b"".join(text.splitlines(keepends=True)[:-1]), 20, "archive", "ends before event 20"),
        (lambda text: text[:-30], 20, "archive", "damaged"),
        (lambda text: text.replace(b"[9,", b"[x,"), 9, "archive", "damaged"),
        (lambda text: b"", 1, "archive", "damaged"),
        (lambda text: text.replace(b'"format":1', b'"format":2'), 1, "archive", "its format is not 1"),
        (reordered, 6, "moved", "re-ordered"),
    ],
)
def test_an_archive_edited_by_hand(
    path: Path, change: Callable[[bytes], bytes], number: int, what: str, text: str
) -> None:
    journal = filled(path, 60)
    found = journal.archive(20)
    assert found is not None
    damage(found, change)
    broken = journal.examine().broken
    assert broken is not None
    assert (broken.number, broken.what) == (number, what)
    assert text in broken.text
    assert numbers(journal.events(last=30)) == list(range(31, 61)), "what needs it not is read"
    journal.close()


def test_an_archive_that_is_gone_or_cut_off(path: Path) -> None:
    journal = filled(path, 60)
    first, second = journal.archive(20), journal.archive(40)
    assert first is not None
    assert second is not None
    os.rename(first.path, first.path + b".x")
    broken = journal.examine().broken
    assert broken is not None
    assert "events 1 to 20 are missing before 21: removed" in broken.text
    os.rename(first.path + b".x", first.path)
    os.truncate(second.path, os.stat(second.path).st_size // 2)
    broken = journal.examine().broken
    assert broken is not None
    assert broken.what == "archive"
    assert os.fsdecode(second.path) in broken.text
    with pytest.raises(MudroomError, match="is damaged"):
        list(journal.events())
    journal.close()


# --- killed anywhere ---


CALLS = ("rename", "unlink", "fsync", "open", "pwrite", "makedirs")


def counted(
    patch: pytest.MonkeyPatch, journal: Journal, act: Callable[[int], None], calls: tuple[str, ...] = CALLS
) -> None:
    """Every call that changes the disk and every statement, from now on, first calls ``act`` with its number."""
    step = cut_off.counted(patch, act, calls)
    journal._open().set_trace_callback(step)


def killed(path: Path, at: int) -> bool:
    """Archive in a child that ends itself before step ``at``. False if it got to its end."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            journal = Journal(os.fsencode(path))
            with pytest.MonkeyPatch.context() as patch:
                counted(patch, journal, lambda number: os._exit(7) if number == at else None, (*CALLS, "close"))
                journal.archive(40)
                journal.append("run", "after", {}, time=61 * S)
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 7)
    return code == 7


def whole(path: Path, before: list[Event]) -> Journal:
    journal = Journal(os.fsencode(path))
    assert not journal.examine().problems
    found = list(journal.events())
    assert found[: len(before)] == before
    assert [event.fork for event in found[len(before) :]] in ([], ["after"])
    counting = archives(os.fsencode(path.with_suffix("")), 1 << 60)
    archived = [event.number for one in counting if one.last < live(path)[0] for event in read_archive(one)]
    assert archived + live(path) == numbers(found)
    return journal


def made(tmp_path: Path, archived: int) -> list[Event]:
    """A journal to be copied."""
    path = tmp_path / "made" / "journal.db"
    path.parent.mkdir()
    journal = filled(path, 60)
    if archived:
        journal.archive(archived)
    before = list(journal.events())
    journal.close()
    return before


@pytest.mark.slow
def test_killed_anywhere(tmp_path: Path) -> None:
    before = made(tmp_path, 10)
    for at in range(1, 200):
        path = tmp_path / f"{at}" / "journal.db"
        shutil.copytree(tmp_path / "made", path.parent)
        done = not killed(path, at)
        journal = whole(path, before)
        assert journal.append("run", "again", {}, time=62 * S) == journal.head().number
        assert journal.archive(40) is None if done else live(path)[0] in (11, 41)
        journal.archive(50)
        journal.close()
        assert live(path)[0] == 51
        whole_again = Journal(os.fsencode(path))
        assert not whole_again.examine().problems
        assert list(whole_again.events())[: len(before)] == before
        whole_again.close()
        assert not [name for name in names(path) if not name.endswith(".gz")]
        if done:
            assert at > 20
            return
    raise AssertionError("it never came to its end")


def test_every_step_failing(tmp_path: Path) -> None:
    """A full disk, at each call: said, nothing lost, and the next time it goes well."""

    def fail(at: int, number: int) -> None:
        if number == at:
            raise OSError(28, "No space left on device")

    before = made(tmp_path, 0)
    for at in range(1, 200):
        path = tmp_path / f"{at}" / "journal.db"
        shutil.copytree(tmp_path / "made", path.parent)
        journal = Journal(os.fsencode(path))
        journal.head()
        failed = False
        with pytest.MonkeyPatch.context() as patch:
            counted(patch, journal, functools.partial(fail, at))
            try:
                journal.archive(40)
            except OSError:
                failed = True
        journal._open().set_trace_callback(None)
        assert list(journal.events()) == before
        journal.archive(40)
        assert live(path)[0] == 41
        assert list(journal.events()) == before
        assert not journal.examine().problems
        journal.close()
        if not failed and at > 20:
            return
    raise AssertionError("it never came to its end")


def test_an_archive_of_another_journal_is_not_overwritten(path: Path) -> None:
    """As after somebody has moved the database aside and left the archives."""
    journal = filled(path, 60)
    first = journal.archive(40)
    assert first is not None
    before = Path(os.fsdecode(first.path)).read_bytes()
    journal.close()
    for end in ("", "-wal", "-shm"):
        Path(str(path) + end).unlink(missing_ok=True)
    journal = filled(path, 60)
    assert len(list(journal.events())) == 61, "with one that says that events were missing"
    assert journal.archive(40) is not None
    assert names(path) == ["000000001-000000040.jsonl.gz", "000000001-000000040.jsonl.gz.other0"]
    assert (path.with_suffix("") / names(path)[1]).read_bytes() == before
    assert journal.examine().broken is None
    journal.close()


def test_who_has_the_database_open_goes_on(path: Path) -> None:
    """Another connection reads and writes before, between and after."""
    journal = filled(path, 60)
    other = Journal(os.fsencode(path))
    reading = other.events()
    assert next(reading).number == 1
    assert other.append("run", "f", {}, time=60 * S) == 61
    assert journal.archive(50) is not None
    assert other.append("run", "f", {}, time=60 * S) == 62
    assert numbers(list(reading)) == list(range(2, 61)), "what was there when its page was read"
    assert numbers(other.events_since(5)) == list(range(6, 63))
    assert other.archive(55) is not None
    assert journal.append("run", "f", {}, time=60 * S) == 63
    assert not journal.examine().problems
    assert numbers(journal.events()) == list(range(1, 64))
    other.close()
    journal.close()


def test_only_one_archives_at_a_time(path: Path) -> None:
    from mudroom.vault.lock import Lock

    journal = filled(path, 60)
    journal.archive(10)
    with Lock(os.fsencode(path.with_suffix("")) + b"/lock"):
        assert journal.archive(50) is None
        assert journal.append("run", "f", {}, time=60 * S) == 61
    assert journal.archive(50) is not None
    journal.close()
