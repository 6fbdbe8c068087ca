"""Two processes write to one fork with file tools: each change keeps the original that it started from."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.session import Session
from mudroom.stage.buffer.buffer import Buffer
from mudroom.vault.apply import landing
from mudroom.vault.apply.landing import LandingResult
from mudroom.vault.forks import editor

LINES = "".join(f"line {number}\n" for number in range(9))
EDITED = LINES.replace("line 1\n", "the fork's\n")
MERGED = EDITED.replace("line 7\n", "the user's\n")


@pytest.fixture
def one(place: Place) -> Session:
    for name in ("a", "b"):
        place.write(name, f"{name}\n{LINES}")
    place.write("c", "c\n")
    session = place.session(Settings())
    session.forks.new("f")
    return session


@pytest.fixture
def other(one: Session, place: Place) -> Session:
    assert one.vault.find("f") is not None
    return place.session(Settings())


def edit(session: Session, name: str) -> None:
    session.forks.files("f").write(name, f"{name}\n{EDITED}")


def edit_as_user(place: Place, *names: str) -> None:
    for name in names:
        place.write(name, f"{name}\n" + LINES.replace("line 7\n", "the user's\n"))


def test_both_keep_an_original_before_either_writes(place: Place, one: Session, other: Session) -> None:
    one.forks.files("f").write("c", "another length\n")
    edit(other, "b")
    one.forks.flush("f")
    other.forks.flush("f")
    edit_as_user(place, "b")
    assert one.changes.apply("f").conflicts == ()
    assert (place.project / "b").read_text() == f"b\n{MERGED}"
    assert (place.project / "c").read_text() == "another length\n"


def test_both_keep_a_large_original(place: Place, one: Session, other: Session) -> None:
    large = "x" * (2 << 20) + "\n"
    for name in ("a", "b"):
        place.write(name, large + LINES)
    for session, name in ((one, "a"), (other, "b")):
        session.forks.files("f").write(name, large + EDITED)
    one.forks.flush("f")
    other.forks.flush("f")
    for name in ("a", "b"):
        place.write(name, large + LINES.replace("line 7\n", "the user's\n"))
    assert one.changes.apply("f").conflicts == ()
    assert [(place.project / name).read_text() == large + MERGED for name in "ab"] == [True, True]


def test_a_new_secret_between_a_write_and_its_flush(place: Place, one: Session) -> None:
    """The fork is opened again with another mask."""
    edit(one, "a")
    place.write(".env", "KEY=1\n")
    one.forks.secrets.look()
    edit_as_user(place, "a")
    assert one.changes.apply("f").conflicts == ()
    assert (place.project / "a").read_text() == f"a\n{MERGED}"


@pytest.mark.parametrize("what", ["apply", "rollback", "checkpoint", "command"])
def test_another_process_changes_the_layers_before_the_flush(
    place: Place, one: Session, other: Session, what: str
) -> None:
    edit(other, "b")
    if what == "rollback":
        other.forks.checkpoint("f", "point")
        other.run((b"touch", b"more"), fork="f")
    one.forks.files("f").read("c")
    edit(one, "a")
    if what == "apply":
        assert other.changes.apply("f").conflicts == ()
    elif what == "rollback":
        other.forks.rollback("f", "point")
    elif what == "checkpoint":
        other.forks.checkpoint("f", "point")
    else:
        other.run((b"touch", b"more"), fork="f")
    edit_as_user(place, "a")
    one.forks.flush("f")
    assert b"a" in [change.path for change in one.changes.of("f").changes]
    assert one.changes.apply("f").conflicts == ()
    assert (place.project / "a").read_text() == f"a\n{MERGED}"
    assert (place.project / "b").read_text() == f"b\n{EDITED}"
    assert not os.listdir(one.vault.path + b"/trash")


@pytest.mark.parametrize("by", ["file tools", "command"])
def test_a_directory_that_both_have_made_has_the_files_of_both(one: Session, other: Session, by: str) -> None:
    one.forks.files("f").write("new/deep/one", "one\n")
    if by == "command":
        other.run((b"sh", b"-c", b"mkdir -p -m 700 new/deep; echo other > new/deep/other; echo x > new/x"), fork="f")
    else:
        other.forks.files("f").write("new/deep/other", "other\n")
        other.forks.files("f").write("new/x", "x\n")
        other.forks.flush("f")
    one.forks.flush("f")
    files = one.forks.files("f")
    contents = [files.read(name) for name in ("new/deep/one", "new/deep/other", "new/x")]
    assert contents == [b"one\n", b"other\n", b"x\n"]
    assert one.forks.unsaid() == []


@pytest.mark.parametrize("by", ["user", "apply"])
def test_a_directory_that_is_made_in_the_project_too_keeps_its_files(
    place: Place, one: Session, other: Session, by: str
) -> None:
    one.forks.files("f").write("new/one", "one\n")
    if by == "apply":
        other.run((b"sh", b"-c", b"mkdir new; echo theirs > new/theirs"), fork="f")
        other.changes.apply("f")
    else:
        place.write("new/theirs", "theirs\n")
    one.forks.flush("f")
    assert b"new/theirs" not in [change.path for change in one.changes.of("f").changes]
    one.changes.apply("f")
    assert sorted(os.listdir(place.project / "new")) == ["one", "theirs"]


@pytest.mark.parametrize("what", ["checkpoint", "apply"])
def test_a_large_original_before_the_layers_change(place: Place, one: Session, other: Session, what: str) -> None:
    large = "x" * (2 << 20) + "\n"
    place.write("a", large + LINES)
    edit(other, "b")
    other.forks.flush("f")
    one.forks.files("f").write("a", large + EDITED)
    if what == "apply":
        assert other.changes.apply("f").conflicts == ()
    else:
        other.forks.checkpoint("f", "point")
    place.write("a", large + LINES.replace("line 7\n", "the user's\n"))
    conflicts = [conflict.path for conflict in one.changes.apply("f").conflicts]
    if what == "apply":  # the copy has gone with the layer, so nobody knows what the change started from
        assert conflicts == [b"a"]
        assert (place.project / "a").read_text() == large + LINES.replace("line 7\n", "the user's\n")
    else:
        assert conflicts == []
        assert (place.project / "a").read_text() == large + MERGED


def test_large_writes_outlive_the_end_of_another_session(place: Place, one: Session) -> None:
    """They are in files until they are flushed."""
    large = b"y" * (96 << 20)
    other = place.session(Settings())
    other.forks.files("f").write("c", b"c")
    one.forks.files("f").write("large", large)
    other.close()
    assert one.forks.files("f").read("large") == large
    one.forks.flush("f")
    assert one.changes.apply("f").conflicts == ()
    assert (place.project / "large").read_bytes() == large


def test_what_a_killed_session_has_spilled_goes_with_the_next(place: Place, one: Session) -> None:
    spill = Path(os.fsdecode(one.vault.fork("f").path)) / "spill"
    (spill / "left").mkdir(parents=True)
    (spill / "left/1").write_text("x")
    one.forks.files("f").write("c", "c")
    kept = set(os.listdir(spill)) - {"left"}
    other = place.session(Settings())
    other.forks.files("f").write("d", "d")
    other.close()
    assert set(os.listdir(spill)) == kept
    one.forks.tools.drop("f")
    assert not spill.exists()


def test_a_thread_compares_while_another_opens_the_fork_again(
    one: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptors that it compares stay open until it has done so."""
    one.forks.files("f").write("a", "one\n")
    other.forks.files("f").write("b", "other\n")
    other.forks.flush("f")
    beside = threading.Thread(target=lambda: one.forks.files("f").read("b"))
    look, waits = editor._opened_identity, list[bool]()

    def looked(pin: int) -> tuple[int, int] | None:
        if not beside.ident:
            beside.start()
            beside.join(0.2)
            waits.append(beside.is_alive())
        return look(pin)

    monkeypatch.setattr(editor, "_opened_identity", looked)
    assert one.forks.files("f").read("b") == b"other\n"
    beside.join()
    assert waits == [True]


