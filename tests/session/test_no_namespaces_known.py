"""An engine of which it is known already that its containers permit no namespaces."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import cast

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported
from mudroom.session import Session
from mudroom.session.confinement.grant import Grant
from mudroom.session.confinement.level_two import SessionContainers
from mudroom.session.order import Order, Outcome

pytestmark = pytest.mark.both_users

ENGINE = SimpleNamespace(mode="plain")
FLAT = SimpleNamespace(engine=ENGINE, forget=lambda _fork: None, close=lambda: None)


def session_of(place: Place, settings: Settings) -> tuple[Session, Order]:
    session = place.session(settings)
    session.machine._containers = cast(SessionContainers, FLAT)
    return session, Order((), session.project, session.actor, Grant(2))


def test_it_begins_there_and_says_so_once(place: Place) -> None:
    session, order = session_of(place, Settings())
    fork = session.forks.new("f")
    outcome = Outcome()
    assert [session.machine.first_mode(fork, order, outcome) for _ in range(2)] == ["plain", "plain"]
    assert len(outcome.notes) == 1 and "permits no user namespaces" in outcome.notes[0]
    told = [json.loads(event.data)["to"] for event in session.vault.journal.events() if event.kind == "degrade"]
    assert told == ["plain"]


def test_an_overlay_that_the_policy_asks_for_is_not_replaced(place: Place) -> None:
    session, order = session_of(place, Settings(view="overlay"))
    with pytest.raises(Unsupported, match="the overlay view needs a kernel overlay"):
        session.machine.first_mode(session.forks.new("f"), order, Outcome())
