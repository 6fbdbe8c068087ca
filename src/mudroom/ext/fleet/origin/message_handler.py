"""Handlers for workers' messages: their effect on a run. A message that is not in the table, or comes at the wrong
time, bans the worker."""

from __future__ import annotations

from collections.abc import Callable

from mudroom.ext.fleet.origin import claim
from mudroom.ext.fleet.origin.archive_fetcher import ArchiveFetcher
from mudroom.ext.fleet.origin.errand_log import AttemptRow
from mudroom.ext.fleet.origin.errand_queue import ErrandQueue
from mudroom.ext.fleet.origin.fleet_event import ErrandOutput, ErrandStarted, WorkerConnected
from mudroom.ext.fleet.origin.inbox import FeedFailed, LinkEnd, LinkEvent
from mudroom.ext.fleet.origin.services import BasePayload, RunServices
from mudroom.ext.fleet.origin.worker_session import WorkerSession, unmet_requirement
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.typing import Protocol


class HandlerContext(Protocol):
    """The dispatcher, as its message handlers use it (``dispatcher.py``)."""

    queue: ErrandQueue
    fetcher: ArchiveFetcher
    payload: BasePayload | None
    services: RunServices

    def base_changed(self, error: Exception) -> None: ...
    def disconnected(self, session: WorkerSession, reason: str, hint: str, *, given_up: bool) -> None: ...
    def ban(self, session: WorkerSession, reason: str) -> None: ...


_DISCARDED = frozenset({"refused", "failed", "cancelled"})
"""States whose files are not kept at the worker: their command was not to run, or not to its end."""
_UNWANTED = _DISCARDED | {"kept"}
"""States in which no run's errand is to be there any more: its worker does not know so."""


def handle(dispatcher: HandlerContext, session: WorkerSession, event: LinkEvent) -> None:
    if isinstance(event, LinkEnd):
        _ended(dispatcher, session, event)
        return
    if isinstance(event, FeedFailed):
        dispatcher.base_changed(event.error)
        return
    handler = _HANDLERS.get(event.kind)
    try:
        if handler is None:
            raise LinkError(f"sent a message of kind {event.kind}, which no worker sends")
        handler(dispatcher, session, event)
    except LinkError as error:
        dispatcher.ban(session, error.message)


def _row(dispatcher: HandlerContext, session: WorkerSession, stream: int) -> AttemptRow:
    key = session.key_of(stream)
    row = dispatcher.queue.rows.get(key) if key is not None else None
    if row is None or row.worker != session.name:  # the latter: it was told that another's errand is not wanted
        raise LinkError("answered on a stream that there is not")
    return row


# --- the link ---


