"""One accepted errand: its command in a new fork of its base, its judge in a fork of that, its archive and outcome.

Rules of this file:
1. Every accepted errand ends with an outcome on disk, whatever happens here. A failure is an outcome, too.
2. A command that has not been started when its errand is cancelled is never started.
3. A judge gets no more than a verification (``Actor.as_policy_says``): it runs code from the command.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import closing

from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.approval.approval import CommandApprover
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.result import Result
from mudroom.core.tree.change import Changeset, summarise
from mudroom.errors import FULL, CommandNotStarted, LauncherDied, MudroomError, Refused
from mudroom.ext.fleet.base.objects import StoreFull
from mudroom.ext.fleet.wire.message import Errand, ErrandOutcome
from mudroom.ext.fleet.worker.folder import ErrandFolder
from mudroom.ext.fleet.worker.gpu_pool import GPU_VARIABLES, GpuPool
from mudroom.ext.fleet.worker.session_cache import SessionCache
from mudroom.ext.fleet.worker.spool import OutputSpool
from mudroom.ext.transfer.vault.bundle import write_fork
from mudroom.sandbox.client.cancellation import Cancellation, Cancelled
from mudroom.session import Session, Stdio
from mudroom.session.actor import Actor
from mudroom.typing import Any, NamedTuple
from mudroom.vault.apply.repositories import require_unemptied_commits
from mudroom.vault.forks.result_digest import result_digest

MIN_FREE = 32 << 20
"""Bytes that have to be free on the disk before a command starts."""
FULL_DISK = "ENOSPC: "
"""Prefix of the reason why an errand failed, where the disk was full."""
MOST_CHANGED = 4 << 30
"""Bytes in all files that an errand changed."""
MOST_REPORT = 1 << 20
"""Bytes in a judge's output."""
MOST_ROWS = 4 << 20
"""Bytes in an errand's journal rows."""
MOST_NOTES = 100
JUDGE = "-judge"
"""Suffix in the name of a judge's fork."""
_SIGKILL = 9


def fork_name(errand: str, attempt: int) -> str:
    """Return the name of an errand's fork on this machine. The origin names its own."""
    return "errand-" + hashlib.blake2b(f"{errand}.{attempt}".encode(), digest_size=12).hexdigest()


class ErrandRun:
    """An errand that was accepted on a link. ``end_state`` is written by the thread that ends it first,
    ``question_timeout`` by the thread that runs it, before its first question."""

    def __init__(
        self, folder: ErrandFolder, errand: Errand, stream: int, on_output: Callable[[], None], gpus: GpuPool
    ) -> None:
        """``on_output``: called when there is new output. ``gpus``: those of this machine."""
        self.folder, self.errand, self.stream, self.on_output = folder, errand, stream, on_output
        self.gpus = gpus
        self.fork = fork_name(errand.errand, errand.attempt)
        self.cancellation = Cancellation()
        self.end_state = ""
        """``cancelled`` or ``expired``; empty: its command ends by itself."""
        self.question_timeout = 0.0
        """Seconds until a question is denied."""

    def end(self, state: str, signal: int = 0) -> None:
        """End the command. Its outcome has this state."""
        self.end_state = self.end_state or state
        if signal == _SIGKILL:
            self.cancellation.kill()
        else:
            self.cancellation.cancel()


def run_errand(run: ErrandRun, sessions: SessionCache, approver: CommandApprover | None) -> ErrandOutcome:
    """Run an errand, and return its outcome, which is on disk."""
    try:
        outcome = _run(run, sessions, approver)
    except Cancelled:
        outcome = _without_result(run, run.end_state or "cancelled", "it had not been started")
    except Refused as error:
        outcome = _without_result(run, "refused", str(error))
    except CommandNotStarted as error:
        outcome = _without_result(run, "failed", str(error))._replace(exit_code=error.exit_code)
    except OSError as error:
        outcome = _without_result(run, "failed", _reason(error))
    except LauncherDied as error:  # not the command's doing: another attempt may end
        outcome = _without_result(run, "lost", error.message)
    except MudroomError as error:
        full = error.__cause__ if isinstance(error.__cause__, OSError) else None
        is_full = isinstance(error, StoreFull) or (full is not None and full.errno in FULL)
        outcome = _without_result(run, "failed", f"{FULL_DISK}{error}" if is_full else str(error))
    except Exception as error:  # noqa: BLE001 - a defect of mudroom: the origin is told, and so is the log of the link
        traceback.print_exc(file=sys.stderr)
        outcome = _without_result(run, "failed", f"mudroom failed: {type(error).__name__}: {error}")
    finally:
        run.cancellation.close()
    return save(run.folder, outcome)


