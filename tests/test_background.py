"""Commands in the background of a fork, through the library: beside them others run, and all ends with the session."""

from __future__ import annotations

import pytest

from conftest import Place, full_listing
from mudroom.core.settings import Settings
from mudroom.joining import Background
from mudroom.session import Session

SH = (b"sh", b"-c")
SERVER = "echo up; echo there > made; while :; do sleep 0.02; done"


def heard(background: Background, what: bytes) -> None:
    """Until it has printed that; a test has its own limit of time."""
    while what not in background.output()[0]:
        assert background.poll() is None, background.output()


def started(session: Session, script: str, fork: str = "f", **options: float) -> Background:
    background = session.start([*SH, script.encode()], fork=fork, **options)
    heard(background, b"up")
    return background


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_a_command_runs_beside_one_in_the_background(place: Place, view: str) -> None:
    place.write("old", "o\n")
    before = full_listing(place.project)
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    server = started(session, SERVER)
    result = session.run([*SH, b"cat made; echo hello > said; echo more >> old"], fork="f")
    assert (result.exit_code, result.stdout) == (0, b"there\n")
    assert {change.path for change in result.changeset.changes} == {b"made", b"said", b"old"}
    assert all(change.original_known for change in result.changeset.changes)
    ended = server.end()
    assert ended is not None and ended.signal == 15
    assert {change.path for change in session.changes("f").changes} == {b"made", b"said", b"old"}
    assert full_listing(place.project) == before
