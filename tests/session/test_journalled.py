"""What sessions write down: no secrets, and what happens where nothing can be written."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, act_as
from mudroom.core.clock import CommandStart
from mudroom.core.journal.event_filter import EventFilter
from mudroom.errors import MudroomError
from mudroom.session import Session
from mudroom.vault.journal.journal import Journal

SECRET = "correct-horse-battery"


def last(session: Session, kind: str = "run") -> dict[str, Any]:
    (event,) = session.vault.journal.events(last=1, where=EventFilter((kind,)))
    found: dict[str, Any] = json.loads(event.data)
    return found


def test_secrets_of_commands_are_not_in_the_journal(place: Place) -> None:
    session = place.session()
    session.run([b"true", b"--password", SECRET.encode()], fork="f")
    assert last(session)["command"] == ["true", "--password", "[redacted]"]
    result = session.run([b"sh", b"-c", f"X_TOKEN={SECRET} true".encode()], fork="f")
    assert result.command[2].endswith(SECRET.encode() + b" true"), "the result is the caller's, and whole"
    assert SECRET not in str(last(session))


def test_values_of_the_users_secret_variables_are_not_in_the_journal(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell has put them into the command, in whatever way."""
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    session = place.session()
    session.run([b"true", f"x{SECRET}y".encode()], fork="f")
    assert last(session)["command"] == ["true", "x[redacted]y"]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def fill() -> None:
        def insert(*_what: object) -> None:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

        monkeypatch.setattr(Journal, "_insert", insert)

    return fill


def test_a_command_that_cannot_be_journalled_has_run_and_its_changes_are_there(
    place: Place, full: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = place.session()
    session.run([b"touch", b"before"], fork="f")
    full()
    with pytest.raises(MudroomError) as caught:
        session.run([b"sh", b"-c", b"echo kept > after; exit 3"], fork="f")
    assert "the command has run (exit code 3), its changes are in the fork f; the journal" in caught.value.message
    assert "cannot be used: database or disk is full" in caught.value.message
    assert caught.value.hint == "make room on that file system: mudroom discard f gives back what it holds"
    monkeypatch.undo()
    assert {change.path for change in session.changes.of("f").changes} == {b"before", b"after"}
    assert session.vault.fork("f").interrupted is None
    session.changes.apply("f")
    assert (place.project / "after").read_text() == "kept\n"
    assert not session.vault.journal.examine().problems


def test_a_command_that_was_cut_off_with_mudroom_is_in_the_journal_when_its_changes_are(place: Place) -> None:
    session = place.session()
    session.run([b"touch", b"one"], fork="f")
    fork = session.vault.fork("f")
    fork.begin(CommandStart(time.time_ns()))
    assert {change.path for change in session.changes.of("f").changes} == {b"one"}
    assert last(session, "recover") == {"outcome": "collected", "changed": 1}
    assert len(list(session.vault.journal.events(where=EventFilter(("recover",))))) == 1


def test_an_apply_that_cannot_be_journalled_is_done_and_can_be_undone(
    place: Place, full: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = place.session()
    session.run([b"touch", b"new"], fork="f")
    full()
    with pytest.raises(MudroomError, match="cannot be used"):
        session.changes.apply("f")
    monkeypatch.undo()
    assert (place.project / "new").exists()
    session.changes.undo()
    assert not (place.project / "new").exists()


def test_a_long_session_archives(place: Place) -> None:
    """Without being asked, and while commands run."""
    session = place.session()
    journal = session.vault.journal
    journal.append_all([("edit", "f", {"x": "x" * 4000}) for _number in range(400)], time=time.time_ns())
    act_as(session, settings=session.actor.settings._replace(keep_journal=200_000))
    result = session.run([b"true"], fork="f")
    assert result.notes == ()
    found = os.listdir(Path(os.fsdecode(session.vault.path)) / "journal")
    assert [name for name in found if name.endswith(".gz")] == ["000000001-000000301.jsonl.gz"]
    assert len(list(journal.events())) == journal.head().number
    assert not journal.examine().problems


def test_where_nothing_can_be_archived_commands_run(place: Place) -> None:
    session = place.session()
    journal = session.vault.journal
    journal.append_all([("edit", "f", {"x": "x" * 4000}) for _number in range(400)], time=1)
    (Path(os.fsdecode(session.vault.path)) / "journal").write_text("in the way")
    act_as(session, settings=session.actor.settings._replace(keep_journal=200_000))
    result = session.run([b"true"], fork="f")
    assert result.exit_code == 0
    assert any("could not be archived" in note for note in result.notes)
