"""The worker's end of a link: reads the origin's frames, accepts errands, tells what becomes of them.

Rules of this file:
1. The first frame is the origin's hello; a link to another protocol ends by name. A frame that breaks the protocol ends
   the link, not the commands.
2. An errand is checked, then on disk, then accepted, then run. A pair of errand and attempt is run once.
3. Frames that come late (an answer to a question that is settled, data of a connection that is shut) are ignored.
4. Without a frame of the origin for the length of the lease, or after the end of the pipe for as long, the commands end
   as ``expired``. Outcomes and forks stay until the origin has them.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from mudroom import __version__
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.errors import MudroomError, UsageError
from mudroom.fleet.wire import message
from mudroom.fleet.wire.frame import Frame, FrameReader, LinkError
from mudroom.fleet.wire.message import frame_of, message_of
from mudroom.fleet.worker.crew import Crew
from mudroom.fleet.worker.errand_check import check
from mudroom.fleet.worker.errand_run import JUDGE, ErrandRun, discard, perform, recover
from mudroom.fleet.worker.far_dial import FarDialler, FarDials
from mudroom.fleet.worker.folder import ErrandFolder, ErrandFolders
from mudroom.fleet.worker.lease import Lease
from mudroom.fleet.worker.outbox import Outbox
from mudroom.fleet.worker.question import UNANSWERED, PendingHost, Questions, ask_about_command, begin_host
from mudroom.fleet.worker.spool import OutputSource
from mudroom.fleet.worker.transfer import ArchiveSource
from mudroom.fleet.worker.workplace import Place, Supply, Workplace
from mudroom.vault.record import FORMAT

LIMITS = {
    message.HELLO: 1 << 16, message.PING: 64, message.PONG: 64, message.BYE: 1 << 16, message.FAILED: 1 << 16,
    message.OFFER: 1 << 20, message.OBJECTS: 9 << 20, message.ERRAND: 4 << 20, message.ANSWER: 1 << 16,
    message.FETCH: 1 << 10, message.KEPT: 1 << 10, message.CANCEL: 1 << 10, message.DIALLED: 1 << 12,
    message.DATA: 1 << 15, message.SHUT: 1, message.ROOM: 16,
}  # fmt: skip
"""Bytes of a body that a worker takes, by kind."""
MOST_OPEN = 1_000
"""Errands of a link that have not ended."""
MOST_FETCHES = 64
"""Archives that are being sent."""
MOST_TOLD = 1_000
"""Errands of earlier processes that are waited for."""
CHORES = 2
"""Forks that are discarded at once."""
LAST_WORDS = 2.0
"""Seconds in which a last frame is written."""
_PIECE = 1 << 18


class WorkerFacts(NamedTuple):
    """What a worker says of its machine."""

    levels: tuple[int, ...]
    processors: int
    memory: int
    disk: bytes
    """A path on the disk whose free bytes are told."""
    at_once: int
    engine: str = "local"


class WorkerLink:
    """The state of one link. ``_lock`` guards ``_runs``, ``_by_fork``, ``_fetches`` and ``_tellers``. All else is
    written by the thread that reads, before the others start."""

    def __init__(self, write: int, facts: WorkerFacts, folders: ErrandFolders, lease: Lease) -> None:
        self._facts, self._folders, self._lease = facts, folders, lease
        self._outbox = Outbox(write)
        self._questions = Questions(self._send_question)
        self._dials = FarDials(self._outbox.put)
        self._crew, self._chores = Crew(facts.at_once), Crew(CHORES)
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, int], tuple[ErrandRun, Callable[[], None]]] = {}
        self._by_fork: dict[str, ErrandRun] = {}
        self._fetches: list[ArchiveSource] = []
        self._tellers: list[threading.Thread] = []
        """They wait for errands of earlier worker processes."""
        self._workplace: Workplace
        self._supply: Supply

    def open(self, supply: Supply, place: Place) -> None:
        """``place``: where the commands of this origin run."""
        self._supply = supply
        self._workplace = Workplace(place, supply, HostApprover(self._begin_host), self._dialler)
        self._outbox.start()

    # --- the life of a link ---

    def serve(self, frames: FrameStream) -> None:
        """Take frames until the origin is gone, then wait for the commands, which end with the lease."""
        watch = threading.Thread(
            target=self._lease.watch, args=(self._expire, self._look_for_cancels), name="lease", daemon=True
        )
        watch.start()
        try:
            self._outbox.put(frame_of(message.HELLO, self._hello()))
            self._take_all(frames)
        except BaseException:  # a signal
            self.end_all("expired")
            raise
        finally:
            self._leave()

    def _take_all(self, frames: FrameStream) -> None:
        try:
            while (frame := frames.next()) is not None:
                self._lease.touch()
                if frame.kind == message.BYE:
                    return
                take = _TAKE.get(frame.kind)
                if take is None:
                    raise LinkError(f"sent a frame of the unknown kind {frame.kind}")
                take(self, frame)
        except LinkError as error:
            self._outbox.put(frame_of(message.BYE, message.Bye(str(error))))
            self._outbox.flush(LAST_WORDS)

    def _leave(self) -> None:
        self._lease.detach()
        self._questions.close()
        self._dials.close()
        self._crew.join()
        self._chores.join()
        self._outbox.flush(LAST_WORDS)
        self._outbox.close()
        self._lease.close()
        self._workplace.close()

    def end_all(self, state: str) -> None:
        """End the commands of this link."""
        with self._lock:
            runs = list(self._runs.values())
        for run, work in runs:
            self._end(run, work, state, 0)
        self._questions.deny_all()

    def _expire(self) -> None:
        self.end_all("expired")

    def _look_for_cancels(self) -> None:
        with self._lock:
            runs = list(self._runs.values())
        for run, work in runs:
            signal = run.folder.cancelled_with
            if signal:
                self._end(run, work, "cancelled", signal)

    def _end(self, run: ErrandRun, work: Callable[[], None], state: str, signal: int) -> None:
        run.end(state, signal)
        if self._crew.take_back(work):  # it ends at once, not when it would have begun
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
        )

    # --- frames of the origin ---

    def _ping(self, frame: Frame) -> None:
        ping = message_of(frame, message.Ping)
        pong = message.Pong(ping.number, self._crew.load, os.getloadavg()[0], free_disk(self._facts.disk))
        self._outbox.put(frame_of(message.PONG, pong))

    def _offer(self, frame: Frame) -> None:
        offered = message_of(frame, message.OfferedBase)
        try:
            answer = self._supply.offered(offered.base)
        except (MudroomError, OSError) as error:
            if isinstance(error, LinkError):
                raise
            answer = frame_of(message.FAILED, message.Failed(str(error)))
        self._outbox.put(answer)

    def _objects(self, frame: Frame) -> None:
        try:
            answer = self._supply.came(frame.body)
        except OSError as error:
            answer = frame_of(message.FAILED, message.Failed(f"the objects cannot be kept: {error.strerror}"))
        if answer is not None:
            self._outbox.put(answer)

    def _errand(self, frame: Frame) -> None:
        errand = message_of(frame, message.Errand)
        try:
            check(errand, self._facts.levels)
            self._supply.base(errand.base)
            with self._lock:
                if len(self._runs) >= MOST_OPEN:
                    raise UsageError(f"{MOST_OPEN:,} errands run or wait on this worker", "send it later")
            folder = self._folders.accept(errand)
        except (MudroomError, OSError) as error:
            self._fail(frame.stream, error)
            return
        source = OutputSource(folder.path, frame.stream)
        run = ErrandRun(folder, errand, frame.stream, partial(self._outbox.wake, source))
        work = partial(self._perform, run, source)
        with self._lock:
            self._runs[errand.errand, errand.attempt] = (run, work)
            self._by_fork[run.fork] = run
        self._outbox.put(frame_of(message.ACCEPTED, message.Accepted(errand.errand, errand.attempt), frame.stream))
        self._crew.give(work)

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
            folder = self._found(wanted.errand, wanted.attempt)
        except UsageError as error:
            self._fail(frame.stream, error)
            return
        if folder.outcome is None and folder.is_running:
            folder.ask_to_end(wanted.signal or 15)

    def _fetch(self, frame: Frame) -> None:
        wanted = message_of(frame, message.Fetch)
        try:
            folder = self._found(wanted.errand, wanted.attempt)
            if wanted.offset < 0:
                self._tell(folder, (wanted.errand, wanted.attempt), frame.stream)
                return
            self._send_archive(folder, frame.stream, wanted.offset)
        except (UsageError, OSError) as error:
            self._fail(frame.stream, error)

    def _kept(self, frame: Frame) -> None:
        wanted = message_of(frame, message.Kept)
        try:
            folder = self._found(wanted.errand, wanted.attempt)
        except UsageError:
            return  # it was kept before
        with self._lock:
            is_open = (wanted.errand, wanted.attempt) in self._runs
        if is_open or folder.outcome is None:
            self._fail(frame.stream, UsageError("the errand has not ended"))
            return
        self._chores.give(partial(self._forget, folder))

    def _dialled(self, frame: Frame) -> None:
        self._dials.dialled(frame)

    def _connection(self, frame: Frame) -> None:
        self._dials.tunnels.take(frame)

    # --- helpers of those ---

    def _found(self, errand: str, attempt: int) -> ErrandFolder:
        folder = self._folders.find(errand, attempt)
        if folder is None:
            raise UsageError(f"this worker has no attempt {attempt} of the errand {errand}")
        return folder

    def _fail(self, stream: int, error: Exception) -> None:
        hint = error.hint if isinstance(error, MudroomError) else ""
        reason = error.message if isinstance(error, MudroomError) else str(error)
        self._outbox.put(frame_of(message.FAILED, message.Failed(reason, hint), stream))

    def _perform(self, run: ErrandRun, source: OutputSource) -> None:
        outcome = perform(run, self._workplace, partial(self._ask_about_command, run))
        with self._lock:
            del self._runs[run.errand.errand, run.errand.attempt]
            del self._by_fork[run.fork]
        self._finish(source, run.folder, outcome, run.stream)

    def _finish(self, source: OutputSource, folder: ErrandFolder, outcome: message.ErrandOutcome, stream: int) -> None:
        rows = [frame_of(message.EVENT, message.EventRow(row), stream) for row in folder.events]
        source.finish([*rows, frame_of(message.OUTCOME, outcome, stream)])
        self._outbox.wake(source)

    def _tell(self, folder: ErrandFolder, name: tuple[str, int], stream: int) -> None:
        """Tell the output and the outcome of an errand on this stream, now or when it has ended."""
        with self._lock:
            is_here = name in self._runs
        if is_here:
            raise UsageError("the errand runs on this link", "its outcome comes on the stream of its ERRAND")
        source = OutputSource(folder.path, stream)
        outcome = folder.outcome
        if outcome is not None:
            self._finish(source, folder, outcome, stream)
            return
        with self._lock:
            self._tellers = [teller for teller in self._tellers if teller.is_alive()]
            if len(self._tellers) >= MOST_TOLD:
                raise UsageError(f"{MOST_TOLD} errands are waited for", "ask later")
            args = (folder, source, stream)
            teller = threading.Thread(target=self._tell_later, args=args, name="tell", daemon=True)
            self._tellers.append(teller)
        teller.start()

    def _tell_later(self, folder: ErrandFolder, source: OutputSource, stream: int) -> None:
        while (outcome := folder.outcome) is None:
            if folder.claim():
                outcome = folder.outcome or recover(folder, self._workplace)
                folder.release()
                break
            folder.wait()
        self._finish(source, folder, outcome, stream)

    def _send_archive(self, folder: ErrandFolder, stream: int, offset: int) -> None:
        source = ArchiveSource(folder.archive, stream, offset)
        with self._lock:
            self._fetches = [fetch for fetch in self._fetches if not fetch.is_closed]
            if len(self._fetches) >= MOST_FETCHES:
                source.close()
                raise UsageError(f"{MOST_FETCHES} archives are being sent", "fetch it later")
            self._fetches.append(source)
        self._outbox.wake(source)

    def _forget(self, folder: ErrandFolder) -> None:
        discard(folder, self._workplace)
        self._folders.forget(folder)

    # --- questions ---

    def _send_question(self, stream: int, ask: message.Ask) -> None:
        self._outbox.put(frame_of(message.ASK, ask, stream))

    def _ask_about_command(self, run: ErrandRun, question: CommandQuestion) -> CommandAnswer:
        return ask_about_command(self._questions, run.stream, question, run.patience, run.cancellation.fileno())

    def _dialler(self, fork: str) -> FarDialler:
        """Return what makes the connections of a command in this fork."""
        run = self._run_in(fork)
        return FarDialler(self._dials, run.stream if run is not None else 0, fork)

    def _run_in(self, fork: str) -> ErrandRun | None:
        with self._lock:
            return self._by_fork.get(fork.removesuffix(JUDGE))

    def _begin_host(self, question: FlowQuestion) -> PendingHost:
        run = self._run_in(question.fork)
        stream, timeout = (run.stream, run.patience) if run is not None else (0, 0.0)
        return begin_host(self._questions, stream, question, timeout)


_TAKE: dict[int, Callable[[WorkerLink, Frame], None]] = {
    message.PING: WorkerLink._ping,
    message.OFFER: WorkerLink._offer,
    message.OBJECTS: WorkerLink._objects,
    message.ERRAND: WorkerLink._errand,
    message.ANSWER: WorkerLink._answer,
    message.CANCEL: WorkerLink._cancel,
    message.FETCH: WorkerLink._fetch,
    message.KEPT: WorkerLink._kept,
    message.DIALLED: WorkerLink._dialled,
    message.DATA: WorkerLink._connection,
    message.SHUT: WorkerLink._connection,
    message.ROOM: WorkerLink._connection,
}


class HostApprover:
    """Asks the origin about hosts (``RemoteApprover``)."""

    def __init__(self, begin: Callable[[FlowQuestion], PendingHost]) -> None:
        self.begin = begin

    def __call__(self, question: FlowQuestion, over: int) -> FlowAnswer:
        """Ask, and wait. The gate of a running command uses ``begin``."""
        pending = self.begin(question)
        try:
            while (answer := pending.look()) is None:
                ready, _writable, _failed = select.select([pending.fileno(), over], [], [], 1.0)
                if over in ready:
                    return FlowAnswer(False, why=UNANSWERED, lasting=False)
            return answer
        finally:
            pending.close()


class FrameStream:
    """Frames of a descriptor. Owner: the thread that reads the link."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._reader = FrameReader(LIMITS, 0)
        self._frames: Iterator[Frame] = iter(())

    def next(self) -> Frame | None:
        """Return the next frame; None: the stream has ended. Raise LinkError at a frame that is not allowed, after
        those before it."""
        while (frame := next(self._frames, None)) is None:
            try:
                data = os.read(self._descriptor, _PIECE)
            except OSError:
                return None
            if not data:
                return None
            self._frames = self._reader.feed(data)
        return frame

    def has_unread(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return any(events & select.POLLIN for _descriptor, events in poll.poll(0))


def free_disk(path: bytes) -> int:
    free = os.statvfs(path)
    return free.f_bavail * free.f_frsize


class OtherProtocol(LinkError):
    """The origin speaks another protocol."""


def origin_hello(frame: Frame | None) -> message.OriginHello:
    """Return the origin's hello. Raise LinkError, which names both versions if they differ."""
    if frame is None:
        raise LinkError("has gone without a word")
    if frame.kind != message.HELLO:
        raise LinkError(f"began with a frame of kind {frame.kind} instead of a hello")
    try:
        start = msgspec.msgpack.decode(frame.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise LinkError(f"sent a hello that cannot be read: {error}") from error
    if not isinstance(start, list) or len(start) < 2 or type(start[0]) is not int:
        raise LinkError("sent a hello without a version")
    if start[0] != message.PROTOCOL:
        theirs = f"protocol {start[0]} of mudroom {str(start[1])[:40]}"
        raise OtherProtocol(f"speaks {theirs}; this worker speaks protocol {message.PROTOCOL} of mudroom {__version__}")
    return message_of(frame, message.OriginHello)
