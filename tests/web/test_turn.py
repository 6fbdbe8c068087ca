"""Turns with a fork: one after the other, each fork for itself, and nothing remembered."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

pytest.importorskip("starlette", reason="the extra web")

from conftest import tick
from mudroom.web.state.turn import Turns
from pageside import changed, pick
from test_conflict_api import FORK, TEXT, Two, edit, page, two

__all__ = ["page", "two"]


def test_one_after_the_other() -> None:
    turns, inside, most, ready = Turns(), 0, 0, threading.Barrier(8)

    def act(_number: int) -> None:
        nonlocal inside, most
        ready.wait(20)
        for _again in range(50):
            with turns.take("decide", "p", "f"):
                inside += 1
                most = max(most, inside)
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(act, range(8)))
    assert (most, inside, len(turns)) == (1, 0, 0)


def test_who_waits_has_the_same_turn_as_who_comes_later() -> None:
    turns, came = Turns(), threading.Event()

    def second() -> None:
        with turns.take("start", "p", "f"):
            came.set()

    waiter = threading.Thread(target=second)
    with turns.take("start", "p", "f"):
        waiter.start()
        assert not came.wait(0.05)
    assert came.wait(20)
    waiter.join(20)
    assert len(turns) == 0


def test_nobody_waits_for_another_fork_project_or_act() -> None:
    turns = Turns()
    with (
        turns.take("decide", "p", "f"),
        turns.take("decide", "p", "g"),
        turns.take("decide", "q", "f"),
        turns.take("start", "p", "f"),
    ):
        assert len(turns) == 4
    assert len(turns) == 0


def test_what_fails_gives_its_turn_on() -> None:
    turns = Turns()
    with suppress(KeyError), turns.take("decide", "p", "f"):
        raise KeyError
    with turns.take("decide", "p", "f"):
        assert len(turns) == 1


def test_while_one_fork_is_decided_about_another_is_too(two: Two) -> None:
    two.place.write("f", TEXT)
    two.place.write("g", TEXT)
    changed(two.place, "sed -i 's/^line 5$/theirs/' f", "other")
    changed(two.place, "sed -i 's/^line 5$/theirs/' g", FORK)
    tick()
    two.place.write("f", edit(TEXT, l5="ours\n"))
    two.place.write("g", edit(TEXT, l5="ours\n"))
    house, project = two.page.house, two.page.project.removeprefix("/projects/")
    versions = two.look("g")["versions"]
    here = threading.Event()

    def decide() -> int:
        body = {"versions": versions, "take": "ours", **pick("g")}
        status, _found = two.page.try_("POST", two.path("decide"), body)
        here.set()
        return status

    with ThreadPoolExecutor(1) as pool:
        with house.turns.take("decide", project, "other"):
            assert pool.submit(decide).result(60) == 200
        here.clear()
        with house.turns.take("decide", project, FORK):
            waiting = pool.submit(decide)
            assert not here.wait(0.2)
        assert waiting.result(60) == 409  # it was decided before
    assert len(house.turns) == 0
