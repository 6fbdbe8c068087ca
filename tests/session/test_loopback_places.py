"""Which places of this machine's loopback have listeners, by the way in which a command is confined."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.core.confinement.fallback import Mode
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.network.loopback import MOST, LoopbackPlace
from mudroom.session.confinement.loopback import make_listeners, places_for

RULES = [parse_rule("127.0.0.1:8377", "allow"), parse_rule("localhost:1234", "allow")]
FIRST = LoopbackPlace("127.0.0.1", 1234)


@pytest.mark.parametrize("mode", ["overlay", "copy", "landlock", "plain"])
def test_where_the_gate_has_listeners(mode: Mode) -> None:
    places, notes = places_for(RULES, mode)
    assert [str(place) for place in places] == ["127.0.0.1:1234", "127.0.0.1:8377", "[::1]:1234"]
    assert notes == []


@pytest.mark.parametrize("mode", ["remote", "seatbelt"])
def test_where_only_the_proxy_leads_there_it_is_said(mode: Mode) -> None:
    places, (note,) = places_for(RULES, mode)
    assert not places
    assert note.startswith("127.0.0.1:1234 of this machine and 2 more: reached from ")
    assert places_for([parse_rule("shop.example", "allow")], mode) == ([], [])


def test_too_many_are_said() -> None:
    rule = parse_rule("127.0.0.1:" + ",".join(str(8000 + number) for number in range(MOST + 3)), "allow")
    places, (note,) = places_for([rule], "overlay")
    assert len(places) == MOST
    assert note == f"rules name {MOST + 3} ports of this machine; only the first {MOST} are open"


def test_a_network_that_cannot_be_entered_is_said(tmp_path: Path) -> None:
    """The descriptors lead to no namespaces."""
    descriptors = [os.open(tmp_path, os.O_RDONLY) for _number in range(2)]
    before = os.listdir("/proc/self/fd")
    try:
        listeners, notes = make_listeners([FIRST, LoopbackPlace("::1", 1234)], descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    assert listeners == []
    assert [note.partition(": ")[0] for note in notes] == [
        "127.0.0.1:1234 is open to the next command; not to this one",
        "[::1]:1234 is open to the next command; not to this one",
    ]
    assert len(os.listdir("/proc/self/fd")) == len(before) - 2
