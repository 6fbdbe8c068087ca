"""An engine of which it is known already that its containers permit no namespaces."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from conftest import Place
from mudroom.core.container import Engine
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported
from mudroom.granting import Grant
from mudroom.session import Session

pytestmark = pytest.mark.both_users

FLAT = SimpleNamespace(engine=Engine("docker", b"/usr/bin/docker", nested=False))


def session_of(place: Place, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Session:
    session = place.session(settings)
    monkeypatch.setattr(session, "_boxes", lambda: FLAT)
    session._grant = Grant(2)
    session._notes = []
    return session


def test_it_begins_there_and_says_so_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(place, Settings(), monkeypatch)
    fork = session.new_fork("f")
    assert [session._first_mode(fork)[0] for _ in range(2)] == ["plain", "plain"]
    assert len(session._notes) == 1 and "permits no user namespaces" in session._notes[0]
    told = [json.loads(event.data)["to"] for event in session.vault.journal.events() if event.kind == "degrade"]
    assert told == ["plain"]


def test_an_overlay_that_the_policy_asks_for_is_not_replaced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(place, Settings(view="overlay"), monkeypatch)
    with pytest.raises(Unsupported, match="the overlay view needs a kernel overlay"):
        session._first_mode(session.new_fork("f"))
