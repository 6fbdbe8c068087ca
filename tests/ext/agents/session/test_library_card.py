"""A room that is opened by the card of an agent."""

from __future__ import annotations

import json

import pytest

import mudroom
from conftest import Place
from rooms import environ_of, policy


def test_a_card_names_the_agent(place: Place) -> None:
    card = place.root / "card.json"
    card.write_text(json.dumps({"agentId": "planner", "sandboxLevel": 1}))
    policy(place, "roles: {r: {classes: {read_only: deny}}}\nagents: {planner: r}\n")
    with mudroom.open(place.project, card=card, environ=environ_of(place)) as room:
        assert not room.run(["ls"]).ran
    card.write_text("{")
    with pytest.raises(mudroom.UsageError, match=r"card\.json:1: this is not JSON"):
        mudroom.open(place.project, card=card, environ=environ_of(place))


def test_a_card_that_is_not_there(place: Place) -> None:
    with pytest.raises(mudroom.UsageError, match=r"/no/card\.json: No such file or directory"):
        mudroom.open(place.project, card="/no/card.json", environ=environ_of(place))