@pytest.mark.parametrize("verb", ["apply", "rollback"])
def test_a_change_of_a_version_that_an_apply_has_merged_does_not_take_the_users_edit_back(
    place: Place, one: Session, other: Session, verb: str
) -> None:
    """It was made from the fork's version, which is nowhere any more."""
    one.forks.checkpoint("f", "before")
    edit(one, "a")
    one.forks.flush("f")
    other.forks.files("f").edit("a", "line 3\n", "later\n")  # in memory
    edit_as_user(place, "a")
    one.changes.apply("f") if verb == "apply" else one.forks.rollback("f", "before")
    other.forks.flush("f")
    (remark,) = other.forks.unsaid()
    assert remark.startswith("a: another writer has changed it in the fork meanwhile, and that version stays")
    kept = Path(remark.rpartition(" is in ")[2])
    assert kept.read_text() == "a\n" + EDITED.replace("line 3\n", "later\n")
    assert one.changes.of("f").changes == ()
    assert "the user's\n" in (place.project / "a").read_text()


def test_an_edit_fails_if_an_apply_has_merged_the_file_since_it_was_read(
    place: Place, one: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(one, "a")
    one.forks.flush("f")
    files, read = other.forks.files("f"), Buffer.read
    assert files.read("a") == f"a\n{EDITED}".encode()

    def merged(buffer: Buffer, path: bytes) -> bytes:
        content = read(buffer, path)
        edit_as_user(place, "a")
        one.changes.apply("f")
        assert files.look("b/c") is None  # so that the fork is opened anew
        return content

    monkeypatch.setattr(Buffer, "read", merged)
    with pytest.raises(OSError, match="another writer has changed this file since it was opened"):
        files.edit("a", "line 3\n", "later\n")
    assert one.changes.of("f").changes == ()


def test_a_fork_without_a_name_stays_after_an_apply_if_another_session_has_changes_of_it_in_memory(
    place: Place, one: Session, other: Session
) -> None:
    name = one.run([b"sh", b"-c", b"echo 1 > first"]).fork
    other.forks.files(name).write("second", "2\n")
    assert one.changes.apply(name).remaining == 0
    other.forks.flush(name)
    assert [change.path for change in one.changes.of(name).changes] == [b"second"]
    assert (place.project / "first").read_text() == "1\n"
    other.forks.tools.drop(name)
    one.changes.apply(name)
    assert one.vault.find(name) is None
    assert (place.project / "second").read_text() == "2\n"


def test_a_fork_is_not_renamed_while_another_session_may_have_changes_of_it_in_memory(
    one: Session, other: Session
) -> None:
    other.forks.files("f").write("second", "2\n")
    with pytest.raises(UsageError, match="file tools of another session work in f"):
        one.forks.rename("f", "g")
    other.close()
    one.forks.files("f").write("third", "3\n")
    one.forks.rename("f", "g")
    assert [change.path for change in one.changes.of("g").changes] == [b"second", b"third"]


def test_a_write_of_another_thread_lands_before_a_fork_without_a_name_is_discarded_or_says_that_it_is_gone(
    place: Place, one: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = one.run([b"sh", b"-c", b"echo 1 > first"]).fork
    files, said, waits = one.forks.files(name), list[object](), threading.Event()
    files.write("first", "2\n")

    def write() -> None:
        try:
            files.write("late", "late\n")
            said.append(None)
        except MudroomError as error:
            said.append(error)
        waits.set()

    class Paused(dict):  # type: ignore[type-arg]
        def get(self, *words: object) -> object:
            if threading.current_thread() is thread:
                waits.set()
            return super().get(*words)

    thread, land = threading.Thread(target=write), landing.land

    def beside(*words: Any, **options: Any) -> LandingResult:
        thread.start()
        waits.wait()
        return land(*words, **options)

    one.forks.tools._paused = Paused()
    monkeypatch.setattr(landing, "land", beside)
    one.changes.apply(name)
    thread.join()
    assert isinstance(said[0], MudroomError) or (place.project / "late").exists() or one.vault.find(name) is not None
    assert (place.project / "first").read_text() == "2\n"
