"""The escape suite of two: what a command achieves with an accomplice in another fork, however both are confined.

All of it: ``pytest tests/session/test_escape_pairs.py``. The quick tier tries every pair at level 1, and of the
other levels, relations and ways to land some each day.
"""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from box import NAMESPACES
from conformance.escapes.pairs import landing
from conformance.escapes.pairs.backend import BACKENDS, RELATIONS, STANDING, landed, sides
from conformance.escapes.pairs.known import LANDS, NOT_HELD
from conformance.escapes.pairs.outside import Ground, Meeting, meet
from conformance.escapes.pairs.pair import PAIRS
from conformance.escapes.pairs.side import ProcessSide, own_host_name
from conformance.escapes.pairs.way import WAYS, unconfined
from mudroom.core.registry import is_installed
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.host.host import landlock_abi
from tiers import daily, pairs

pytestmark = [pytest.mark.both_users, pytest.mark.alone]


def possible(name: str) -> bool:
    if BACKENDS[name].store and not is_installed("agents"):
        return False  # a card opens it
    return NAMESPACES if BACKENDS[name].namespaces else bool(landlock_abi())


HERE = [name for name in BACKENDS if possible(name)]
FIRST = HERE[0]
CONFINED = [name for name in HERE if name.startswith("1,") and not BACKENDS[name].store]
MOST = [*CONFINED, *daily(name for name in HERE if name not in CONFINED)]


@pytest.fixture
def ground() -> Iterator[Ground]:
    with Ground() as ground:
        yield ground


def met(meetings: Mapping[str, Meeting]) -> dict[str, str]:
    mistaken = {name: meeting.error for name, meeting in meetings.items() if meeting.error.startswith("mistaken")}
    assert mistaken == {}, "it proves nothing"
    return {name: meeting.evidence for name, meeting in meetings.items() if meeting.evidence}


@pytest.mark.root
@pytest.mark.parametrize("name", MOST)
def test_two_forks_do_not_meet(ground: Ground, client: Client, name: str) -> None:
    steady = {pair for pair in NOT_HELD[name] if PAIRS[pair].group != "signals"}
    with sides(ground, BACKENDS[name], client=client) as (giver, taker):
        found = met(meet(ground, giver, taker, expected=steady))
    assert {pair: how for pair, how in found.items() if pair not in NOT_HELD[name]} == {}
    assert steady - set(found) == set(), "they are held now: remove them from known.py and docs/THREATS.md"


@pytest.mark.parametrize("relation", daily(RELATIONS))
def test_nor_do_they_in_another_relation(ground: Ground, client: Client, relation: str) -> None:
    with sides(ground, BACKENDS[FIRST], relation, client) as (giver, taker):
        found = met(meet(ground, giver, taker))
    assert {pair: how for pair, how in found.items() if pair not in NOT_HELD[FIRST]} == {}


@pytest.mark.deep
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", HERE[1:])
def test_nor_in_any(ground: Ground, client: Client, name: str, relation: str) -> None:
    if relation == "processes" and (not BACKENDS[name].namespaces or BACKENDS[name].store):
        return  # the command line has no option for that
    with sides(ground, BACKENDS[name], relation, client) as (giver, taker):
        found = met(meet(ground, giver, taker))
    assert {pair: how for pair, how in found.items() if pair not in NOT_HELD[name]} == {}


def test_where_nothing_confines_they_meet(ground: Ground) -> None:
    """A control of every pair, to prove that the tests above can fail. It takes nothing from others: tests of another
    user run meanwhile, which root could reach."""
    side = ProcessSide(ground.project, [], {**os.environ, "HOME": str(ground.home)})
    able = {name for name, pair in PAIRS.items() if not pair.control}
    host_name = os.uname().nodename
    with own_host_name(), terminal_with("typed") as slave:
        meetings = meet(ground, side, side, window=0, expected=able, tried=able)
        assert os.read(slave, 100) == b"typed\n"
    missing = able - set(met(meetings))
    assert {name: meetings[name].error for name in missing} == {}
    assert os.uname().nodename == host_name, "every command of the machine sees it"
    ground.close()
    assert ground.left() == []


@contextmanager
def terminal_with(text: str) -> Iterator[int]:
    """A terminal in which this was typed; its program's end."""
    master, slave = pty.openpty()
    try:
        os.write(master, text.encode() + b"\n")
        yield slave
    finally:
        os.close(master)
        os.close(slave)


# --- what lands ---


LANDING = pairs([True, False], list(WAYS))
RACY = "quiet apply"
"""The kernel may write a dirty page back meanwhile: the next store changes a stamp, and the apply is refused."""


@pytest.mark.skipif(not NAMESPACES, reason="user namespaces are not permitted here")
def test_two_forks_do_not_meet_whose_overlays_stand(ground: Ground, client: Client) -> None:
    with sides(ground, STANDING, client=client) as (giver, taker):
        found = met(meet(ground, giver, taker))
    assert set(found) - set(NOT_HELD["1, overlay"]) == set()


@pytest.mark.skipif(not NAMESPACES, reason="user namespaces are not permitted here")
@pytest.mark.parametrize("way", [way for stands, way in LANDING if stands])
def test_what_was_reviewed_is_what_lands_of_a_fork_whose_overlay_stands(
    ground: Ground, client: Client, way: str
) -> None:
    assert landed(ground, STANDING, way, client) == {}


def rows(names: list[str], ways: list[str]) -> list[object]:
    found: list[object] = []
    for name in names:
        for way in ways:
            reason = LANDS.get((name, way), "")
            marks = [pytest.mark.xfail(strict=way != RACY, reason=reason)] if reason else []
            found.append(pytest.param(name, way, marks=marks))
    return found


@pytest.mark.parametrize(("name", "way"), rows([FIRST], [way for stands, way in LANDING if not stands]))
def test_what_was_reviewed_is_what_lands(ground: Ground, client: Client, name: str, way: str) -> None:
    assert landed(ground, BACKENDS[name], way, client) == {}


@pytest.mark.parametrize(("name", "way"), rows(daily(HERE[1:]), ["redo"]))
def test_so_it_is_at_every_level(ground: Ground, client: Client, name: str, way: str) -> None:
    assert landed(ground, BACKENDS[name], way, client) == {}


@pytest.mark.deep
@pytest.mark.parametrize(("name", "way"), rows(HERE[1:], [way for way in WAYS if way != "redo"]))
def test_so_it_is_on_every_way(ground: Ground, client: Client, name: str, way: str) -> None:
    assert landed(ground, BACKENDS[name], way, client) == {}


def test_where_nothing_confines_all_of_it_is_changed(ground: Ground) -> None:
    given, found = unconfined(ground)
    assert given == len(landing.LANDINGS)
    assert set(landing.LANDINGS) - set(found) == set()
