"""The host's end of a template: make one, and use one that stands for a fork (``sandbox/launcher/template.py``)."""

from __future__ import annotations

import _socket
import marshal
import os
from collections.abc import Callable

from mudroom.core.confinement.plan import OF_A_TEMPLATE, Plan, StandingPlan, Step, of_each, standing_plan
from mudroom.errors import MudroomError
from mudroom.sandbox.client.connection import Connection, with_report
from mudroom.sandbox.client.failure import failure_of
from mudroom.sandbox.client.report import parse_report
from mudroom.typing import NamedTuple

REST = 2000
"""Milliseconds without a command after which a standing sandbox ends the init that it has made ahead: that is half of
its memory, and the next command waits 2 ms for another one."""


def prepare(
    launcher: Connection,
    identity: int,
    maps: tuple[bytes, bytes, bool],
    namespaces: int,
    steps: tuple[Step, ...],
    ahead: tuple[Step, ...],
    last: tuple[Step, ...],
    *,
    mounts: tuple[bytes, ...] = (),
    door: tuple[int, ...] = (),
) -> tuple[Connection, int]:
    """Return the connection to a new template, and a pipe that is at its end when it is gone with its mounts."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    request = {
        "op": "prepare",
        "id": identity,
        "namespaces": namespaces & OF_A_TEMPLATE,
        "maps": maps,
        "plan": steps,
        "ahead": ahead,
        "last": last,
        "each": of_each(namespaces),
        "mounts": mounts,
        "rest": REST,
    }
    try:
        report = with_report(launcher, request, (theirs.fileno(), *door))
    finally:
        theirs.close()
    try:
        record = parse_report(os.read(report, 65536) or marshal.dumps(("failed", -1, "init", 0, "it died")))
        if record[0] != "prepared":
            raise failure_of(record, steps, b"")
    except BaseException:
        os.close(report)
        ours.close()
        raise
    return Connection(ours), report


class StandingPlace(NamedTuple):
    """A place for one command in a standing sandbox."""

    sandbox: StandingSandbox
    refresh: bool
    """Whether the overlays drop what they remember of the files below them before it starts."""


class StandingSandbox:
    """The template of one fork, whose overlays stay mounted. Used by the thread that holds the fork's lock."""

    def __init__(self, connection: Connection, report: int, plan: StandingPlan, is_current: Callable[[], bool]) -> None:
        self._connection, self._report, self.plan, self._is_current = connection, report, plan, is_current

    @property
    def is_open(self) -> bool:
        """Whether it lives, and its processes are in the launcher's present control group."""
        return self._is_current() and self._connection.is_open()

    def parts(self, plan: Plan) -> tuple[Connection, int, tuple[Step, ...], tuple[Step, ...]]:
        """Return the process that performs a plan of the same key, its namespaces, its steps, and those that it does
        not know yet. Raise MudroomError if it cannot."""
        wanted = standing_plan(plan)
        if wanted is None or wanted.key != self.plan.key:
            raise MudroomError("a standing sandbox was asked for a command of another plan", "report this error")
        return self._connection, of_each(plan.namespaces), (*wanted.ahead, *wanted.late), wanted.late

    def close(self) -> None:
        """End it without waiting. Harmless when repeated."""
        report, self._report = self._report, -1
        if report >= 0:
            os.close(report)
            self._connection.close()

    def wait_gone(self) -> None:
        """End it, and wait until its mounts are gone, too, as ``Running.wait_gone`` does."""
        self._connection.close()
        while self._report >= 0 and os.read(self._report, 65536):
            pass
        self.close()

    def __del__(self) -> None:
        self.close()
