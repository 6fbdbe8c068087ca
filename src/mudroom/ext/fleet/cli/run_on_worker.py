"""``--on NAME`` for run, exec, agent run and try: commands on workers. Their changes are reviewed here."""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Callable, Sequence

from mudroom.cli.command.run import ThereResult
from mudroom.cli.terminal.context import Context
from mudroom.core.command.verdict import Verdict
from mudroom.core.result import REFUSED, Result
from mudroom.core.text.redaction import redact
from mudroom.core.tree.change import Changeset
from mudroom.errors import CommandNotStarted, MudroomError, UsageError
from mudroom.ext.fleet.cli.fleet_run import cancelled_by_signals, front_end, natural, starter, write_raw
from mudroom.ext.fleet.origin import worker_registry
from mudroom.ext.fleet.origin.errand_log import AttemptRow, ErrandRow
from mudroom.ext.fleet.origin.fleet_event import (
    ErrandOutput,
    ErrandSettled,
    FleetEvent,
    WorkerDisconnected,
    WorkerNote,
)
from mudroom.ext.fleet.origin.output import NAMES
from mudroom.ext.fleet.origin.run import FleetErrand, FleetRun, FrontEnd, RunRequest, begin
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.policy.config import user_config
from mudroom.sandbox.client.cancellation import Cancelled
from mudroom.session import Session
from mudroom.typing import Any

_HEARD = 80_000
"""Bytes of a command's output that are kept for the record of a try."""


def run_there(session: Session, name: str, argv: Sequence[bytes], cwd: bytes, context: Context) -> ThereResult:
    """Run a command on a worker and bring its fork here. Raise MudroomError if it did not run there to an end."""
    worker = worker_registry.chosen(worker_registry.load(user_config(context.environ)), [name])[0]
    captured = {number: bytearray() for number in NAMES}

    def raw(output: ErrandOutput, data: bytes) -> None:
        if context.as_json:
            captured[output.stream] += data
        else:
            write_raw(output.stream, data)

    def report(event: FleetEvent) -> None:
        if isinstance(event, WorkerDisconnected) and not event.given_up:
            context.terminal.note(f"{event.node}: {event.reason}; it is tried again")
        elif isinstance(event, WorkerNote):
            context.terminal.note(f"{event.node}: {event.text}")

    shown = FrontEnd(
        starter(context),
        context.environ,
        report,
        raw=raw,
        note=context.terminal.note,
    )
    request = RunRequest((FleetErrand(tuple(argv), f"{name}-{os.urandom(2).hex()}"),), cwd=cwd)
    with begin(session, request, [worker], shown) as fleet, cancelled_by_signals(fleet) as received:
        for _settled in fleet.settled():
            pass
        errand, row = fleet.rows()[-1]
    if received and not row.fork:
        raise _Interrupted(received[0], name, fleet.row.run)
    result = _result(session, errand, row, bytes(captured[1]), bytes(captured[2]))
    code = 128 + received[0] if received else 124 if result.timed_out else result.exit_code
    return ThereResult(result, code, bool(received) or result.timed_out or bool(result.signal))


def there(session: Session, args: argparse.Namespace, context: Context) -> Callable[[str, Any], AttemptsThere]:
    """Return the function that starts a try on workers. Raise UsageError if a worker's name is unknown."""
    workers = worker_registry.chosen(worker_registry.load(user_config(context.environ)), args.on)
    retry, gpus = natural(args.retry or 0, "--retry"), natural(args.gpus or 0, "--gpus")
    if session.actor.settings.home == "staged":
        raise UsageError("a staged home stays on this machine", "leave --on out: mudroom policy show has run.home")

    def start(name: str, attempts: Any) -> AttemptsThere:  # AttemptRequest in ext/attempts/session/request.py
        errands = tuple(
            FleetErrand(tuple(word.replace(b"{i}", b"%d" % number) for word in command), f"{name}-{number}")
            for number, command in enumerate(attempts.commands, 1)
        )
        request = RunRequest(errands, attempts.shown, attempts.cwd or b"", attempts.judge, retry=retry, gpus=gpus)
        return AttemptsThere(session, request, workers, front_end(context, quiet=True))

    return start


