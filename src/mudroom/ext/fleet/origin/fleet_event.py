"""Events in a run, for those who show them."""

from __future__ import annotations

from mudroom.ext.fleet.origin.errand_log import AttemptRow, ErrandRow
from mudroom.ext.fleet.wire.message import WorkerHello
from mudroom.typing import NamedTuple


class WorkerConnected(NamedTuple):
    node: str
    hello: WorkerHello


class WorkerDisconnected(NamedTuple):
    node: str
    reason: str
    hint: str
    given_up: bool
    """Whether it is not tried again in this run."""


class WorkerNote(NamedTuple):
    node: str
    text: str


class ErrandStarted(NamedTuple):
    errand: ErrandRow
    row: AttemptRow


class ErrandOutput(NamedTuple):
    """An errand's output, as the worker tells it: any bytes."""

    errand: ErrandRow
    row: AttemptRow
    stream: int
    offset: int
    data: bytes


class ErrandSettled(NamedTuple):
    """An attempt that is over, for now."""

    errand: ErrandRow
    row: AttemptRow


FleetEvent = WorkerConnected | WorkerDisconnected | WorkerNote | ErrandStarted | ErrandOutput | ErrandSettled
