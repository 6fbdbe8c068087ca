"""Services that a run uses, as the dispatcher sees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from mudroom.ext.fleet.origin.archive_fetcher import ArchiveImporter
from mudroom.ext.fleet.origin.connection_proxy import ConnectionProxy
from mudroom.ext.fleet.origin.fleet_event import FleetEvent
from mudroom.ext.fleet.origin.inbox import LinkInbox
from mudroom.ext.fleet.origin.link import OriginLink
from mudroom.ext.fleet.origin.question import QueuedQuestions
from mudroom.ext.fleet.origin.worker_session import Key, WorkerRequirements, WorkerSession
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame
from mudroom.typing import NamedTuple, Protocol


class BasePayload(Protocol):
    """A run's base (``ext/fleet/origin/run.py``)."""

    base: wire.Base
    identity: bytes

    def frames(self, want: wire.Want) -> Iterator[Frame]:
        """Return the objects that are asked for, as they are read. Raise LinkError if the base has no such object."""


class RunServices(NamedTuple):
    """Services and limits for one run."""

    connect: Callable[[WorkerSession, LinkInbox], OriginLink]
    load_payload: Callable[[], BasePayload]
    importer: ArchiveImporter
    questions: QueuedQuestions
    proxy: ConnectionProxy
    report: Callable[[FleetEvent], None]
    requirements: WorkerRequirements
    lease: float = 60.0
    wanted: frozenset[Key] = frozenset()
    """Attempts that are fetched whatever the run says."""
    clock: Callable[[], float] = time.monotonic
