"""The journal: insert-only, chained, and any edit is found; many write at once; what cannot be written is said."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from clocks import give_way
from inner_path import inner
from mudroom.core.journal.event import ChainHead, data_of, wall
from mudroom.core.journal.event_filter import EventFilter
from mudroom.errors import MudroomError
from mudroom.vault.journal.journal import _LOG, Journal, _NamedErrors
from tiers import daily

S = 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def filled(path: Path, count: int = 5) -> Journal:
    journal = Journal(inner(path))
    for number in range(count):
        journal.append("run", f"fork{number}", {"n": number, "text": "naïve \x1b ☃"}, time=1000 + number)
    return journal


def by_hand(path: Path, *statements: str) -> None:
    """As somebody with sqlite3 would."""
    database = sqlite3.connect(path)
    for trigger in ("event_is_never_changed", "event_is_never_removed"):
        database.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def again(path: Path) -> Journal:
    return Journal(inner(path))


def problem(path: Path) -> tuple[int, str, str]:
    journal = again(path)
    broken = journal.examine().broken
    journal.close()
    assert broken is not None
    return broken


def test_events_come_back_in_order(path: Path) -> None:
    journal = filled(path)
    assert [event.number for event in journal.events()] == [1, 2, 3, 4, 5]
    assert [event.fork for event in journal.events(last=2)] == ["fork3", "fork4"]
    assert list(journal.events(last=0)) == []
    assert [event.number for event in journal.events_after(3, "run")] == [4, 5]
    assert journal.events_after(3, "flow") == []
    assert journal.verify() is None
    assert journal.head() == ChainHead(5, list(journal.events())[-1].digest)
    journal.close()


def test_several_events_at_once_all_or_none(path: Path) -> None:
    journal = filled(path, 1)
    assert journal.append_all([("flow", "a", {"n": 1}), ("flow", "b", {"n": 2})], time=2000) == 3
    with pytest.raises(TypeError):
        journal.append_all([("flow", "a", {"n": 3}), ("flow", "b", {"n": object()})], time=2000)
    assert [event.fork for event in journal.events()] == ["fork0", "a", "b"]
    assert journal.append("run", "c", {}, time=3000) == 4
    assert journal.verify() is None
    journal.close()


def test_more_than_one_page(path: Path) -> None:
    journal = again(path)
    journal.append_all([("run" if n % 3 else "flow", f"f{n % 2}", {"n": n}) for n in range(2500)], time=5)
    assert [event.number for event in journal.events()] == list(range(1, 2501))
    assert [event.number for event in journal.events(last=1200)] == list(range(1301, 2501))
    runs = [n + 1 for n in range(2500) if n % 3 and n % 2]
    assert [event.number for event in journal.events(where=EventFilter(("run",), ("f1",)))] == runs
    assert [event.number for event in journal.events(last=3, where=EventFilter(("run",), ("f1",)))] == runs[-3:]
    assert [event.number for event in journal.events_since(1990)] == list(range(1991, 2501))
    journal.close()


# --- edits by hand ---


def test_rows_cannot_be_changed_or_removed(path: Path) -> None:
    filled(path).close()
    with sqlite3.connect(path) as database:
        statements = ("UPDATE event SET fork = 'x'", "DELETE FROM event", "DELETE FROM origin")
        for statement in (*statements, "UPDATE origin SET number = -1", "UPDATE origin SET number = 0"):
            with pytest.raises(sqlite3.IntegrityError, match="insert-only"):
                database.execute(statement)
    database.close()


@pytest.mark.parametrize(
    ("statement", "broken", "what", "text"),
    [
        ("UPDATE event SET data = '{}' WHERE number = 3", 3, "edited", "event 3 was edited, or event 2 was"),
        ("UPDATE event SET data = 'x' WHERE number = 3", 3, "edited", "event 3 was edited"),
        ("UPDATE event SET time = time + 1 WHERE number = 1", 1, "edited", "event 1 was edited"),
        ("UPDATE event SET fork = 'other' WHERE number = 5", 5, "edited", "event 5 was edited"),
        ("DELETE FROM event WHERE number = 2", 3, "removed", "event 2 is missing between 1 and 3: removed"),
        ("DELETE FROM event WHERE number IN (2, 3)", 4, "removed", "events 2 to 3 are missing between 1 and 4"),
        ("DELETE FROM event WHERE number = 1", 2, "removed", "event 1 is missing before 2"),
        ("DELETE FROM event WHERE number = 5", 5, "cut", "event 5 is missing at the end: cut off"),
        ("DELETE FROM event WHERE number > 3", 4, "cut", "events 4 to 5 are missing at the end"),
        ("DELETE FROM event", 1, "cut", "events 1 to 5 are missing at the end"),
        ("INSERT INTO event VALUES (6, 9, 'run', '', '{}', '')", 6, "appended", "event 6 was not written by mudroom"),
    ],
)
def test_an_edit_by_hand_is_found(path: Path, statement: str, broken: int, what: str, text: str) -> None:
    filled(path).close()
    by_hand(path, statement)
    found = problem(path)
    assert found[:2] == (broken, what)
    assert text in found[2]
    journal = again(path)
    assert journal.verify() == broken
    journal.close()


def test_another_order_is_found(path: Path) -> None:
    filled(path).close()
    by_hand(path, *(f"UPDATE event SET number = {new} WHERE number = {old}" for old, new in ((3, 9), (4, 3), (9, 4))))
    number, what, text = problem(path)
    assert (number, what) == (3, "moved")
    assert "event 3 was written as event 4: re-ordered" in text


def test_a_removal_with_new_numbers_is_found(path: Path) -> None:
    filled(path).close()
    by_hand(path, "DELETE FROM event WHERE number = 2", "UPDATE event SET number = number - 1 WHERE number > 2")
    assert problem(path)[0] == 2


def test_an_edit_with_its_own_digest_made_anew_is_found(path: Path) -> None:
    """And the same for all that follow: the kept head tells."""
    from mudroom.core.journal.event import digest_of

    journal = filled(path)
    rows = list(journal.events())
    journal.close()
    digest = digest_of(rows[1].digest, *rows[2][:3], "other", rows[2].data)
    by_hand(path, f"UPDATE event SET fork = 'other', digest = '{digest}' WHERE number = 3")
    assert problem(path)[0] == 4
    for number in (4, 5):
        digest = digest_of(digest, *rows[number - 1][:5])
        by_hand(path, f"UPDATE event SET digest = '{digest}' WHERE number = {number}")
    assert problem(path)[:2] == (5, "rewritten")


def test_without_the_head_it_cannot_be_told_and_that_is_said(path: Path) -> None:
    filled(path).close()
    head = path.with_suffix(".head")
    kept = head.read_bytes()
    assert len(kept) == 2 * 128
    for damaged in (b"", b"x" * 256, kept[:40], kept.replace(b" ", b"_")):
        head.write_bytes(damaged)
        assert problem(path)[:2] == (6, "head")
    head.unlink()
    assert problem(path)[:2] == (6, "head")
    journal = again(path)
    journal.append("run", "x", {}, time=9)
    assert [event.kind for event in journal.events(last=2)] == ["gap", "run"]
    found = journal.examine()
    assert found.broken is None
    assert found.problems
    journal.close()


def test_what_was_cut_off_stays_found_when_others_are_appended(path: Path) -> None:
    filled(path).close()
    by_hand(path, "DELETE FROM event WHERE number > 3")
    journal = again(path)
    journal.append("run", "x", {}, time=2000)
    events = list(journal.events())
    assert [(event.number, event.kind) for event in events[3:]] == [(4, "gap"), (5, "run")]
    assert data_of(events[3]) == {"last": 5}
    for _more in range(3):
        journal.append("run", "x", {}, time=2000)
    found = journal.examine()
    assert found.broken is None
    assert [one.number for one in found.gaps] == [4]
    assert "events 4 to 5 are missing at the end when this one was written" in found.gaps[0].text
    assert len([event for event in journal.events() if event.kind == "gap"]) == 1
    journal.close()


def test_a_head_that_comes_back_after_a_noted_gap_is_no_tampering(path: Path) -> None:
    """The head is not synced: a second power loss can bring back that of before the first, and the gap says so."""
    filled(path).close()
    head = path.with_suffix(".head")
    before = head.read_bytes()
    by_hand(path, "DELETE FROM event WHERE number > 3")
    journal = again(path)
    journal.append("run", "x", {}, time=2000)
    journal.close()
    head.write_bytes(before)
    journal = again(path)
    found = journal.examine()
    assert found.broken is None
    assert [one.number for one in found.gaps] == [4]
    journal.append("run", "x", {}, time=2000)
    assert journal.examine().broken is None
    journal.close()


def test_a_journal_that_was_moved_aside_is_noted_in_the_next(path: Path) -> None:
    filled(path).close()
    for end in ("", "-wal", "-shm"):
        Path(str(path) + end).unlink(missing_ok=True)
    journal = again(path)
    journal.append("run", "x", {}, time=2000)
    assert [event.kind for event in journal.events()] == ["gap", "run"]
    journal.close()


@pytest.mark.parametrize("written", [1, 19, 20, 41, 50, 84, 106, 127])
def test_a_head_that_is_torn_lags_behind(path: Path, written: int) -> None:
    """The disk became full in the middle of the line: what was before counts."""
    journal = filled(path)
    head = path.with_suffix(".head")
    before = head.read_bytes()
    journal.append("run", "x", {}, time=9)
    after = head.read_bytes()
    at = 0 if before[:128] != after[:128] else 128
    assert before[128 - at :][:128] == after[128 - at :][:128], "one of the two stays"
    head.write_bytes(after[: at + written] + before[at + written :])
    found = journal.examine()
    assert not found.problems
    assert found.unanchored in (0, 1)
    journal.append("run", "x", {}, time=9)
    assert "gap" not in [event.kind for event in journal.events()]
    assert journal.examine().unanchored == 0
    journal.close()


def test_a_head_that_lags_behind_is_no_damage(path: Path) -> None:
    """Mudroom is killed between the commit and the head."""
    filled(path).close()
    head = path.with_suffix(".head")
    before = head.read_bytes()
    journal = filled(path, 2)
    journal.close()
    head.write_bytes(before)
    journal = again(path)
    found = journal.examine()
    assert not found.problems
    assert found.unanchored == 2
    journal.append("run", "x", {}, time=9)
    assert journal.examine().unanchored == 0
    journal.close()


# --- the clock ---


def test_time_never_goes_back_and_the_clock_is_kept(path: Path) -> None:
    journal = again(path)
    for now in (100 * S, 101 * S, 101 * S - 5000, 40 * S, 41 * S, 102 * S):
        journal.append("run", "f", {"n": now}, time=now)
    events = list(journal.events())
    assert [event.time for event in events] == [100 * S, 101 * S, 101 * S, 101 * S, 101 * S, 102 * S]
    assert [wall(event) for event in events] == [100 * S, 101 * S, 101 * S, 40 * S, 41 * S, 102 * S]
    assert ["clock" in data_of(event) for event in events] == [False, False, False, True, True, False]
    assert journal.verify() is None
    chosen = EventFilter(since=40 * S, until=42 * S)
    assert [event.number for event in journal.events(where=chosen)] == [4, 5]
    assert [event.number for event in journal.events(where=chosen, last=1)] == [5]
    assert [event.number for event in journal.events(where=EventFilter(since=101 * S))] == [2, 3, 6]
    journal.close()


# --- many at once ---


def test_two_writers_make_one_chain(path: Path) -> None:
    filled(path, 1).close()

    def write() -> None:
        journal = again(path)
        for number in range(50):
            journal.append("run", "f", {"n": number}, time=number)
        journal.close()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    journal = again(path)
    assert len(list(journal.events())) == 201
    assert journal.verify() is None
    journal.close()


def test_threads_share_one_journal(path: Path) -> None:
    journal = again(path)

    def write() -> None:
        for number in range(100):
            journal.append("run", "f", {"n": number}, time=number)

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    seen = sum(1 for _event in journal.events())
    for writer in writers:
        writer.join()
    assert seen <= len(list(journal.events())) == 400
    assert not journal.examine().problems
    journal.close()


WRITER = """
import sys, os, time
from mudroom.vault.journal.journal import Journal
journal = Journal(os.fsencode(sys.argv[1]).replace(b'\\\\', b'/'))
for number in range(200):
    journal.append("run", sys.argv[2], {"n": number}, time=time.time_ns())
    if sys.argv[3:] and number % 50 == 25:
        journal.archive(journal.head().number - 10)
