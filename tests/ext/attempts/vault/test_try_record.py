"""Records of tries: kept small, damaged alone, and true about a try whose process was killed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from inner_path import inner
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.attempts import record as records
from mudroom.ext.attempts.value import FORMAT, AttemptRecord, TryRecord
from mudroom.vault.lock import LOCK_EX, LOCK_NB, flock


def a_try(name: str = "t1", *attempts: AttemptRecord, ended: int = 5) -> TryRecord:
    return TryRecord(FORMAT, name, 1, ended, (b"make",), (b"pytest", b"\xff"), "exit", "", 0, attempts)


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    vault = inner(tmp_path)
    lock = records.begin(vault)
    saved = a_try(lock.name, AttemptRecord(1, "t1-1", (b"a", b"\xff"), "passed", 0, 0, 0.5, "f" * 40, report=b"\xff\0"))
    records.save(vault, saved)
    lock.release()
    assert records.load(vault, "t1") == saved
    assert records.tries(vault) == records.Tries((saved,), ())


def test_reports_are_cut_to_their_end(tmp_path: Path) -> None:
    vault = inner(tmp_path)
    rows = tuple(AttemptRecord(n, f"f{n}", (), "failed", report=b"x" * 100_000 + b"end") for n in range(1, 101))
    records.save(vault, a_try(records.begin(vault).name, *rows))
    loaded = records.load(vault, "t1")
    assert all(row.report.endswith(b"xend") for row in loaded.attempts)
    assert (tmp_path / "attempts/t1/record").stat().st_size < records.REPORTS + 100_000
    one = a_try(records.begin(vault).name, rows[0])
    records.save(vault, one)
    assert len(records.load(vault, "t2").attempts[0].report) == records.REPORT


def test_two_tries_that_begin_at_once_have_different_names(tmp_path: Path) -> None:
    vault = inner(tmp_path)
    names: list[str] = []
    threads = [threading.Thread(target=lambda: names.append(records.begin(vault).name)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == sorted(f"t{n}" for n in range(1, 17))


def test_an_unfinished_try_is_running_while_its_lock_is_held_and_interrupted_afterwards(tmp_path: Path) -> None:
    vault = inner(tmp_path)
    lock = records.begin(vault)
    rows = (AttemptRecord(1, "a", (), "running"), AttemptRecord(2, "b", (), "passed"))
    records.save(vault, a_try(lock.name, *rows, ended=0))
    assert [row.state for row in records.load(vault, "t1").attempts] == ["running", "passed"]
    lock.release()
    killed = records.load(vault, "t1")
    assert [row.state for row in killed.attempts] == ["interrupted", "passed"]
    assert killed.end == "interrupted"


@pytest.mark.parametrize(
    "damage", [b"", b"\xc1", b"garbage", b"\x93\x01\xa2t1\x01", b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff"]
)
def test_a_damaged_record_costs_its_own_try_alone(tmp_path: Path, damage: bytes) -> None:
    vault = inner(tmp_path)
    for _number in range(2):
        records.save(vault, a_try(records.begin(vault).name))
    (tmp_path / "attempts/t1/record").write_bytes(damage)
    with pytest.raises(MudroomError):
        records.load(vault, "t1")
    assert [row.name for row in records.tries(vault).records] == ["t2"]
    assert records.tries(vault).damaged == ("t1",)


def test_a_record_is_not_read_through_a_link_nor_under_another_name(tmp_path: Path) -> None:
    vault = inner(tmp_path)
    for _number in range(2):
        records.save(vault, a_try(records.begin(vault).name))
    path = tmp_path / "attempts/t1/record"
    path.unlink()
    path.symlink_to(tmp_path / "attempts/t2/record")
    assert records.tries(vault).damaged == ("t1",)
    path.unlink()
    path.write_bytes((tmp_path / "attempts/t2/record").read_bytes())
    assert records.tries(vault).damaged == ("t1",)


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    vault = inner(tmp_path)
    records.save(vault, a_try(records.begin(vault).name)._replace(format=FORMAT + 1))
    with pytest.raises(MudroomError, match="newer mudroom"):
        records.load(vault, "t1")


@pytest.mark.parametrize("name", ["t9", "", "t", "t0", "t01", "../t1", "t1/..", "T1", "t" + "9" * 30, "t\u0661"])
def test_a_missing_try_is_the_users_error(tmp_path: Path, name: str) -> None:
    records.save(inner(tmp_path), a_try(records.begin(inner(tmp_path)).name))
    with pytest.raises(UsageError, match="there is no try named"):
        records.load(inner(tmp_path), name)


def test_old_records_go_but_running_ones_and_names_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = inner(tmp_path)
    monkeypatch.setattr(records, "KEPT", 2)
    first = records.begin(vault)
    records.save(vault, a_try(first.name, ended=0))
    for _number in range(4):
        lock = records.begin(vault)
        records.save(vault, a_try(lock.name))
        lock.release()
    records.expire(vault)
    assert [row.name for row in records.tries(vault).records] == ["t1", "t4", "t5"]
    assert records.begin(vault).name == "t6"


def test_the_lock_is_one_of_flock(tmp_path: Path) -> None:
    lock = records.begin(inner(tmp_path))
    with open(lock.place + b"/lock", "rb") as stream, pytest.raises(BlockingIOError):
        flock(stream.fileno(), LOCK_EX | LOCK_NB)
