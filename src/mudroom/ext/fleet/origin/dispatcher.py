"""One run's errands, given to workers and followed to their ends.

Rules of this room:
1. Each round handles the frames that the links have read, commits the log, and only then sends what follows from it
   (``errand_queue.py``).
2. An errand is sent once. After that its worker alone knows whether it runs: if the worker is gone for longer than the
   lease, the errand is lost, and only ``retry`` makes another attempt.
3. A worker that breaks the protocol, or sends another archive than it announced, gets no more errands.
4. A worker discards a result (``KEPT``) after the log says that it is here, or that it is not wanted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from mudroom.errors import MudroomError
from mudroom.ext.fleet.origin.archive_fetcher import STALL, ArchiveFetcher
from mudroom.ext.fleet.origin.errand_log import ErrandLog, RunRow
from mudroom.ext.fleet.origin.errand_queue import ErrandQueue
from mudroom.ext.fleet.origin.fleet_event import ErrandSettled, WorkerDisconnected
from mudroom.ext.fleet.origin.inbox import LinkInbox
from mudroom.ext.fleet.origin.message_handler import handle
from mudroom.ext.fleet.origin.placement import Capacity, WorkerRoom, lack, place
from mudroom.ext.fleet.origin.services import BasePayload, RunServices
from mudroom.ext.fleet.origin.worker_session import Key, WorkerSession
from mudroom.ext.fleet.wire import message as wire

TICK = 0.5
"""Seconds between two polls for events that no link brings: requests to cancel, answers to questions, deadlines."""
CLOSE_TIMEOUT = 3.0
"""Seconds in which the links may end by themselves when the run ends."""
CANCEL_TIMEOUT = 10.0
"""Seconds after which an errand that was cancelled is given up."""
OVERDUE = 60.0
"""Seconds beyond its timeout in which a worker has to end an errand."""
_MOST_RESCANS = 5
"""Scans after the first, at most: a project that changes more often while it is sent is not sent."""


class Dispatcher:
    """Owner: the verb's thread. ``cancel`` only sets a mark, from any thread or a signal handler."""

    def __init__(self, log: ErrandLog, run: RunRow, sessions: list[WorkerSession], services: RunServices) -> None:
        self._log, self._run, self.services = log, run, services
        self.sessions = {session.name: session for session in sessions}
        self.queue = ErrandQueue(log, run.run, run.retry, services.report)
        self.fetcher = ArchiveFetcher(
            self.queue, self.sessions, services.importer, run.fetch, services.wanted, services.clock
        )
        self.payload: BasePayload | None = None
        self._inbox: LinkInbox = LinkInbox()
        self._is_resumed = not run.ended and any(row.state != "new" for row in self.queue.rows.values())
        self._rescans = 0
        self._looked_at: tuple[Capacity, ...] = ()
        """The workers' capacities at which no errand that waits is impossible."""
        self._is_cancelled = False
        self._cancelled_at: float | None = None
        self._to_reconcile: set[str] = set()
        """Workers that may have errands which an earlier process gave up, or did not end properly."""
        self._is_complete = False

    def run(self) -> Iterator[ErrandSettled]:
        """Follow all errands to their ends, and yield each as it ends. Raise what ``load_payload`` raises."""
        queue = self.queue
        try:
            self.fetcher.resume()
            for row in queue.rows.values():
                if (row.state == "lost" and row.outcome is None) or (self._is_resumed and row.worker):
                    self._to_reconcile.add(row.worker)
                if row.state in ("sent", "accepted"):
                    queue.awaited_until[row.key] = self.services.clock() + self.services.lease
            while True:
                self._tick()
                yield from queue.flush()
                if self._is_done():
                    break
                events, full = self._inbox.take(TICK)
                for link, event in events:
                    session = next((session for session in self.sessions.values() if session.link is link), None)
                    if session is not None:  # else it was banned, and its earlier frames do not count
                        handle(self, session, event)
                for link in full:
                    link.wake()
            self._send_goodbyes()
            yield from queue.flush()
        finally:
            self._close()

    def cancel(self) -> None:
        """End all errands; those that were not sent never start."""
        self._is_cancelled = True
        self._inbox.wake()

    def _is_done(self) -> bool:
        queue = self.queue
        if self.fetcher.is_busy or queue.unfinished:
            return False
        if any(self._is_reachable(row.worker) for row in self.fetcher.wanted()):
            return False
        if self._is_cancelled:
            return True
        pending = any(self._is_reachable(name) and not self.sessions[name].was_greeted for name in self._to_reconcile)
        asked = any(session.running for session in self.sessions.values())
        return not pending and not asked

    def _is_reachable(self, name: str) -> bool:
        session = self.sessions.get(name)
        return session is not None and session.is_usable and (not self._is_cancelled or session.link is not None)

    # --- each round ---

    def _tick(self) -> None:
        now, queue = self.services.clock(), self.queue
        self._cancel_requested(now)
        self._end_overdue(now)
        for key, until in list(queue.awaited_until.items()):
            if now >= until or not self._is_reachable(queue.rows[key].worker):
                queue.mark_lost(queue.rows[key], self._reason_gone(queue.rows[key].worker))
        for session in self.sessions.values():
            if session.link is None and session.is_usable and now >= session.retry_at and self._has_work_for(session):
                self._connect(session)
        self._assign()
        self.fetcher.start()
        for session, reason in self.fetcher.import_ready():
            self.ban(session, f"its archive was refused: {reason}")
        for link, frame in self.services.questions.poll():
            link.send(frame)
        if queue.waiting and not any(session.is_usable for session in self.sessions.values()):
            self._fail_waiting()

    def _reason_gone(self, name: str) -> str:
        session = self.sessions.get(name)
        if session is None:
            return f"{name} is not in this fleet any more"
        return f"{name}: {session.reason}" if session.reason else f"{name} was not reached again"

    def _connect(self, session: WorkerSession) -> None:
        try:
            session.connected(self.services.connect(session, self._inbox))
        except MudroomError as error:
            self.disconnected(session, error.message, error.hint, given_up=True)

    def _has_work_for(self, session: WorkerSession) -> bool:
        queue = self.queue
        if queue.waiting and not self._is_cancelled:
            return True
        if session.name in self._to_reconcile and not session.was_greeted:
            return True
        wanted = {row.key for row in self.fetcher.wanted()}
        return any(row.key in queue.awaited_until or row.key in wanted for row in queue.rows_of(session.name))

    def _end_overdue(self, now: float) -> None:
        queue = self.queue
        for session in self.sessions.values():
            for key in list(session.running):
                timeout, accepted_at = queue.errands[key[0]].message.timeout, queue.accepted_at.get(key)
                if timeout and accepted_at is not None and now > accepted_at + timeout + OVERDUE:
                    self.ban(session, "does not end an errand whose time is over")
                    break
        timeout = CANCEL_TIMEOUT if self._is_cancelled else STALL
        for session in self.fetcher.stalled(timeout):
            self.disconnected(session, f"has sent nothing of an archive for {timeout:g} s", "", given_up=False)

    def _cancel_requested(self, now: float) -> None:
        queue, asked = self.queue, self._log.take_cancel_requests()
        if self._is_cancelled:
            self._cancelled_at = self._cancelled_at or now
            asked |= set(queue.errands)
            queue.may_retry = False
        for row in [queue.rows[key] for key in queue.unfinished if key[0] in asked] if asked else ():
            session = self.sessions.get(row.worker)
            if row.state == "new":
                queue.waiting.remove(row.key)
                queue.settle(queue.put(row, "cancelled", "cancelled before it was sent"))
            elif row.state in ("sent", "accepted") and self._cancelled_at and now > self._cancelled_at + CANCEL_TIMEOUT:
                queue.mark_lost(row, f"it did not end within {CANCEL_TIMEOUT:g} s after it was cancelled")
            elif row.state in ("sent", "accepted") and (session is None or session.link is None):
                queue.mark_lost(row, "cancelled while its worker was not reached")
            elif row.state in ("sent", "accepted") and session is not None and row.key not in session.cancelled:
                session.cancelled.add(row.key)
                queue.send_later(session, wire.CANCEL, wire.CancelErrand(*row.key, 15), session.stream_of(row.key))

    def _fail_waiting(self) -> None:
        queue = self.queue
        sessions = list(self.sessions.values())
        reason = f"{sessions[0].name}: {sessions[0].reason}" if len(sessions) == 1 else "no worker could run it"
        while queue.waiting:
            row = queue.rows[queue.waiting.popleft()]
            queue.settle(queue.put(row, "failed", reason))

    def _assign(self) -> None:
        """Assign waiting errands to workers (``placement.py``)."""
        queue = self.queue
        if not queue.waiting or self._is_cancelled:
            return
        self._fail_impossible()
        if not queue.waiting:
            return
        payload = self.payload = self.payload or self.services.load_payload()
        for session in self.sessions.values():
            if session.is_greeted and not session.offered_base:
                session.offered_base = payload.identity
                queue.send_later(session, wire.OFFER, wire.OfferedBase(payload.base))
        known = [room for room in self._rooms() if room is not None]
        for key, name in list(place(((key, queue.needs(key)) for key in queue.waiting), known, queue.kept_workers)):
            queue.waiting.remove(key)
            self._send_errand(self.sessions[name], key, payload)

    def _rooms(self) -> list[WorkerRoom | None]:
        """Return the room of each usable worker; None: it has not said it yet."""
        return [session.room(self.queue.needs) for session in self.sessions.values() if session.is_usable]

    def _fail_impossible(self) -> None:
        """Fail the errands that no worker can ever have, once all workers have said what they have."""
        queue, rooms = self.queue, self._rooms()
        known = [room for room in rooms if room is not None]
        totals = tuple(room.total for room in known)
        if totals == self._looked_at or len(known) < len(rooms):
            return
        self._looked_at = totals
        reasons = {needs: lack(needs, known) for needs in {queue.needs(key) for key in queue.waiting}}
        for key in [key for key in queue.waiting if reasons[queue.needs(key)]]:
            queue.waiting.remove(key)
            queue.settle(queue.put(queue.rows[key], "failed", reasons[queue.needs(key)]))

    def _send_errand(self, session: WorkerSession, key: Key, payload: BasePayload) -> None:
        queue = self.queue
        queue.put(queue.rows[key]._replace(worker=session.name), "sent")
        session.running.add(key)
        message = queue.errands[key[0]].message._replace(attempt=key[1], base=payload.identity)
        queue.send_later(session, wire.ERRAND, message, session.open_stream(key))

    # --- effects of messages ---

    def base_changed(self, error: Exception) -> None:
        """Scan the project again, which was edited while it was sent. Raise MudroomError if that happens again and
        again, or if reading failed otherwise."""
        self._rescans += 1
        if self._rescans > _MOST_RESCANS:
            raise MudroomError(f"the project does not stand still while it is sent: {error}", "run it again") from error
        self.payload = self.services.load_payload()
        for session in self.sessions.values():
            session.offered_base, session.has_base = b"", False

    def disconnected(self, session: WorkerSession, reason: str, hint: str, *, given_up: bool) -> None:
        """A worker's link is over. ``given_up``: it is not tried again in this run."""
        now, queue = self.services.clock(), self.queue
        link = session.disconnected(now, reason, given_up=given_up)
        if link is not None:
            self.services.questions.forget(link)
            self.services.proxy.forget(link)
            link.end(reason)
        self.fetcher.disconnected(session.name)
        for row in queue.rows_of(session.name):
            if row.state in ("sent", "accepted"):
                queue.awaited_until.setdefault(row.key, now + self.services.lease)
        self.services.report(WorkerDisconnected(session.name, reason, hint, given_up))

    def ban(self, session: WorkerSession, reason: str) -> None:
        """End a worker's link, as it broke the protocol or lied. It gets no more errands."""
        self.disconnected(session, reason, "", given_up=True)

    # --- the end ---

    def _send_goodbyes(self) -> None:
        """Say goodbye to the workers. Archives that were not fetched stay there."""
        for session in self.sessions.values():
            self.queue.send_later(session, wire.BYE, wire.Bye(""))
        for row in self.fetcher.wanted():
            self.queue.settle(self.queue.put(row, reason=f"not fetched: {self._reason_gone(row.worker)}"))
        self._is_complete = True

    def _close(self) -> None:
        links = [session.link for session in self.sessions.values() if session.link is not None]
        until = time.monotonic() + (CLOSE_TIMEOUT if self._is_complete else 0.0)
        for link in links:
            link.join(max(0.0, until - time.monotonic()))
            link.end("the run is over")
        for link in links:
            link.join(2 * CLOSE_TIMEOUT)
        self.fetcher.close()
        if self._is_complete:
            self._log.end_run(self._run.run)  # not before the workers know which results they may discard
