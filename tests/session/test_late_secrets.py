"""A secret that comes into the project while a session works: no command, tool or archive has it.

A project with 600 directories is watched (decision 37), a small one is looked at. Of the page's server
``tests/ext/web/test_conflict_api.py`` shows the same.
"""

from __future__ import annotations

import os
import threading

import pytest

from archived import archived
from conftest import Place
from tiers import pairs

TOKEN = "TOKEN=swordfish-47\n"
DELAYS = (0.0, 0.05, 0.2)
"""Seconds between the secret and the command. The clock is what is tested: no event tells that they have passed."""
LOOK = b"cat .env deep/keys/late.pem; cp .env copied; cp deep/keys/late.pem other; echo mine >> .env; true"


def pass_time(seconds: float) -> None:
    threading.Event().wait(seconds)


def fill(place: Place, directories: int) -> None:
    for number in range(directories):
        place.write(f"d{number}/f", "f\n")
    place.write("deep/keys/f", "f\n")


def appear(place: Place) -> None:
    place.write(".env", TOKEN)
    place.write("deep/keys/late.pem", TOKEN)


def gone(place: Place) -> None:
    for name in (".env", "deep/keys/late.pem"):
        os.unlink(place.project / name)


@pytest.mark.parametrize(("directories", "agent"), pairs([5, 600], [None, "coder"]))
def test_in_a_working_session(place: Place, directories: int, agent: str | None) -> None:
    fill(place, directories)
    session = place.session(agent=agent)
    for _time in range(4):  # the watch begins when nothing new was found
        session.run([b"true"], fork="warm")
    session.forks.new("kept")
    kept = session.forks.files("kept")  # as a server of tools keeps them
    assert kept.read("deep/keys/f") == b"f\n"
    for number, delay in enumerate(DELAYS):
        appear(place)
        pass_time(delay)
        for fork in ("warm", f"new-{number}"):
            result = session.run([b"sh", b"-c", LOOK], fork=fork)
            assert (result.ran, result.exit_code) == (True, 0)
            assert b"swordfish" not in result.stdout, (delay, fork)
        session.forks.new(f"tools-{number}")
        tools = session.forks.files(f"tools-{number}")
        for files in (tools, kept):
            assert (files.read(".env"), files.search("swordfish")) == (b"", [])
        for fork in ("warm", f"new-{number}"):
            for base in (b"", bytes(32)):
                assert b"swordfish" not in archived(session, fork, base), (delay, fork)
        gone(place)


@pytest.mark.parametrize("delay", DELAYS)
def test_in_a_snapshot_and_its_archive(place: Place, delay: float) -> None:
    fill(place, 5)
    session = place.session()
    session.run([b"true"], fork="warm")
    appear(place)
    pass_time(delay)
    session.forks.new("f", snapshot=True)
    assert session.run([b"sh", b"-c", LOOK], fork="f").stdout == b""
    assert b"swordfish" not in archived(session, "f")
