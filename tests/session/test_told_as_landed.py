"""An apply, undo or redo that has landed is told as landed, whatever fails after it."""

from __future__ import annotations

import errno

import pytest

from conftest import Place
from mudroom.errors import ApplyUnwritten, MudroomError
from mudroom.session.session import Session
from mudroom.vault.apply import landing
from mudroom.vault.apply.transaction import ApplyDirectory
from mudroom.vault.journal.journal import Journal

FAILURES = [
    (MemoryError(), "out of memory"),
    (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    (MudroomError("the journal cannot be written", "make room"), "the journal cannot be written"),
    (ImportError("x.so: failed to map segment from shared object"), "out of memory"),
]


@pytest.fixture
def session(place: Place) -> Session:
    place.write("a", "1\n")
    session = place.session()
    session.run([b"sh", b"-c", b"echo 2 > a"], fork="f")
    return session


@pytest.mark.parametrize(("failure", "why"), FAILURES)
def test_what_fails_after_it_is_told_behind_it(
    place: Place, session: Session, monkeypatch: pytest.MonkeyPatch, failure: Exception, why: str
) -> None:
    def failing(*_words: object, **_more: object) -> None:
        raise failure

    said = f"u1 has been {{}}; after that: {why}"
    with session.alone("a test"), monkeypatch.context() as patch:
        patch.setattr(Journal, "append", failing)
        with pytest.raises(ApplyUnwritten) as applied:
            session.changes.apply("f")
        assert ((place.project / "a").read_text(), applied.value.message) == ("2\n", said.format("applied"))
        with pytest.raises(ApplyUnwritten) as undone:
            session.changes.undo()
        assert ((place.project / "a").read_text(), undone.value.message) == ("1\n", said.format("undone"))
        with pytest.raises(ApplyUnwritten) as redone:
            session.changes.redo()
        assert ((place.project / "a").read_text(), redone.value.message) == ("2\n", said.format("redone"))
    with session.alone("a test"):
        assert session.changes.undo().name == "u1"
    assert (place.project / "a").read_text() == "1\n"


def test_what_fails_within_its_last_step_is_told_behind_it(
    place: Place, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fork's own record follows the landing."""
    perform = landing.perform

    def failing(*words: object, **more: object) -> None:
        perform(*words, **more)  # type: ignore[arg-type]
        raise MemoryError

    monkeypatch.setattr(landing, "perform", failing)
    with session.alone("a test"), pytest.raises(ApplyUnwritten, match="u1 has been applied; after that: out of memory"):
        session.changes.apply("f")
    assert (place.project / "a").read_text() == "2\n"


def test_what_fails_before_it_is_told_as_it_is(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_words: object, **_more: object) -> None:
        raise MemoryError

    monkeypatch.setattr(landing, "perform", failing)
    with session.alone("a test"), pytest.raises(MemoryError):
        session.changes.apply("f")
    with pytest.raises(MudroomError, match="no apply named u7"), session.alone("a test"):
        session.changes.undo("u7")


def test_a_record_that_cannot_be_read_hides_no_failure(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_place: ApplyDirectory) -> str:
        raise OSError(errno.EIO, "Input/output error")

    def failing(*_words: object, **_more: object) -> None:
        monkeypatch.setattr(ApplyDirectory, "state", unreadable)
        raise MemoryError

    with session.alone("a test"):
        assert session.changes.apply("f").applied.name == "u1"
    session.run([b"sh", b"-c", b"echo 3 > a"], fork="g")
    monkeypatch.setattr(landing, "perform", failing)
    with session.alone("a test"), pytest.raises(MemoryError):
        session.changes.apply("g")
