"""Queue of one run's errands: their rows in the log, those that wait, and the frames that follow from both.

``send_later`` only collects: ``flush`` commits the log and sends afterwards, so nothing is done that the log does not
say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from mudroom.core.confinement.limit import Limits
from mudroom.ext.fleet.origin.errand_log import AttemptRow, ErrandLog, ErrandRow
from mudroom.ext.fleet.origin.fleet_event import ErrandSettled, FleetEvent, WorkerNote
from mudroom.ext.fleet.origin.link import OriginLink
from mudroom.ext.fleet.origin.placement import Needs, needs_of
from mudroom.ext.fleet.origin.worker_session import Key, WorkerSession
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame
from mudroom.ext.fleet.wire.settings import decode

_UNFINISHED = frozenset({"new", "sent", "accepted"})
_UNFETCHED = frozenset({"ended", "late", "expired"})


class ErrandQueue:
    """Owner: the verb's thread."""

    def __init__(self, log: ErrandLog, run: str, retry: int, report: Callable[[FleetEvent], None]) -> None:
        self._log, self._retry, self.report = log, retry, report
        self.errands: dict[str, ErrandRow] = {row.errand: row for row in log.errands(run)}
        self.rows: dict[Key, AttemptRow] = {row.key: row for row in log.attempts(run)}
        self.waiting = deque(row.key for row in self.rows.values() if row.state == "new")
        self.unfetched: set[Key] = set()
        """Attempts whose archive a worker has and this vault has not."""
        self.unfinished: set[Key] = set()
        """Attempts whose outcome is awaited."""
        for row in self.rows.values():
            self._classify(row)
        self.awaited_until: dict[Key, float] = {}
        """Attempts whose worker is not linked: until when it is awaited."""
        self.accepted_at: dict[Key, float] = {}
        """When attempts were accepted, by this process's monotonic clock."""
        self.may_retry = True
        self.kept_workers: dict[Key, str] = {}
        """Workers that are kept for an errand that waits (``placement.py``)."""
        self._needs: dict[bytes, Limits] = {}
        """By settings."""
        self._outgoing: list[tuple[OriginLink, Frame]] = []
        self._settled: list[ErrandSettled] = []

    def needs(self, key: Key) -> Needs:
        """Return the needs of an errand; none if its settings are gone, as its run has ended."""
        if key[0] not in self.errands:
            return Needs()
        message = self.errands[key[0]].message
        limits = self._needs.get(message.settings)
        if limits is None:
            limits = decode(message.settings).limits if message.settings else Limits()
            self._needs[message.settings] = limits
        return needs_of(limits, message.gpus)

    # --- sending ---

    def send_later(self, session: WorkerSession, kind: int, message: object, stream: int = 0) -> None:
        """Send a message to a worker with the next ``flush``, if it is linked then."""
        if session.link is not None:
            self._outgoing.append((session.link, wire.frame_of(kind, message, stream)))

    def flush(self) -> list[ErrandSettled]:
        """Commit the log, then send the collected frames. Return the attempts that were settled since the last
        flush."""
        self._log.commit()
        outgoing, self._outgoing = self._outgoing, []
        for link, frame in outgoing:
            link.send(frame)
        settled, self._settled = self._settled, []
        return settled

    def commit(self) -> None:
        """Commit the log alone."""
        self._log.commit()

    # --- rows ---

    def put(self, row: AttemptRow, state: str | None = None, reason: str | None = None) -> AttemptRow:
        """Write a row, in another state and with another reason if they are given. Return it."""
        row = row._replace(state=state or row.state, reason=row.reason if reason is None else reason)
        self._log.put(row)
        self.rows[row.key] = row
        self._classify(row)
        return row

    def _classify(self, row: AttemptRow) -> None:
        is_unfetched = row.outcome is not None and row.outcome.archive > 0 and row.state in _UNFETCHED
        for keys, belongs in ((self.unfetched, is_unfetched), (self.unfinished, row.state in _UNFINISHED)):
            (keys.add if belongs else keys.discard)(row.key)

    def state_of(self, key: Key) -> str | None:
        """Return an attempt's state, whichever run of this project has it; None for an unknown attempt."""
        return self.rows[key].state if key in self.rows else self._log.state_of(key)

    def sorted_rows(self, keys: Iterable[Key] | None = None) -> list[AttemptRow]:
        """Return these attempts' rows, by default all, in the errands' order."""
        rows = self.rows.values() if keys is None else [self.rows[key] for key in keys]
        return sorted(rows, key=lambda row: (self.errands[row.errand].number, row.attempt))

    def rows_of(self, name: str) -> list[AttemptRow]:
        return [row for row in self.rows.values() if row.worker == name]

    def result_directory(self, row: AttemptRow) -> bytes:
        return self._log.result_directory(row)

    def settle(self, row: AttemptRow) -> None:
        """Note that an attempt is over for now, and yield it with the next ``flush``."""
        self.awaited_until.pop(row.key, None)
        self._settled.append(ErrandSettled(self.errands[row.errand], row))

    def requeue(self, row: AttemptRow) -> None:
        """Put an errand back that its worker never had: another worker gets it."""
        self.awaited_until.pop(row.key, None)
        self.put(row._replace(worker=""), "new")
        self.waiting.append(row.key)

    def mark_lost(self, row: AttemptRow, reason: str) -> None:
        """Mark an errand as lost that its worker may have begun, as the worker is gone. Without leave to retry, this is
        its end."""
        self.awaited_until.pop(row.key, None)
        lost = self.put(row, "lost", reason)
        if row.attempt > self._retry or not self.may_retry:
            self.settle(lost)
            return
        self.waiting.append(self.put(AttemptRow(row.errand, row.attempt + 1, "new")).key)
        self.report(WorkerNote(row.worker, f"{self.errands[row.errand].label} is lost ({reason}) and tried again"))

    def mark_kept(self, row: AttemptRow, session: WorkerSession | None) -> None:
        """Mark an attempt as over, and let its worker discard it."""
        if row.state in ("ended", "fetched", "late"):
            self.put(row, "kept")
        if session is not None and session.is_greeted:
            self.send_later(session, wire.KEPT, wire.Kept(*row.key), session.open_stream(row.key))
