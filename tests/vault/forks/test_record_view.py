"""What a record comes to: rows and tags as the project's ``.gitignore`` files are now, whatever was kept of them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clocks import give_way
from conftest import Place
from mudroom.core.tree.entry import Entry
from mudroom.session import Session
from mudroom.stage.file_cache import FileCache
from mudroom.stage.source import DirectorySource
from mudroom.stage.stamp import is_settled, stamp_of
from mudroom.vault.forks.record_view import RecordView, TaggedRows, view_record
from mudroom.vault.forks.review import fingerprint


def settle(path: Path) -> None:
    while not is_settled(path.lstat().st_ctime_ns, time.time_ns()):
        give_way()


def keeping(place: Place) -> Session:
    """A session that keeps what it reads; a record in it is some time old."""
    session = place.session()
    session.vault.reading = FileCache(clock=lambda: time.time_ns() + 10**10)
    return session


def gist(session: Session) -> RecordView:
    return view_record(session.vault.reading, session.forks.record("f"))


def ignored(session: Session) -> set[bytes]:
    return {path for path, tags in gist(session).tagged(session.vault).tags.items() if "ignored" in tags}


@pytest.fixture
def session(place: Place) -> Session:
    place.write(".gitignore", "*.log\n")
    place.write("d/kept", "x\n")
    session = keeping(place)
    session.forks.new("f")
    files = session.forks.files("f")
    for path in (b"a.log", b"a.txt", b"d/b.log", b"d/b.txt"):
        files.write(path, b"new\n")
    session.forks.flush("f")
    return session


def test_it_is_worked_out_once(session: Session, place: Place) -> None:
    settle(place.project / ".gitignore")
    first = gist(session)
    assert gist(session) is first
    assert first.tagged(session.vault) is first.tagged(session.vault)
    assert first.fingerprint == fingerprint(session.changes.of("f"))
    assert [change.path for change in first.rows] == [b"a.log", b"a.txt", b"d/b.log", b"d/b.txt"]
    assert first.by_path[b"a.txt"] == first.rows[1]
    assert first.summary.added == 4


def test_a_fork_that_holds_nothing(place: Place) -> None:
    session = keeping(place)
    session.forks.new("f")
    found = gist(session)
    assert (found.rows, found.by_path, found.summary.files) == ((), {}, 0)
    assert found.fingerprint == fingerprint(found.changeset)


def other_rules(root: Path) -> None:
    (root / ".gitignore").write_text("*.txt\n")


def same_size_and_time(root: Path) -> None:
    path = root / ".gitignore"
    before = path.stat()
    path.write_text("*.txt\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def another_file(root: Path) -> None:
    (root / ".new").write_text("*.txt\n")
    (root / ".new").rename(root / ".gitignore")


def one_below(root: Path) -> None:
    (root / "d/.gitignore").write_text("!*.log\n*.txt\n")


def none_any_more(root: Path) -> None:
    (root / ".gitignore").unlink()


def a_link(root: Path) -> None:
    (root / ".gitignore").rename(root / "elsewhere")
    (root / ".gitignore").symlink_to("elsewhere")


LOGS, TEXTS = {b"a.log", b"d/b.log"}, {b"a.txt", b"d/b.txt"}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (other_rules, TEXTS),
        (same_size_and_time, TEXTS),
        (another_file, TEXTS),
        (one_below, {b"a.log", b"d/b.txt"}),
        (none_any_more, set()),
        (a_link, set()),
    ],
)
def test_rules_that_have_changed_count_at_once(
    session: Session, place: Place, change: Callable[[Path], None], found: set[bytes]
) -> None:
    settle(place.project / ".gitignore")
    before = gist(session).tagged(session.vault)
    assert ignored(session) == ignored(session) == LOGS
    change(place.project)
    assert ignored(session) == found
    assert ignored(session) == found
    assert gist(session).tagged(session.vault) is not before


def test_the_project_is_not_asked_about_each_directory_that_only_the_fork_has(
    session: Session, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = session.forks.files("f")
    for number in range(50):
        files.write(b"node_modules/p%d/lib/x.log" % number, b"new\n")
    session.forks.flush("f")
    settle(place.project / ".gitignore")
    looks: list[bytes] = []

    def looking(source: DirectorySource, path: bytes) -> Entry | None:
        looks.append(path)
        return look(source, path)

    look = DirectorySource.look
    monkeypatch.setattr(DirectorySource, "look", looking)
    logs = {b"node_modules/p%d/lib/x.log" % number for number in range(50)} | LOGS
    assert ignored(session) == logs
    assert sorted(looks) == [b".gitignore", b"d", b"d/.gitignore", b"node_modules"]
    looks.clear()
    assert ignored(session) == logs
    assert sorted(looks) == [b".gitignore", b"d/.gitignore", b"node_modules"]
    place.write("node_modules/p7/.gitignore", "!*.log\n")
    assert ignored(session) == logs - {b"node_modules/p7/lib/x.log"}
    shutil.rmtree(place.project / "node_modules")
    assert ignored(session) == logs


def test_what_the_fork_makes_of_the_rules_does_not_count(session: Session) -> None:
    files = session.forks.files("f")
    files.write(b".gitignore", b"*.txt\n")
    session.forks.flush("f")
    assert ignored(session) == LOGS


def test_what_is_made_of_rows_is_made_once_for_them(session: Session, place: Place) -> None:
    settle(place.project / ".gitignore")

    def lines(tagged: TaggedRows) -> list[bytes]:
        return [change.path + b" " + ",".join(tagged.tags[change.path]).encode() for change in tagged.rows]

    first = gist(session).tagged(session.vault).once(lines)
    assert first is gist(session).tagged(session.vault).once(lines)
    assert first[0] == b"a.log ignored"
    none_any_more(place.project)
    assert gist(session).tagged(session.vault).once(lines)[0] == b"a.log "


def test_a_record_that_was_replaced_is_another_one(session: Session, place: Place) -> None:
    first = gist(session)
    record = session.vault.fork("f").record_path
    before = stamp_of(record)
    assert before is not None
    files = session.forks.files("f")
    files.write(b"a.txt", b"NEW\n")
    session.forks.flush("f")
    os.utime(record, ns=(before.mtime, before.mtime))
    now = gist(session)
    assert now is not first
    assert now.fingerprint == fingerprint(place.session().changes.of("f")) != first.fingerprint