def save(folder: ErrandFolder, outcome: ErrandOutcome) -> ErrandOutcome:
    """Write an outcome down. On a full disk it is told and not kept: the errand is lost if this link ends now."""
    try:
        folder.end(outcome)
    except OSError as error:
        folder.release()
        return outcome._replace(notes=(*outcome.notes, f"the outcome could not be kept: {_reason(error)}"))
    return outcome


def _reason(error: OSError) -> str:
    if error.errno in FULL:
        return f"{FULL_DISK}the worker's disk is full ({os.strerror(error.errno or 0).lower()})"
    return f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else str(error)


def _run(run: ErrandRun, sessions: SessionCache, approver: CommandApprover | None) -> ErrandOutcome:
    errand = run.errand
    run.cancellation.require_unset()
    _require_free_disk(run.folder.path)
    with run.gpus.take(errand.gpus) as gpus, sessions.use(errand) as session:
        actor = _actor(session.actor, errand, gpus)
        run.question_timeout = actor.settings.approval_timeout
        before = session.vault.journal.head().number
        spool = OutputSpool(run.folder.path, actor.settings.output_limit)

        def write(name: str, data: bytes) -> None:
            spool.write(name, data)
            run.on_output()

        with closing(spool):
            result = session.run(
                errand.argv,
                fork=run.fork,
                cwd=session.project + b"/" + errand.cwd if errand.cwd else None,
                stdio=Stdio(on_output=write),
                timeout=errand.timeout or None,
                actor=actor,
                approver=approver,
                cancellation=run.cancellation,
            )
        judged, report = _run_judge(session, run, actor, result)
        _save_events(session, run, before)
        try:
            archive = _write_archive(session, run.fork, run.folder, result.changeset)
        except TooLarge as error:
            return _outcome(run, result)._replace(state="failed", judged=judged, report=report, reason=str(error))
    return _with_archive(_outcome(run, result), archive)._replace(judged=judged, report=report)


def _with_archive(outcome: ErrandOutcome, archive: _Archive) -> ErrandOutcome:
    return outcome._replace(archive=archive.size, digest=archive.digest, fingerprint=archive.fingerprint)


def _require_free_disk(path: bytes) -> None:
    free = os.statvfs(path)
    if free.f_bavail * free.f_frsize < MIN_FREE:
        raise OSError(28, "No space left on device")


def _actor(actor: Actor, errand: Errand, gpus: tuple[int, ...]) -> Actor:
    variables = tuple(b"%s=%s" % pair for pair in errand.variables)
    if gpus:
        chosen = ",".join(map(str, gpus)).encode()
        variables = (*variables, *(name + b"=" + chosen for name in GPU_VARIABLES))
        level = errand.level if errand.level is not None else actor.settings.level  # a card without one has level 0
        actor = actor._replace(card=AgentCard(errand.agent or "fleet", level, Requirements(gpu=True)))
    if errand.number:
        variables = (*variables, b"MUDROOM_ATTEMPT=%d" % errand.number)
    settings = actor.settings._replace(environment=(*actor.settings.environment, *variables))
    return actor._replace(settings=settings, level=errand.level)


def _run_judge(session: Session, run: ErrandRun, actor: Actor, result: Result) -> tuple[int, bytes]:
    """Return the judge's exit code and output; -1: none has run."""
    errand = run.errand
    if not errand.judge or not result.ran or run.cancellation.is_set:
        return -1, b""
    name = run.fork + JUDGE
    session.forks.new(name, parent=run.fork)
    try:
        verdict = session.run(
            errand.judge, fork=name, actor=_judge(actor), timeout=errand.timeout or None, cancellation=run.cancellation
        )
    except MudroomError as error:
        return error.exit_code, str(error).encode()[:MOST_REPORT]
    finally:
        session.forks.discard(name)
    return verdict.exit_code, (verdict.stdout + verdict.stderr)[-MOST_REPORT:]


def _judge(actor: Actor) -> Actor:
    environment = actor.settings.environment
    judge = actor.as_policy_says()._replace(agent=None)
    return judge._replace(settings=judge.settings._replace(environment=environment))


class TooLarge(MudroomError):
    def __init__(self, size: int) -> None:
        super().__init__(
            f"the files that it changed have {size:,} bytes; at most {MOST_CHANGED:,} are brought home",
            "write less, or delete what is not needed at the end of the command",
        )