def _hello(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    hello = claim.checked_hello(frame)
    reason = unmet_requirement(hello, dispatcher.services.requirements)
    if reason:
        dispatcher.disconnected(session, reason, "", given_up=True)
        return
    queue = dispatcher.queue
    session.greeted(hello)
    dispatcher.services.report(WorkerConnected(session.name, hello))
    held = {(row.errand, row.attempt) for row in hello.held}
    for row in queue.rows_of(session.name):
        if row.key not in held:
            if row.state == "sent":
                queue.requeue(row)
            elif row.state == "accepted":
                queue.mark_lost(row, f"{session.name} does not know it any more")
        elif row.state in ("sent", "accepted", "lost"):
            queue.awaited_until.pop(row.key, None)
            session.running.add(row.key)
            queue.send_later(session, wire.FETCH, wire.Fetch(*row.key, -1), session.open_stream(row.key))
    for key in held:
        if queue.state_of(key) in _UNWANTED:
            queue.send_later(session, wire.KEPT, wire.Kept(*key), session.open_stream(key))


def _ended(dispatcher: HandlerContext, session: WorkerSession, end: LinkEnd) -> None:
    queue, link = dispatcher.queue, session.link
    unsent = {session.key_of(stream) for stream in link.unsent()} if link is not None else set()
    for row in queue.rows_of(session.name):
        if row.key in unsent and row.state == "sent":
            queue.requeue(row)
    # A program that exits before its hello was started by the wrong words, or refuses. A killed one is tried again.
    is_hopeless = not end.said_hello and not session.was_greeted and not end.was_killed
    dispatcher.disconnected(session, claim.line(end.reason), end.hint, given_up=is_hopeless)


def _pong(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    reserved = sum(dispatcher.queue.needs(key).memory for key in session.running)
    session.heard(wire.message_of(frame, wire.Pong), reserved)


def _bye(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    bye = wire.message_of(frame, wire.Bye)
    dispatcher.disconnected(session, claim.line(bye.reason) or "the worker took leave", "", given_up=False)


def _failed(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    failed, queue = wire.message_of(frame, wire.Failed), dispatcher.queue
    reason = claim.line(failed.reason) + (f" ({claim.line(failed.hint)})" if failed.hint else "")
    if frame.stream == 0:  # it cannot have the base: others may
        dispatcher.disconnected(session, reason, "", given_up=True)
        return
    key = session.key_of(frame.stream)
    if key is not None and key not in queue.rows:
        return  # from another run, which it was to discard
    row = _row(dispatcher, session, frame.stream)
    if session.is_fetching(frame.stream):
        dispatcher.fetcher.give_up(row.key)
    session.close_stream(frame.stream)
    session.running.discard(row.key)
    if failed.for_now and row.state in ("ended", "late"):
        dispatcher.fetcher.defer(row.key)
        queue.settle(queue.put(row, reason=reason))
    elif row.state in ("sent", "ended", "late"):
        queue.settle(queue.put(row, "failed", reason))
    elif row.state == "accepted":
        queue.mark_lost(row, reason)


# --- the base ---


def _want(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    want, payload = wire.message_of(frame, wire.Want), dispatcher.payload
    # Else that base was replaced.
    if payload is not None and session.link is not None and want.base == payload.identity:
        session.link.feed(payload.frames(want))


def _ready(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    ready, payload = wire.message_of(frame, wire.Ready), dispatcher.payload
    session.has_base = payload is not None and ready.base == payload.identity
    session.made_progress()


# --- errands ---


def _accepted(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    said, row = wire.message_of(frame, wire.Accepted), _row(dispatcher, session, frame.stream)
    if (said.errand, said.attempt) != row.key or row.state not in ("sent", "accepted"):
        raise LinkError("accepted another errand than it was given")
    if row.state == "sent":
        row = dispatcher.queue.put(row, "accepted")
        dispatcher.queue.accepted_at[row.key] = dispatcher.services.clock()
        dispatcher.services.report(ErrandStarted(dispatcher.queue.errands[row.errand], row))


def _out(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    said, row = wire.message_of(frame, wire.Out), _row(dispatcher, session, frame.stream)
    if said.stream not in (1, 2) or said.offset < 0:
        raise LinkError("printed to a stream that there is not")
    errand = dispatcher.queue.errands[row.errand]
    dispatcher.services.report(ErrandOutput(errand, row, said.stream, said.offset, said.data))


def _ask(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    asked, row = wire.message_of(frame, wire.Ask), _row(dispatcher, session, frame.stream)
    if session.link is not None:
        errand = dispatcher.queue.errands[row.errand]
        dispatcher.services.questions.ask(session.name, errand, session.link, frame.stream, asked)


def _event(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    """A row in the worker's journal. The archive has the journal that is taken over."""
    wire.message_of(frame, wire.EventRow)
    _row(dispatcher, session, frame.stream)


def _outcome(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    queue, row = dispatcher.queue, _row(dispatcher, session, frame.stream)
    outcome = claim.checked_outcome(wire.message_of(frame, wire.ErrandOutcome), row.key)
    session.close_stream(frame.stream)
    session.running.discard(row.key)
    session.made_progress()
    if row.state not in ("sent", "accepted", "lost"):
        raise LinkError("sent the outcome of an errand twice")
    if row.state == "sent":
        row = queue.put(row, "accepted")
    if row.state == "accepted" and outcome.state == "lost":
        queue.mark_lost(row, outcome.reason or f"{session.name} ended in the middle of it")
        row = queue.rows[row.key]
    if row.state == "lost" and outcome.state == "lost" and not outcome.archive:
        # The result is empty; where an engine has lost a machine, that machine may come back with more.
        queue.send_later(session, wire.KEPT, wire.Kept(*row.key), session.open_stream(row.key))
        return
    if row.state == "lost":
        late = queue.put(row._replace(outcome=outcome), "late")
        if not outcome.archive:
            queue.mark_kept(late, session)
        return
    row = queue.put(row._replace(outcome=outcome), outcome.state, outcome.reason)
    is_wanted = dispatcher.fetcher.is_wanted(row)
    if outcome.state in _DISCARDED or (outcome.state == "ended" and not outcome.archive):
        queue.mark_kept(row, session)
    if not is_wanted:
        queue.settle(queue.rows[row.key])


def _part(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    part, row = wire.message_of(frame, wire.ArchivePart), _row(dispatcher, session, frame.stream)
    dispatcher.fetcher.receive(session, row, frame.stream, part)
    session.made_progress()


def _dial(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    dial, row = wire.message_of(frame, wire.Dial), _row(dispatcher, session, frame.stream)
    errand = dispatcher.queue.errands[row.errand]
    if not errand.message.through_origin or row.state != "accepted" or session.link is None:
        raise LinkError("asks for a connection of an errand that has none here")
    dispatcher.services.proxy.dial(session.link, frame.stream, dial, errand.label, errand.errand)


def _connection(dispatcher: HandlerContext, session: WorkerSession, frame: Frame) -> None:
    if session.link is not None:
        dispatcher.services.proxy.take(session.link, frame)


_HANDLERS: dict[int, Callable[[HandlerContext, WorkerSession, Frame], None]] = {
    wire.HELLO: _hello,
    wire.PONG: _pong,
    wire.BYE: _bye,
    wire.FAILED: _failed,
    wire.WANT: _want,
    wire.READY: _ready,
    wire.ACCEPTED: _accepted,
    wire.OUT: _out,
    wire.ASK: _ask,
    wire.EVENT: _event,
    wire.OUTCOME: _outcome,
    wire.ARCHIVE: _part,
    wire.DIAL: _dial,
    wire.DATA: _connection,
    wire.SHUT: _connection,
    wire.ROOM: _connection,
}
