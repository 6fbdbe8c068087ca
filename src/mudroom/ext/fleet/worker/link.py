"""The worker's end of a link: reads the origin's frames, accepts errands, sends their outcomes.

Rules of this file:
1. The first frame is the origin's hello; a link to another protocol ends by name. A frame that breaks the protocol ends
   the link, not the commands.
2. An errand is checked, then on disk, then accepted, then run. An attempt is run once.
3. Frames that come late (an answer to a question that is settled, data for a connection that is shut) are ignored.
4. Without a frame from the origin for the lease's length, or so long after the end of the pipe, the commands end as
   ``expired``. Outcomes and forks stay until the origin has them.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from mudroom import __version__
from mudroom.core.agent.sandbox_level import LEVELS
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.network.flow import FlowQuestion
from mudroom.core.tree.path import relpath
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.wire import message
from mudroom.ext.fleet.wire import settings as wire_settings
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.message import DIGEST, Errand, frame_of, message_of
from mudroom.ext.fleet.worker.base_cache import BaseCache
from mudroom.ext.fleet.worker.errand_run import JUDGE, ErrandRun, run_errand
from mudroom.ext.fleet.worker.folder import ErrandFolders, folder_name
from mudroom.ext.fleet.worker.frame_stream import FrameStream
from mudroom.ext.fleet.worker.gpu_pool import GpuPool
from mudroom.ext.fleet.worker.held_results import HeldResults
from mudroom.ext.fleet.worker.lease import Lease
from mudroom.ext.fleet.worker.origin_connections import OriginConnections, OriginDialler
from mudroom.ext.fleet.worker.outbox import LinkOutbox
from mudroom.ext.fleet.worker.question import (
    OriginApprover,
    OriginQuestions,
    PendingHost,
    ask_about_command,
    ask_about_host,
)
from mudroom.ext.fleet.worker.session_cache import SessionCache, WorkerEnvironment, remove_unused_vaults
from mudroom.ext.fleet.worker.spool import OutputSource
from mudroom.ext.fleet.worker.thread_pool import ThreadPool
from mudroom.vault.record import FORMAT

MOST_WORDS = 100_000
LONGEST_TIMEOUT = 30 * 86400.0
"""Seconds."""
_MOST_NUMBER = 1_000_000
MOST_GPUS = 1024


def check(errand: Errand, levels: tuple[int, ...]) -> None:
    """Raise UsageError if an errand is out of bounds or its level is not in ``levels``, LinkError if its settings
    cannot be read. No level is ever lowered: an errand without a level has that of its settings."""
    folder_name(errand.errand, errand.attempt)
    if len(errand.base) != DIGEST:
        raise UsageError("the base of the errand is no digest")
    _check_words(errand.argv, "the command")
    if not errand.argv:
        raise UsageError("the errand has no command")
    if errand.judge:
        _check_words(errand.judge, "the judge")
    try:
        if errand.cwd:
            relpath(errand.cwd)
    except ValueError as error:
        raise UsageError(f"the directory of the errand: {error}") from None
    for name, value in errand.variables:
        if not name or b"=" in name or b"\0" in name + value:
            raise UsageError("a variable of the errand has no valid name or value")
    if len(errand.variables) > MOST_WORDS:
        raise UsageError(f"the errand has more than {MOST_WORDS:,} variables")
    if not (math.isfinite(errand.timeout) and 0 <= errand.timeout <= LONGEST_TIMEOUT):
        raise UsageError(f"{errand.timeout} is not a number of seconds")
    if not 0 <= errand.gpus <= MOST_GPUS:
        raise UsageError(f"{errand.gpus} is not a number of GPUs")
    if not 0 <= errand.number <= _MOST_NUMBER:
        raise UsageError(f"{errand.number} is not the number of an attempt among several")
    _check_level(errand, levels)


def _check_words(words: tuple[bytes, ...], where: str) -> None:
    if len(words) > MOST_WORDS:
        raise UsageError(f"{where} has more than {MOST_WORDS:,} words")
    if any(b"\0" in word for word in words):
        raise UsageError(f"{where} holds a NUL byte")


def _check_level(errand: Errand, levels: tuple[int, ...]) -> None:
    settings = wire_settings.decode(errand.settings) if errand.settings else None
    level = errand.level if errand.level is not None else (settings.level if settings is not None else 1)
    if type(level) is not int or level not in LEVELS:
        raise UsageError(f"{level!r} is not a level")
    if level not in levels:
        there = ", ".join(map(str, levels)) or "none"
        raise UsageError(
            f"commands cannot run at level {level} on this worker; it has: {there}", "mudroom doctor there"
        )


MOST_OPEN = 1_000
"""A link's errands that have not ended."""
FLUSH_TIMEOUT = 2.0
"""Seconds in which a last frame is written."""


