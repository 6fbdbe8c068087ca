"""Turns with a fork: one after the other, each fork for itself, and nothing remembered."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from pageside import changed, pick

from conftest import tick
from mudroom.ext.web.state.server_state import RequestLocks
from test_conflict_api import FORK, TEXT, Two, edit, page, two

__all__ = ["page", "two"]


def test_one_after_the_other() -> None:
    locks, inside, most, ready = RequestLocks(), 0, 0, threading.Barrier(8)

    def act(_number: int) -> None:
        nonlocal inside, most
        ready.wait(20)
        for _again in range(50):
            with locks.hold("decide", "p", "f"):
                inside += 1
                most = max(most, inside)
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(act, range(8)))
    assert (most, inside, len(locks)) == (1, 0, 0)


def test_who_waits_has_the_same_turn_as_who_comes_later() -> None:
    locks, came = RequestLocks(), threading.Event()

    def second() -> None:
        with locks.hold("start", "p", "f"):
            came.set()

    waiter = threading.Thread(target=second)
    with locks.hold("start", "p", "f"):
        waiter.start()
        assert not came.wait(0.05)
    assert came.wait(20)
    waiter.join(20)
    assert len(locks) == 0


def test_nobody_waits_for_another_fork_project_or_act() -> None:
    locks = RequestLocks()
    with (
        locks.hold("decide", "p", "f"),
        locks.hold("decide", "p", "g"),
        locks.hold("decide", "q", "f"),
        locks.hold("start", "p", "f"),
    ):
        assert len(locks) == 4
    assert len(locks) == 0


def test_what_fails_gives_its_turn_on() -> None:
    locks = RequestLocks()
    with suppress(KeyError), locks.hold("decide", "p", "f"):
        raise KeyError
    with locks.hold("decide", "p", "f"):
        assert len(locks) == 1


def test_while_one_fork_is_decided_about_another_is_too(two: Two) -> None:
    two.place.write("f", TEXT)
    two.place.write("g", TEXT)
    changed(two.place, "sed -i 's/^line 5$/theirs/' f", "other")
    changed(two.place, "sed -i 's/^line 5$/theirs/' g", FORK)
    tick()
    two.place.write("f", edit(TEXT, l5="ours\n"))
    two.place.write("g", edit(TEXT, l5="ours\n"))
    server, project = two.page.server, two.page.project.removeprefix("/projects/")
    versions = two.look("g")["versions"]
    here = threading.Event()

    def decide() -> int:
        body = {"versions": versions, "take": "ours", **pick("g")}
        status, _found = two.page.try_("POST", two.path("decide"), body)
        here.set()
        return status

    with ThreadPoolExecutor(1) as pool:
        with server.locks.hold("decide", project, "other"):
            assert pool.submit(decide).result(60) == 200
        here.clear()
        with server.locks.hold("decide", project, FORK):
            waiting = pool.submit(decide)
            assert not here.wait(0.2)
        assert waiting.result(60) == 409  # it was decided before
    assert len(server.locks) == 0
