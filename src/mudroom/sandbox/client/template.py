"""The host's end of a template: make one, and use one that stands for a fork (``src/native/launcher``)."""

from __future__ import annotations

import _socket
import os
from collections.abc import Callable

from mudroom.core.confinement.plan import (
    OF_A_TEMPLATE,
    Plan,
    StandingPlan,
    Step,
    TemplatePlan,
    of_each,
    standing_plan,
)
from mudroom.core.system.closing import ClosedOnError
from mudroom.errors import LauncherDied, MudroomError
from mudroom.sandbox.client.connection import AGAIN, Connection, with_report
from mudroom.sandbox.client.failure import failure_of
from mudroom.sandbox.client.report import parse_report
from mudroom.typing import NamedTuple

REST = 2000
"""Milliseconds without a command after which a standing sandbox ends its spare init: that is half its memory, and the
next command waits 2 ms for another one."""


def request(
    launcher: Connection,
    plan: TemplatePlan,
    mounts: tuple[bytes, ...] = (),
    door: tuple[int, ...] = (),
) -> tuple[Connection, int]:
    """Ask for a template and return at once: the connection to it, and a pipe that is at its end when the template is
    gone with its mounts. ``require_prepared`` says whether it can be used."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    message = {
        "op": "prepare",
        "id": 0,  # not a command's: a client's ids begin with 1
        "namespaces": plan.namespaces & OF_A_TEMPLATE,
        "maps": plan.maps,
        "plan": plan.shared,
        "ahead": plan.ahead,
        "last": plan.last,
        "each": of_each(plan.namespaces),
        "mounts": mounts,
        "rest": REST,
    }
    try:
        return Connection(ours), with_report(launcher, message, (theirs.fileno(), *door))
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()


def require_prepared(report: int, plan: TemplatePlan) -> None:
    """Wait until a template has performed its steps. Raise StepFailed if a step fails, LauncherDied if it is killed."""
    data = os.read(report, 65536)
    if not data:
        raise LauncherDied("the process that prepares sandboxes was killed", AGAIN)
    record = parse_report(data)
    if record[0] != "prepared":
        raise failure_of(record, plan.shared, b"")


def prepare(
    launcher: Connection,
    plan: TemplatePlan,
    mounts: tuple[bytes, ...] = (),
    door: tuple[int, ...] = (),
) -> tuple[Connection, int]:
    """Return ``request``'s result, once the template is prepared. Raise StepFailed if a step fails."""
    connection, report = request(launcher, plan, mounts, door)
    with ClosedOnError(connection), ClosedOnError(report):
        require_prepared(report, plan)
    return connection, report


class StandingPlace(NamedTuple):
    """A place for one command in a standing sandbox."""

    sandbox: StandingSandbox
    refresh: bool
    """Whether the overlays drop their cached names before the command starts."""


class StandingSandbox:
    """One fork's template, whose overlays stay mounted. Used by the thread that holds the fork's lock."""

    def __init__(self, connection: Connection, report: int, plan: StandingPlan, is_current: Callable[[], bool]) -> None:
        self._connection, self._report, self.plan, self._is_current = connection, report, plan, is_current

    @property
    def is_open(self) -> bool:
        """Whether it is alive, and its processes are in the launcher's present control group."""
        return self._is_current() and self._connection.is_open()

    def parts(self, plan: Plan) -> tuple[Connection, int, tuple[Step, ...], tuple[Step, ...]]:
        """Return the process that performs a plan with the same key, its namespaces, its steps, and the steps that it
        does not know yet. Raise MudroomError if it cannot."""
        wanted = standing_plan(plan)
        if wanted is None or wanted.key != self.plan.key:
            raise MudroomError("a standing sandbox was asked for a command of another plan", "run the command again")
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
