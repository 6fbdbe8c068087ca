"""The desk that answers the gate's requests for connections to other forks, where it makes none."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from mudroom.core import registry
from mudroom.core.network.fork_host import ForkDial
from mudroom.session.confinement.dial_desk import MOST_DIALS, DialDesk
from mudroom.session.confinement.dialler import Dialler, fork_links

REQUEST = ForkDial(7, "coder.mudroom.internal", 8000, "/")


class Guard:
    """What the gate is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, str, bool]] = []

    def dialled(self, identity: int, descriptor: int, reason: str = "", *, is_refused: bool = False) -> None:
        self.told.append((identity, descriptor, reason, is_refused))


class Pending:
    """A connection that is never made."""

    def __init__(self) -> None:
        self.ends = os.pipe()

    def begin(self, _host: str, _port: int, _path: str) -> Pending:
        return self

    def fileno(self) -> int:
        return self.ends[0]

    def close(self) -> None:
        for end in self.ends:
            os.close(end)
        self.ends = os.pipe()


def told(desk: DialDesk, times: int = 1) -> list[tuple[int, int, str, bool]]:
    guard = Guard()
    for _time in range(times):
        desk.dial(cast(Any, guard), REQUEST)
    return guard.told


def test_a_command_without_a_network_of_its_own_is_refused() -> None:
    ((identity, descriptor, reason, is_refused),) = told(DialDesk(None))
    assert (identity, descriptor, is_refused) == (7, -1, True)
    assert reason.startswith(
        "this command has no network namespace of its own, from which alone other forks are reached"
    )


def test_connections_that_are_being_made_are_bounded() -> None:
    pending = Pending()
    desk = DialDesk(lambda: cast(Dialler, pending))
    ((_identity, descriptor, reason, is_refused),) = told(desk, MOST_DIALS + 1)
    assert (descriptor, is_refused) == (-1, False)
    assert reason == f"{MOST_DIALS} connections to other forks are being made"
    assert desk.descriptors() == [pending.fileno()] * MOST_DIALS


def test_without_the_satellite_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "is_installed", lambda _satellite: False)

    def make() -> Dialler:
        fork_links()
        raise AssertionError("unreachable")

    ((_identity, descriptor, reason, _is_refused),) = told(DialDesk(make))
    assert descriptor == -1
    assert reason == "a connection to another fork is not part of this installation: it lacks mudroom/ext/agents"