"""


def writers(path: Path, count: int, *more: str) -> list[subprocess.Popen[bytes]]:
    program = f"import sys; sys.path[:] = {sys.path!r}" + WRITER  # Python for embedding reads no PYTHONPATH
    return [
        subprocess.Popen([sys.executable, "-c", program, str(path), f"f{number}", *more]) for number in range(count)
    ]


@pytest.mark.parametrize("archiving", daily([False, True]))
def test_eight_processes_and_a_reader(path: Path, archiving: bool) -> None:
    """From nothing on: they make the database between them, too. The reader sees each event once, in order."""
    running = writers(path, 8, *["archive"] * archiving)
    journal = again(path)
    seen: list[int] = []
    while any(process.poll() is None for process in running):
        seen += [event.number for event in journal.events_since(seen[-1] if seen else 0)]
    assert [process.returncode for process in running] == [0] * 8
    seen += [event.number for event in journal.events_since(seen[-1] if seen else 0)]
    assert seen == list(range(1, 1601))
    found = journal.examine()
    assert not found.problems
    assert found.unanchored == 0
    for number in range(8):
        own = [data_of(event)["n"] for event in journal.events(where=EventFilter(forks=(f"f{number}",)))]
        assert own == list(range(200))
    assert archiving == path.with_suffix("").exists()
    times = [event.time for event in journal.events()]
    assert times == sorted(times)
    journal.close()


def test_a_writer_that_is_killed_leaves_a_whole_chain(path: Path) -> None:
    running = writers(path, 2)
    journal = again(path)
    while journal.head().number < 50:
        assert running[0].poll() is None
        give_way()
    running[0].kill()
    for process in running:
        process.wait()
    assert list(journal.events())[-1].number >= 200
    found = journal.examine()
    assert not found.problems
    journal.close()


# --- secrets ---


def test_secrets_are_not_written_down(path: Path) -> None:
    journal = again(path)
    journal.conceal(["swordfish-7", ""])
    data = {"command": ["curl", "-H", "Authorization: Bearer hunter2hunter2"], "notes": ["see swordfish-7"]}
    journal.append("run", "f", data, time=1)
    journal.close()
    for place in (path, Path(str(path) + "-wal")):
        raw = place.read_bytes() if place.exists() else b""
        assert b"hunter2" not in raw
        assert b"swordfish" not in raw
    assert data["notes"] == ["see swordfish-7"]


# --- a process that ends ---

LEFT = """
import os, sys
from mudroom.vault.journal.journal import Journal

