"""Probes that ask workers who they are, without giving them anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from mudroom import __version__
from mudroom.errors import MudroomError
from mudroom.ext.fleet.origin import claim
from mudroom.ext.fleet.origin.inbox import FeedFailed, LinkEnd, LinkEvent, LinkInbox
from mudroom.ext.fleet.origin.link import NO_WORKER, OriginLink, Transport
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.ext.fleet.origin.worker_session import other_version
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import LinkError
from mudroom.typing import NamedTuple
from mudroom.vault.record import FORMAT

_NOBODY = "0" * 32
"""Name for an origin that has no errands."""


class WorkerProbe(NamedTuple):
    worker: FleetWorker
    hello: wire.WorkerHello | None
    reason: str = ""
    """Why it cannot be used; empty: it can."""
    hint: str = ""


def probe(
    workers: Sequence[FleetWorker], start: Callable[[FleetWorker], Transport], timeout: float
) -> list[WorkerProbe]:
    """Return each worker's answer. All are asked at one time, and have ``timeout`` seconds."""
    inbox: LinkInbox = LinkInbox()
    answers: dict[str, WorkerProbe] = {}
    links: dict[OriginLink, FleetWorker] = {}
    for worker in workers:
        try:
            hello = wire.OriginHello(wire.PROTOCOL, __version__, _NOBODY, worker.name, 0.0)
            link = OriginLink(worker.name, start(worker), hello, inbox)
        except MudroomError as error:
            answers[worker.name] = WorkerProbe(worker, None, error.message, error.hint)
            continue
        links[link] = worker
        link.start()
    until = time.monotonic() + timeout
    while len(answers) < len(workers) and time.monotonic() < until:
        for link, event in inbox.take(until - time.monotonic())[0]:
            answer = _answer(links[link], event)
            if answer is not None:
                answers.setdefault(answer.worker.name, answer)
                link.send(wire.frame_of(wire.BYE, wire.Bye("")))
    for link in links:
        link.join(1.0)
        link.end("it was asked who it is")
    for link in links:
        link.join(5.0)
    late = f"no answer within {timeout:g} s"
    return [answers.get(worker.name, WorkerProbe(worker, None, late)) for worker in workers]


def _answer(worker: FleetWorker, event: LinkEvent) -> WorkerProbe | None:
    if isinstance(event, LinkEnd):
        return WorkerProbe(worker, None, claim.line(event.reason), event.hint)
    if isinstance(event, FeedFailed) or event.kind != wire.HELLO:
        return None
    try:
        hello = claim.checked_hello(event)
    except LinkError as error:
        return WorkerProbe(worker, None, f"it is no mudroom worker: {error.message}", NO_WORKER)
    return WorkerProbe(worker, hello, other_version(hello, __version__, FORMAT))