class WorkerFacts(NamedTuple):
    """A worker's facts about its machine."""

    levels: tuple[int, ...]
    processors: int
    memory: int
    disk: bytes
    """A path on the disk whose free bytes are told."""
    slots: int
    gpus: int = 0
    gpu_locks: bytes = b""
    """Directory in which all links to this user's workers lock the GPUs that they use."""
    engine: str = "local"


class WorkerLink:
    """One link's state. ``_lock`` guards ``_runs`` and ``_by_fork``. All else is written by the thread that reads,
    before the others start."""

    def __init__(self, write: int, facts: WorkerFacts, folders: ErrandFolders, lease: Lease) -> None:
        self._facts, self._folders, self._lease = facts, folders, lease
        self._outbox = LinkOutbox(write)
        self._questions = OriginQuestions(self._send_question)
        self._connections = OriginConnections(self._outbox.put)
        self._pool = ThreadPool(facts.slots)
        self._gpus = GpuPool(facts.gpu_locks, facts.gpus)
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, int], tuple[ErrandRun, Callable[[], None]]] = {}
        self._by_fork: dict[str, ErrandRun] = {}
        self._sessions: SessionCache
        self._bases: BaseCache
        self._results: HeldResults

    def open(self, bases: BaseCache, environment: WorkerEnvironment) -> None:
        """``environment``: where this origin's commands run."""
        self._bases = bases
        self._sessions = SessionCache(environment, bases, OriginApprover(self._ask_about_host), self._dialler)
        self._results = HeldResults(self._folders, self._outbox, self._sessions)
        self._outbox.start()
        self._results.submit(partial(remove_unused_vaults, environment.state))

    # --- serving ---

    def serve(self, frames: FrameStream) -> None:
        """Take frames until the origin is gone, then wait for the commands, which end with the lease."""
        watch = threading.Thread(
            target=self._lease.watch, args=(self._expire, self._poll_cancellations), name="lease", daemon=True
        )
        watch.start()
        try:
            self._outbox.put(frame_of(message.HELLO, self._hello()))
            self._read_frames(frames)
        except BaseException:  # a signal
            self._expire()
            raise
        finally:
            self._shut_down()

    def _read_frames(self, frames: FrameStream) -> None:
        try:
            while (frame := frames.next()) is not None:
                self._lease.renew()
                if frame.kind == message.BYE:
                    return
                handle = _HANDLERS.get(frame.kind)
                if handle is None:
                    raise LinkError(f"sent a frame of the unknown kind {frame.kind}")
                handle(self, frame)
        except LinkError as error:
            self._outbox.put(frame_of(message.BYE, message.Bye(str(error))))
            self._outbox.flush(FLUSH_TIMEOUT)

    def _shut_down(self) -> None:
        self._lease.detach()
        self._questions.close()
        self._connections.close()
        self._pool.join()
        self._results.join()
        self._outbox.flush(FLUSH_TIMEOUT)
        self._outbox.close()
        self._lease.close()
        self._sessions.close()

    def _expire(self) -> None:
        with self._lock:
            runs = list(self._runs.values())
        for run, work in runs:
            self._end(run, work, "expired", 0)
        self._questions.deny_all()

    def _poll_cancellations(self) -> None:
        with self._lock:
            runs = list(self._runs.values())
        for run, work in runs:
            signal = run.folder.cancel_signal
            if signal:
                self._end(run, work, "cancelled", signal)

    def _end(self, run: ErrandRun, work: Callable[[], None], state: str, signal: int) -> None:
        run.end(state, signal)
        if self._pool.cancel(work):  # it ends at once, not when it would have begun
            threading.Thread(target=work, name="errand", daemon=True).start()

    def _hello(self) -> message.WorkerHello:
        held = []
        for folder in self._folders:
            try:
                errand, outcome = folder.errand, folder.outcome
            except (msgspec.DecodeError, OSError) as error:
                print(f"mudroom worker: {os.fsdecode(folder.path)}: {error}", file=sys.stderr)  # noqa: T201
                continue
            state = outcome.state if outcome is not None else "accepted" if folder.is_running else "lost"
            held.append(message.HeldErrand(errand.errand, errand.attempt, state))
        self._folders.prune()
        facts, system = self._facts, os.uname()
        return message.WorkerHello(
            message.PROTOCOL,
            __version__,
            FORMAT,
            system.machine,
            f"{system.sysname} {system.release}",
            facts.levels,
            facts.processors,
            facts.memory,
            free_disk(facts.disk),
            facts.engine,
            held=tuple(held),
            gpus=facts.gpus,
            free_memory=free_memory(facts.memory),
        )

    # --- frames from the origin ---

    def _ping(self, frame: Frame) -> None:
        ping = message_of(frame, message.Ping)
        disk, memory = free_disk(self._facts.disk), free_memory(self._facts.memory)
        pong = message.Pong(ping.number, self._pool.load, os.getloadavg()[0], disk, memory)
        self._outbox.put(frame_of(message.PONG, pong))

    def _offer(self, frame: Frame) -> None:
        offer = message_of(frame, message.OfferedBase)
        try:
            answer = self._bases.receiver.offer(offer.base)
        except (MudroomError, OSError) as error:
            if isinstance(error, LinkError):
                raise
            answer = frame_of(message.FAILED, message.Failed(str(error)))
        self._outbox.put(answer)

    def _objects(self, frame: Frame) -> None:
        try:
            answer = self._bases.receiver.receive(frame.body)
        except LinkError:
            raise
        except (MudroomError, OSError) as error:
            answer = frame_of(message.FAILED, message.Failed(f"the objects cannot be kept: {error}"))
        if answer is not None:
            self._outbox.put(answer)

    def _errand(self, frame: Frame) -> None:
        errand = message_of(frame, message.Errand)
        try:
            check(errand, self._facts.levels)
            self._bases.get(errand.base)
            with self._lock:
                if len(self._runs) >= MOST_OPEN:
                    raise UsageError(f"{MOST_OPEN:,} errands run or wait on this worker", "send it later")
            folder = self._folders.accept(errand)
        except (MudroomError, OSError) as error:
            self._send_failure(frame.stream, error)
            return
        source = OutputSource(folder.path, frame.stream)
        run = ErrandRun(folder, errand, frame.stream, partial(self._outbox.wake, source), self._gpus)
        work = partial(self._run, run, source)
        with self._lock:
            self._runs[errand.errand, errand.attempt] = (run, work)
            self._by_fork[run.fork] = run
        self._outbox.put(frame_of(message.ACCEPTED, message.Accepted(errand.errand, errand.attempt), frame.stream))
        self._pool.submit(work)

    def _answer(self, frame: Frame) -> None:
        self._questions.answer(message_of(frame, message.Answer))

    def _cancel(self, frame: Frame) -> None:
        wanted = message_of(frame, message.CancelErrand)
        with self._lock:
            found = self._runs.get((wanted.errand, wanted.attempt))
        if found is not None:
            self._end(*found, "cancelled", wanted.signal)
            return
        try:
            folder = self._results.find(wanted.errand, wanted.attempt)
        except UsageError as error:
            self._send_failure(frame.stream, error)
            return
        if folder.outcome is None and folder.is_running:
            folder.request_cancel(wanted.signal or 15)

    def _fetch(self, frame: Frame) -> None:
        wanted = message_of(frame, message.Fetch)
        try:
            if wanted.offset >= 0:
                self._results.send_archive(wanted, frame.stream)
            elif self._is_open(wanted.errand, wanted.attempt):
                raise UsageError("the errand runs on this link", "its outcome comes on the stream of its ERRAND")
            else:
                self._results.resend(wanted, frame.stream)
        except (UsageError, OSError) as error:
            self._send_failure(frame.stream, error)

    def _kept(self, frame: Frame) -> None:
        wanted = message_of(frame, message.Kept)
        try:
            if self._is_open(wanted.errand, wanted.attempt):
                raise UsageError("the errand has not ended")
            self._results.discard(wanted)
        except UsageError as error:
            self._send_failure(frame.stream, error)

    def _dialled(self, frame: Frame) -> None:
        self._connections.dialled(frame)

    def _pass_to_connection(self, frame: Frame) -> None:
        self._connections.tunnels.take(frame)

    # --- helpers ---

    def _is_open(self, errand: str, attempt: int) -> bool:
        with self._lock:
            return (errand, attempt) in self._runs

    def _send_failure(self, stream: int, error: Exception) -> None:
        hint = error.hint if isinstance(error, MudroomError) else ""
        reason = error.message if isinstance(error, MudroomError) else str(error)
        self._outbox.put(frame_of(message.FAILED, message.Failed(reason, hint), stream))

    def _run(self, run: ErrandRun, source: OutputSource) -> None:
        outcome = run_errand(run, self._sessions, partial(self._ask_about_command, run))
        with self._lock:
            del self._runs[run.errand.errand, run.errand.attempt]
            del self._by_fork[run.fork]
        self._results.finish(source, run.folder, outcome, run.stream)

    # --- questions ---

    def _send_question(self, stream: int, ask: message.Ask) -> None:
        self._outbox.put(frame_of(message.ASK, ask, stream))

    def _ask_about_command(self, run: ErrandRun, question: CommandQuestion) -> CommandAnswer:
        return ask_about_command(self._questions, run.stream, question, run.question_timeout, run.cancellation.fileno())

    def _dialler(self, fork: str) -> OriginDialler:
        run = self._run_of_fork(fork)
        return OriginDialler(self._connections, run.stream if run is not None else 0, fork)

    def _run_of_fork(self, fork: str) -> ErrandRun | None:
        with self._lock:
            return self._by_fork.get(fork.removesuffix(JUDGE))

    def _ask_about_host(self, question: FlowQuestion) -> PendingHost:
        run = self._run_of_fork(question.fork)
        stream, timeout = (run.stream, run.question_timeout) if run is not None else (0, 0.0)
        return ask_about_host(self._questions, stream, question, timeout)


_HANDLERS: dict[int, Callable[[WorkerLink, Frame], None]] = {
    message.PING: WorkerLink._ping,
    message.OFFER: WorkerLink._offer,
    message.OBJECTS: WorkerLink._objects,
    message.ERRAND: WorkerLink._errand,
    message.ANSWER: WorkerLink._answer,
    message.CANCEL: WorkerLink._cancel,
    message.FETCH: WorkerLink._fetch,
    message.KEPT: WorkerLink._kept,
    message.DIALLED: WorkerLink._dialled,
    message.DATA: WorkerLink._pass_to_connection,
    message.SHUT: WorkerLink._pass_to_connection,
    message.ROOM: WorkerLink._pass_to_connection,
}


def free_memory(total: int) -> int:
    """Return the bytes that programs can have without swapping (proc_meminfo(5)), at most ``total``; -1: not known."""
    with suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as stream:
        for row in stream:
            if row.startswith("MemAvailable:"):
                return min(int(row.split()[1]) << 10, total)
    return -1


def free_disk(path: bytes) -> int:
    free = os.statvfs(path)
    return free.f_bavail * free.f_frsize
