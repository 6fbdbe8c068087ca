"""Slots in the project (``.mudroom/apply``), where the vault is on another file system: those of another vault stay."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.errors import MudroomError
from mudroom.vault.apply import slot_directory, transaction

pytestmark = pytest.mark.both_users


@pytest.fixture
def apart(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The vault as on another file system: slots are in the project. A removed directory is kept there for undo."""
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    place.write("src/a", "one\n")
    session, result = place.sh("rm -r src")
    session.changes.apply(result.fork)
    assert (place.project / ".mudroom/apply/u1/1/a").exists()
    place.state = place.root / "another"
    return place


def apply_new_file(place: Place) -> Any:
    session, result = place.sh("echo new > b")
    session.changes.apply(result.fork)
    return session


def test_an_apply_of_another_state_directory_lands_what_was_reviewed(apart: Place) -> None:
    """A container without a volume for the state, a state directory that was removed, two states at once."""
    shutil.rmtree(apart.root / "state")
    session = apply_new_file(apart)
    assert (apart.project / "b").read_text() == "new\n"
    assert (apart.project / ".mudroom/apply/u1/1/a").read_text() == "one\n", "what another vault's undo needs"
    session.changes.undo()
    assert not (apart.project / "b").exists()


def test_both_can_be_taken_back(apart: Place) -> None:
    apply_new_file(apart).changes.undo()
    apart.state = apart.root / "state"
    apart.session().changes.undo()
    assert (apart.project / "src/a").read_text() == "one\n"


def test_slots_that_are_made_at_the_same_time_are_left_alone(apart: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session, result = apart.sh("echo new > b")
    theirs = apart.project / ".mudroom/apply/u2"
    made = slot_directory.make_slots

    def between(record: Any, **more: Any) -> None:
        theirs.mkdir()
        (theirs / "1").write_text("theirs\n")
        made(record, **more)

    monkeypatch.setattr(transaction, "make_slots", between)
    with pytest.raises(MudroomError, match="u2 was made meanwhile"):
        session.changes.apply(result.fork)
    assert (theirs / "1").read_text() == "theirs\n" and not (apart.project / "b").exists()
    monkeypatch.setattr(transaction, "make_slots", made)
    session.changes.apply(result.fork)
    assert (apart.project / "b").read_text() == "new\n"
    assert Path(os.fsdecode(session.vault.applies()[-1])).name == "u3"
