"""The record of a certificate: whole and this machine's, or none."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mudroom.ext.certify.identity import Identity, identity
from mudroom.ext.certify.record import decode, encode, load, save
from mudroom.ext.certify.row import Certificate, RowResult, TrialRow

TABLE = (TrialRow("a", "files", "", "plain_write", "tree"), TrialRow("b", "files", "", "plain_read", "secret"))
CERTIFICATE = Certificate("darwin", "macOS 15.6 24G84", "arm64", 7, (RowResult("a", "held"), RowResult("b", "held")))
HERE = Identity("darwin", "macOS 15.6 24G84", "arm64", "tool", "modules", "python", "host", 0, "volume", "3.13 user")


class Kept:
    """A record in a state directory."""

    def __init__(self, state: Path) -> None:
        self.state = bytes(state)
        save(self.state, HERE, CERTIFICATE)
        self.directory = state / "certificates"
        self.path = self.directory / f"{HERE.key}.json"

    def load(self, here: Identity = HERE) -> tuple[Certificate | None, str]:
        return load(self.state, here, TABLE)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_a_record_is_read_again(kept: Kept) -> None:
    assert kept.load() == (CERTIFICATE, "")
    assert [oct(path.stat().st_mode & 0o777) for path in sorted(kept.directory.iterdir())] == ["0o600"] * 2


def cut_off(kept: Kept) -> None:
    kept.path.write_bytes(kept.path.read_bytes()[:-20])


def empty(kept: Kept) -> None:
    kept.path.write_bytes(b"")


def edited(kept: Kept) -> None:
    kept.path.write_bytes(kept.path.read_bytes().replace(b"held", b"fell", 1))


def world_writable(kept: Kept) -> None:
    kept.path.chmod(0o602)


def readable_by_others(kept: Kept) -> None:
    kept.path.chmod(0o644)


def link(kept: Kept) -> None:
    kept.path.rename(kept.directory / "elsewhere")
    kept.path.symlink_to(kept.directory / "elsewhere")


def directory(kept: Kept) -> None:
    kept.path.unlink()
    kept.path.mkdir()


def pipe(kept: Kept) -> None:
    kept.path.unlink()
    os.mkfifo(kept.path, 0o600)


def writable_directory(kept: Kept) -> None:
    kept.directory.chmod(0o777)


def without_key(kept: Kept) -> None:
    (kept.directory / "key").unlink()


def other_key(kept: Kept) -> None:
    (kept.directory / "key").write_bytes(bytes(32))


def short_key(kept: Kept) -> None:
    (kept.directory / "key").write_bytes(b"")


def key_of_others(kept: Kept) -> None:
    (kept.directory / "key").chmod(0o604)


def other_build_renamed(kept: Kept) -> None:
    kept.path.unlink()
    save(kept.state, HERE._replace(system="macOS 26.0 25A1"), CERTIFICATE)
    (kept.directory / f"{HERE._replace(system='macOS 26.0 25A1').key}.json").rename(kept.path)


def fewer_rows(kept: Kept) -> None:
    save(kept.state, HERE, CERTIFICATE._replace(rows=CERTIFICATE.rows[:1]))


def unknown_row(kept: Kept) -> None:
    save(kept.state, HERE, CERTIFICATE._replace(rows=(*CERTIFICATE.rows, RowResult("c", "held"))))


def row_twice(kept: Kept) -> None:
    save(kept.state, HERE, CERTIFICATE._replace(rows=(*CERTIFICATE.rows, RowResult("a", "held"))))


def unknown_verdict(kept: Kept) -> None:
    rows = (RowResult("a", "passed"), RowResult("b", "held"))  # type: ignore[arg-type]
    save(kept.state, HERE, CERTIFICATE._replace(rows=rows))


BAD = (
    cut_off, empty, edited, world_writable, readable_by_others, link, directory, pipe, writable_directory, without_key,
    other_key, short_key, key_of_others, other_build_renamed, fewer_rows, unknown_row, row_twice, unknown_verdict,
)  # fmt: skip


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_a_bad_record_is_none_and_says_so_in_one_line(kept: Kept, spoil: Callable[[Kept], None]) -> None:
    spoil(kept)
    certificate, why = kept.load()
    assert certificate is None
    assert why and "\n" not in why


@pytest.mark.parametrize("fact", Identity._fields)
def test_with_any_other_fact_there_is_no_record(kept: Kept, fact: str) -> None:
    values: dict[str, Any] = {fact: 1 if fact == "user" else "another"}
    other = HERE._replace(**values)
    assert kept.load(other) == (None, "it was certified with another system, mudroom or Python")


def test_a_record_that_was_copied_from_another_machine(kept: Kept, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    theirs = Kept(other)
    (kept.directory / "key").write_bytes((theirs.directory / "key").read_bytes())
    assert kept.load()[0] is None  # its key signs theirs only


def test_never_certified(tmp_path: Path) -> None:
    assert load(bytes(tmp_path), HERE, TABLE) == (None, "it is not certified yet")


def test_a_directory_that_others_may_write_in_gets_no_record(kept: Kept) -> None:
    kept.directory.chmod(0o777)
    with pytest.raises(PermissionError):
        save(kept.state, HERE, CERTIFICATE)


def test_two_that_certify_at_once_leave_one_record(tmp_path: Path) -> None:
    threads = [threading.Thread(target=save, args=(bytes(tmp_path), HERE, CERTIFICATE)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert load(bytes(tmp_path), HERE, TABLE).certificate == CERTIFICATE
    assert sorted(os.listdir(tmp_path / "certificates")) == sorted(["key", f"{HERE.key}.json"])


def test_two_processes_that_certify_at_once_leave_one_record_and_one_key(tmp_path: Path) -> None:
    children = []
    for _number in range(4):
        if not (child := os.fork()):
            try:
                for _again in range(5):
                    save(bytes(tmp_path), HERE, CERTIFICATE)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert load(bytes(tmp_path), HERE, TABLE).certificate == CERTIFICATE
    assert sorted(os.listdir(tmp_path / "certificates")) == sorted(["key", f"{HERE.key}.json"])


def test_a_record_that_is_swapped_while_it_is_read_opens_nothing_of_others(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the name and the reading of the file another puts a link there: what was opened is judged."""
    real = os.path.lexists

    def swapped(path: bytes) -> bool:
        found = real(path)
        if path == os.fsencode(kept.path) and not kept.path.is_symlink():
            link(kept)
        return found

    monkeypatch.setattr(os.path, "lexists", swapped)
    assert kept.load()[0] is None


def test_a_record_of_another_user_is_none(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert kept.load()[0] is None


def test_what_is_sent_has_no_path_and_no_name() -> None:
    assert decode(json.loads(json.dumps(encode(CERTIFICATE)))) == CERTIFICATE
    assert set(encode(CERTIFICATE)) == {"platform", "system", "machine", "made", "rows"}


def test_the_facts_of_this_machine(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("one")
    here = identity("linux", bytes(tmp_path), bytes(tool))
    assert here == identity("linux", bytes(tmp_path), bytes(tool)) and all(map(str, here))
    tool.write_text("two")
    assert identity("linux", bytes(tmp_path), bytes(tool))._replace(tool=here.tool) == here
    with pytest.raises(FileNotFoundError):
        identity("linux", bytes(tmp_path), bytes(tmp_path / "none"))
