"""An apply, a review and a rollback of a fork that the user has mounted."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Place
from mounted_fork import KINDS, changed, kind, mounted_new, session, sh
from mudroom.core.result import Result
from mudroom.errors import ForkMoved, MudroomError
from mudroom.session import Session
from mudroom.stage.views.mount import Kind, is_mounted
from mudroom.vault.apply import landing
from mudroom.vault.forks import stacking

__all__ = ["kind", "session"]  # fixtures
pytestmark = [pytest.mark.both_users, pytest.mark.root]


@pytest.mark.parametrize("reviews", [True, False])
def test_an_apply_of_a_mounted_fork(place: Place, session: Session, kind: Kind, reviews: bool) -> None:
    at = mounted_new(session, kind)
    (at / "file").write_text("changed\n")
    (at / "made").write_text("x\n")
    fingerprint = session.changes.review("f", at_rest=True).fingerprint if reviews and kind != "copy" else None
    if kind == "copy":
        with pytest.raises(MudroomError, match="is mounted at"):
            session.changes.review("f", at_rest=True)
        with session.alone("a test"), pytest.raises(MudroomError, match="is mounted at"):
            session.changes.apply("f")
        session.forks.unmount("f")
    with session.alone("a test"):
        session.changes.apply("f", reviewed=fingerprint)
    assert (place.project / "file").read_text() == "changed\n"
    assert (place.project / "made").read_text() == "x\n"
    assert changed(session) == set()
    if kind != "copy":
        assert (at / "made").read_text() == "x\n"
        (at / "after").write_text("y\n")
        assert sh(session, "cat made after").stdout == b"x\ny\n"
        assert changed(session) == {"after"}


@pytest.mark.parametrize("act", ["apply", "rollback"])
@pytest.mark.parametrize("kind", KINDS[:-1], indirect=True)
def test_a_command_that_waits_for_an_apply_does_not_keep_the_mount_away(
    place: Place, session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """It gets the fork's lock as soon as that is free, and may run for hours."""
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")
    session.forks.checkpoint("f", "point")
    waits = threading.Event()
    other = place.session(waiting=lambda _holder: waits.set())
    results: list[Result] = []
    command = threading.Thread(target=lambda: results.append(sh(other, "until [ -e go ]; do sleep 0.05; done")))

    def held_up(call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*arguments: Any, **options: Any) -> Any:
            command.start()
            assert waits.wait(20)
            return call(*arguments, **options)

        return calling

    monkeypatch.setattr(landing, "land", held_up(landing.land))
    monkeypatch.setattr(stacking, "rollback", held_up(stacking.rollback))
    try:
        with session.alone("a test") if act == "apply" else contextlib.nullcontext():
            session.changes.apply("f") if act == "apply" else session.forks.rollback("f", "point")
        assert is_mounted(os.fsencode(at))
    finally:
        if at.is_dir():
            (at / "go").touch()
        else:
            other.interrupt()
        command.join()
    assert [result.exit_code for result in results] == [0]
    assert (place.project / "made").exists() == (act == "apply")
    assert session.forks.unsaid() == []


@pytest.mark.parametrize("kind", KINDS[:-1], indirect=True)
def test_an_apply_while_the_mount_is_in_use(place: Place, session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")
    with open(at / "made"), session.alone("a test"), pytest.raises(MudroomError, match="cannot be unmounted"):
        session.changes.apply("f")
    assert not (place.project / "made").exists()
    assert sh(session, "cat made").stdout == b"x\n"


def test_changes_that_are_not_those_of_the_review_are_not_applied(place: Place, session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")
    session.changes.review("f")
    (at / "made").write_text("another\n")
    if kind == "copy":
        session.forks.unmount("f")
    with session.alone("a test"), pytest.raises(ForkMoved):
        session.changes.apply("f")
    assert not (place.project / "made").exists()
    if kind != "copy":
        assert (at / "made").read_text() == "another\n"


def test_conflicts_are_shown_while_it_is_mounted(place: Place, session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    (at / "file").write_text("theirs\n")
    place.write("file", "mine\n")
    if kind == "copy":
        with pytest.raises(MudroomError, match="is mounted at"):
            session.changes.conflicts("f")
        session.forks.unmount("f")
        assert [conflict.path for conflict in session.changes.conflicts("f")] == [b"file"]
        return
    assert [conflict.path for conflict in session.changes.conflicts("f")] == [b"file"]
    conflict = session.changes.conflict("f", b"file")
    assert conflict is not None
    assert (conflict.ours.content, conflict.theirs.content) == (b"mine\n", b"theirs\n")
    with pytest.raises(MudroomError, match="is mounted at"):
        session.changes.decide("f", conflict, "theirs")
    with session.alone("a test"):
        assert session.changes.apply("f").applied.conflicts
    assert (at / "file").read_text() == "theirs\n"
