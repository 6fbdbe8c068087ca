"""``--on NAME`` for run, exec and agent run: one command on a worker. Its changes are reviewed here, as any others."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mudroom.cli.command.run import ThereResult
from mudroom.cli.terminal.context import Context
from mudroom.core.command.verdict import Verdict
from mudroom.core.result import REFUSED, Result
from mudroom.core.tree.change import Changeset
from mudroom.errors import CommandNotStarted, MudroomError
from mudroom.ext.fleet.cli.fleet_run import cancelled_by_signals, starter, write_raw
from mudroom.ext.fleet.origin import worker_registry
from mudroom.ext.fleet.origin.errand_log import AttemptRow, ErrandRow
from mudroom.ext.fleet.origin.fleet_event import ErrandOutput, FleetEvent, WorkerDisconnected, WorkerNote
from mudroom.ext.fleet.origin.output import NAMES
from mudroom.ext.fleet.origin.run import FleetErrand, FrontEnd, RunRequest, begin
from mudroom.policy.config import user_config
from mudroom.session import Session


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

    front_end = FrontEnd(
        starter(context),
        context.environ,
        report,
        raw=raw,
        note=context.terminal.note,
    )
    request = RunRequest((FleetErrand(tuple(argv), f"{name}-{os.urandom(2).hex()}"),), cwd=cwd)
    with begin(session, request, [worker], front_end) as fleet, cancelled_by_signals(fleet) as received:
        for _settled in fleet.settled():
            pass
        errand, row = fleet.rows()[-1]
    if received and not row.fork:
        raise _Interrupted(received[0], name, fleet.row.run)
    result = _result(session, errand, row, bytes(captured[1]), bytes(captured[2]))
    code = 128 + received[0] if received else 124 if result.timed_out else result.exit_code
    return ThereResult(result, code, bool(received) or result.timed_out or bool(result.signal))


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