class AttemptsThere:
    """A try's commands as errands of one run. Its thread owns the run and its log; ``_changed`` guards the rest."""

    def __init__(self, session: Session, request: RunRequest, workers: Sequence[FleetWorker], shown: FrontEnd) -> None:
        self._session, self._request, self._workers = session, request, workers
        self._front_end = shown._replace(report=self._report, raw=self._hear)
        self._show = shown.report
        self._changed = threading.Condition()
        self._settled: dict[int, tuple[ErrandRow, AttemptRow]] = {}
        self._output: dict[int, bytearray] = {}
        self._run: FleetRun | None = None
        self._error: BaseException | None = None
        self._is_cancelled = self._is_over = False
        self._thread = threading.Thread(target=self._follow, name="try on workers", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            with begin(self._session, self._request, self._workers, self._front_end) as run:
                with self._changed:
                    self._run = run
                    if self._is_cancelled:
                        run.cancel()
                for settled in run.settled():
                    with self._changed:
                        self._settled[settled.errand.number] = settled.errand, settled.row
                        self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - raised to those who wait
            self._error = error
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _report(self, event: FleetEvent) -> None:
        if not isinstance(event, ErrandSettled):  # the try tells of it, with the verdict
            self._show(event)

    def _hear(self, output: ErrandOutput, data: bytes) -> None:
        with self._changed:
            kept = self._output.setdefault(output.errand.number, bytearray())
            kept += data[-_HEARD:]
            del kept[:-_HEARD]

    def result(self, number: int) -> tuple[Result, bytes, str]:
        """Return a command's result, the end of its output, and a note."""
        with self._changed:
            self._changed.wait_for(lambda: number in self._settled or self._is_over)
            found, output = self._settled.get(number), bytes(self._output.get(number, b""))
        if found is None:
            if self._error is not None and not isinstance(self._error, MudroomError):
                raise self._error
            raise self._error or Cancelled
        errand, row = found
        outcome = row.outcome
        if row.state == "cancelled" or (outcome is not None and outcome.state == "cancelled"):
            raise Cancelled
        claim = "" if outcome is None or outcome.judged < 0 else "passes" if not outcome.judged else "fails"
        report = redact(output.decode("utf-8", "surrogateescape"), self._session.vault.secrets())
        return (
            _result(self._session, errand, row, b"", b""),
            report.encode("utf-8", "surrogateescape"),
            f"on {row.worker}" + (f", where the judge {claim}" if claim else ""),
        )

    def cancel(self) -> None:
        with self._changed:
            self._is_cancelled = True
            if self._run is not None and not self._is_over:
                self._run.cancel()

    def close(self) -> None:
        self._thread.join()


class _Interrupted(MudroomError):
    def __init__(self, number: int, name: str, run: str) -> None:
        super().__init__(f"cancelled on {name}", f"nothing came back; mudroom fleet runs {run} has what is known")
        self.exit_code = 128 + number


def _result(session: Session, errand: ErrandRow, row: AttemptRow, stdout: bytes, stderr: bytes) -> Result:
    outcome, level = row.outcome, errand.message.level or 0
    if row.state == "refused" and outcome is not None:
        verdict = Verdict("deny", (), f"on {row.worker}", row.reason)
        return Result("", errand.message.argv, level, REFUSED, None, False, 0.0, Changeset(), verdict, ran=False)
    if row.state == "failed" and outcome is not None and outcome.exit_code in (126, 127):
        raise CommandNotStarted(f"on {row.worker}: {row.reason}", outcome.exit_code)
    if row.state == "failed" and not row.worker:
        raise MudroomError(row.reason)
    if row.state not in ("kept", "fetched") or outcome is None or outcome.state != "ended":
        again = f"mudroom fleet resume {errand.run}" if row.state in ("lost", "ended", "late") else ""
        state = outcome.state if outcome is not None and row.state in ("kept", "fetched") else row.state
        raise MudroomError(f"{row.worker or 'no worker'}: {state}: {row.reason or 'no reason was given'}", again)
    changeset = Changeset()
    if row.fork:
        record = session.vault.fork(row.fork).record
        changeset = record.changeset if record is not None else changeset
    code = 128 + outcome.signal if outcome.signal else outcome.exit_code
    return Result(
        row.fork,
        errand.message.argv,
        level,
        code,
        outcome.signal or None,
        outcome.timed_out,
        outcome.seconds,
        changeset,
        stdout=stdout,
        stderr=stderr,
        cpu=outcome.cpu,
        max_rss=outcome.memory,
        notes=tuple(note for note in outcome.notes if " shown empty: " not in note),  # told when they were sent
    )