class _Archive(NamedTuple):
    size: int = 0
    digest: bytes = b""
    fingerprint: str = ""
    """The result's digest (``result_digest``): equal for two errands that changed the same to the same."""


def _write_archive(session: Session, fork: str, folder: ErrandFolder, changeset: Changeset) -> _Archive:
    """Return a fork's archive, which is on disk from now on; an empty one if the fork has no changes."""
    if not changeset.changes:
        return _Archive()
    size = sum(change.staged.size for change in changeset.changes if change.staged is not None)
    if size > MOST_CHANGED:  # a hole costs a command nothing, and an archive as much as data
        raise TooLarge(size)
    beside = folder.archive + b".new"
    # Not ``at_rest``: that proves that no process can change the files after a review, and they are reviewed at the
    # origin, as they are in the archive. The proof is a process, one at a time in a vault.
    resting = session.vault.fork(fork)
    with session.forks.locked(resting, "mudroom worker"):
        require_unemptied_commits(session.vault, resting)
        vault = session.forks.secrets.hide_all(resting)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as stream:
            exported = write_fork(vault, resting, stream, session.forks.clock(), base=b"", packed=True)
            os.fsync(stream.fileno())
        result = result_digest(session.vault, resting)
    os.rename(beside, folder.archive)
    return _Archive(exported.size, exported.digest, result)


def _save_events(session: Session, run: ErrandRun, before: int) -> None:
    rows, room = list[bytes](), MOST_ROWS
    for event in session.vault.journal.events_since(before, EventFilter(forks=(run.fork,))):
        row = json.dumps({"time": event.time, "kind": event.kind, "data": json.loads(event.data)}).encode()
        room -= len(row)
        if room < 0:
            break
        rows.append(row)
    run.folder.save_events(rows)


def _outcome(run: ErrandRun, result: Result) -> ErrandOutcome:
    errand, total = run.errand, summarise(result.changeset.changes)
    state = "refused" if not result.ran else run.end_state if run.cancellation.is_set else "ended"
    return ErrandOutcome(
        errand.errand,
        errand.attempt,
        state,
        exit_code=result.exit_code,
        signal=result.signal or 0,
        timed_out=result.timed_out,
        seconds=result.duration,
        cpu=result.cpu,
        memory=result.max_rss,
        added=total.added,
        modified=total.modified,
        deleted=total.deleted,
        fingerprint="",
        archive=0,
        digest=b"",
        judged=-1,
        report=b"",
        reason=result.verdict.reason if state == "refused" else "",
        notes=result.notes[:MOST_NOTES],
    )


def empty_outcome(errand: str, attempt: int, state: str, reason: str) -> ErrandOutcome:
    return ErrandOutcome(
        errand, attempt, state, 0, 0, False, 0.0, 0.0, 0, 0, 0, 0, "", 0, b"", -1, b"", reason=reason[:2000]
    )


def _without_result(run: ErrandRun, state: str, reason: str) -> ErrandOutcome:
    return empty_outcome(run.errand.errand, run.errand.attempt, state, reason)


# --- after a crash ---


def recover(folder: ErrandFolder, sessions: SessionCache) -> ErrandOutcome:
    """Return the outcome ``lost`` for an errand whose process is gone, with the files that its command had written. The
    caller has locked the folder."""
    errand = folder.errand
    name = fork_name(errand.errand, errand.attempt)
    outcome = empty_outcome(errand.errand, errand.attempt, "lost", "the worker ended while its command ran")
    try:
        with sessions.use(errand) as session:
            session.sandboxes.collect_cut_off()
            fork = session.vault.find(name)
            if fork is not None:
                with session.forks.at_rest(name) as resting:
                    record = resting.record
                changeset = record.changeset if record is not None else Changeset()
                total = summarise(changeset.changes)
                outcome = outcome._replace(added=total.added, modified=total.modified, deleted=total.deleted)
                outcome = _with_archive(outcome, _write_archive(session, name, folder, changeset))
    except (MudroomError, OSError) as error:
        outcome = outcome._replace(notes=(f"its fork could not be read: {error}"[:2000],))
    return save(folder, outcome)


def discard(folder: ErrandFolder, sessions: SessionCache) -> None:
    """Discard the fork of an errand whose outcome the origin has."""
    errand: Any = folder.errand
    name = fork_name(errand.errand, errand.attempt)
    try:
        with sessions.use(errand) as session:
            if session.vault.find(name) is not None:
                session.forks.discard(name)
    except MudroomError as error:
        print(f"mudroom worker: {name} could not be discarded: {error}", file=sys.stderr)  # noqa: T201