for place in sys.argv[1:]:
    journal = Journal(os.fsencode(place).replace(b"\\\\", b"/"))
    journal.append("run", "f", {"text": "x" * 3000}, time=1)
    journal.leave()
os._exit(0)
"""


def append_and_end(*paths: Path) -> None:
    source = str(Path(__file__).parents[3] / "src")
    program = f"import sys; sys.path.insert(0, {source!r})\n{LEFT}"
    subprocess.run([sys.executable, "-c", program, *map(str, paths)], check=True)


def log_size(path: Path) -> int:
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def test_a_process_that_ends_leaves_a_short_log(path: Path) -> None:
    """The next ones go on with it, until it is moved to the file."""
    sizes = []
    for _process in range(12):
        append_and_end(path)
        sizes.append(log_size(path))
    assert 0 < sizes[0] < sizes[1] < max(sizes) <= _LOG
    assert 0 in sizes[2:]
    assert [event.number for event in again(path).events()] == list(range(1, 13))
    assert not again(path).examine().problems


def test_a_log_that_is_lost_takes_the_last_events_alone(path: Path) -> None:
    """As in a power cut. The next event is preceded by one that says so, since the head was kept."""
    journal = filled(path)
    journal.close()
    append_and_end(path)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    append_and_end(path)
    assert [event.kind for event in again(path).events()] == ["run"] * 5 + ["gap", "run"]
    found = again(path).examine()
    assert found.broken is None and [gap.number for gap in found.gaps] == [6]


def test_a_process_leaves_one_database_open(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    append_and_end(path, other)
    assert (bool(log_size(path)), bool(log_size(other))) == (True, False)


# --- what cannot be ---


def test_a_damaged_file_is_named(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 100)
    journal = again(path)
    with pytest.raises(MudroomError, match=r"journal\.db cannot be used"):
        journal.append("run", "f", {}, time=1)
    journal.close()


def test_a_journal_of_an_older_mudroom(path: Path) -> None:
    """Without origin and head."""
    from mudroom.core.journal.event import BEGIN, chained

    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(
        "CREATE TABLE event (number INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, "
        "fork TEXT NOT NULL, data TEXT NOT NULL, digest TEXT NOT NULL) STRICT"
    )
    last, head = None, BEGIN
    for number in range(3):
        last = chained(last, head, number, "run", "f", {"n": number})
        head = ChainHead(last.number, last.digest)
        database.execute("INSERT INTO event VALUES (?,?,?,?,?,?)", last)
    database.commit()
    database.close()
    journal = again(path)
    assert not journal.examine().problems
    assert journal.append("run", "f", {}, time=9) == 4
    assert [event.kind for event in journal.events()] == ["run"] * 4
    journal.close()
    by_hand(path, "DELETE FROM event WHERE number = 4")
    assert problem(path)[:2] == (4, "cut")


def in_child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_no_room_is_said_and_nothing_is_half_written(path: Path) -> None:
    """The file system is full: as far as SQLite sees it, like a limit on the size of files."""
    import resource

    filled(path).close()

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        journal = again(path)
        written = 5
        with pytest.raises(MudroomError, match="cannot be used") as caught:
            while True:
                journal.append("run", "f", {"text": "x" * 5000}, time=9)
                written += 1
        assert "make room" in caught.value.hint
        assert written > 10
        with pytest.raises(MudroomError):
            journal.append("run", "f", {"text": "x" * 200_000}, time=9)
        assert journal.head().number == written
        journal.close()

    assert in_child(work) == 0
    journal = again(path)
    assert not journal.examine().problems
    assert journal.append("run", "f", {}, time=9) == journal.head().number
    assert json.loads(next(iter(journal.events())).data)["n"] == 0
    journal.close()


def test_a_journal_can_be_read_where_nothing_can_be_written(path: Path) -> None:
    """A full disk, for SQLite, which makes two files beside a database in WAL mode."""
    import resource

    filled(path).close()

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        journal = again(path)
        assert [event.number for event in journal.newest()] == [5, 4, 3, 2, 1]
        assert journal.head().number == 5
        with pytest.raises(MudroomError, match="cannot be used"):
            journal.append("run", "f", {}, time=9)
        journal.close()

    assert in_child(work) == 0


def test_events_that_are_in_the_log_of_writes_alone_are_read_there_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = filled(path)
    assert path.with_name(path.name + "-wal").stat().st_size
    journal = again(path)

    def full(_self: Journal) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Journal, "_open", full)
    assert [event.number for event in journal.newest()] == [5, 4, 3, 2, 1]
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with pytest.raises(MudroomError, match="disk I/O error"):
        list(journal.newest())
    monkeypatch.undo()
    writer.close()


@pytest.mark.parametrize(
    ("code", "told"),
    [(sqlite3.SQLITE_CORRUPT, "a read of the disk has failed"), (sqlite3.SQLITE_IOERR_READ, "disk image is malformed")],
)
def test_a_read_of_the_disk_that_fails_once_is_no_damage(path: Path, code: int, told: str) -> None:
    """SQLite says "database disk image is malformed" when a read(2) of its file fails."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (a)")
    database.close()
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = code
    with pytest.raises(MudroomError) as caught, _NamedErrors(os.fsencode(path)):
        raise error
    assert told in str(caught.value)
    assert caught.value.hint == "the journal is whole: try again; dmesg may say what is wrong with the disk"
    path.write_bytes(b"x" * 8192)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    with pytest.raises(MudroomError, match="move it aside"), _NamedErrors(os.fsencode(path)):
        raise error
