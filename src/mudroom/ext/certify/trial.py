"""Try a platform's rows: each in its own sandbox, with a control before and a look from outside after.

Rules of this file:
1. Each row has its own directory, sandbox and canary. So a sandbox that confines only the first few commands is found
   out, and a row that falls does not affect any other.
2. A control runs the deed unconfined first. A row whose control failed is not shown: there was nothing to refuse.
3. ``verdict.py`` gives the verdict, from the observations collected here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from mudroom.core.confinement.plan import Plan
from mudroom.errors import MudroomError
from mudroom.ext.certify.canary import Canary, kind_of_twin, put_up
from mudroom.ext.certify.deed_program import DeedCall, program, read_answers
from mudroom.ext.certify.ground import TrialGround
from mudroom.ext.certify.row import CanaryKind, Certificate, RowResult, TrialRow
from mudroom.ext.certify.table import CLIPBOARD
from mudroom.ext.certify.verdict import NO_COMMAND, NOTHING_THERE, Judged, Observation, judge, judge_failure
from mudroom.ext.certify.volume import Volume, try_volume
from mudroom.ext.certify.windows_witness import Witness
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.invocation import Invocation
from mudroom.typing import NamedTuple

PATIENCE = 10.0
"""Seconds for one row: the first start of a Python that a virus scanner reads took others more than 5. A command that
is not ended by SIGTERM then is killed soon after."""
WHOLE = 240.0
"""Seconds for all rows: those that are left then are not shown. A minute is usual; a busy machine took 38 seconds for
49 rows."""
FIRST = 2
"""Rows after which nothing is started any more if no command ran."""
_LIMIT = 1 << 16
_PATH = b"/usr/bin:/bin:/usr/sbin:/sbin"

Prepare = Callable[[TrialGround, int], Plan]
"""Make the plan for a row's sandbox, with the port that stands for the gate's."""
Start = Callable[[Plan, Sequence[bytes], TrialGround, float], tuple[int, bytes, bool]]
"""Run a command and return its wait status, its output, and whether it ran out of time. Raises MudroomError."""
Alone = Callable[[Sequence[str]], bytes]
"""Run a command without a sandbox and return its output."""
Progress = Callable[[int, int, str], None]
"""Called before each row with its number from 1, the number of rows, and its name."""


def alone(words: Sequence[str], patience: float = PATIENCE) -> bytes:
    """Run a command and return its output. On Windows it inherits each inheritable handle."""
    with suppress(subprocess.TimeoutExpired):
        closes = os.name == "posix"
        return subprocess.run(words, capture_output=True, timeout=patience, check=False, close_fds=closes).stdout
    return b""


class Trial(NamedTuple):
    """A platform that can be tried. ``prepare`` makes plans; ``start`` runs them, and ``alone`` runs an unconfined
    command. ``volume``: the calls for the vault's rows. ``witness``: on Windows."""

    prepare: Prepare
    start: Start
    volume: Volume
    patience: float = PATIENCE
    witness: Witness | None = None
    alone: Alone = alone


def start_by(client: Client) -> Start:
    """Return a function by which a client runs a command."""

    def start(plan: Plan, words: Sequence[bytes], ground: TrialGround, patience: float) -> tuple[int, bytes, bool]:
        environment = {b"PATH": _PATH, b"HOME": os.fsencode(ground.private)}
        with CapturedOutput(None, None, None, _LIMIT) as output:
            running = client.run(plan, Invocation(words, environment, output.descriptors))
            ended, timed_out = attend(running, output, patience, lambda: None)
            return ended.status, output.streams[0].data, timed_out

    return start


def certify(
    table: Sequence[TrialRow],
    trial: Trial,
    directory: str,
    facts: Certificate,
    *,
    progress: Progress = lambda _number, _count, _name: None,
    clock: Callable[[], float] = time.monotonic,
) -> Certificate:
    """Try every row in ``directory``, which is empty and real. ``facts``: the certificate without rows. If no command
    runs for any of the first rows, only the vault's rows are tried further."""
    end, found, nothing_runs = clock() + WHOLE, list[RowResult](), False
    for number, row in enumerate(table, 1):
        progress(number, len(table), row.name)
        started = clock()
        if nothing_runs and row.way != "vault":
            found.append(RowResult(row.name, "not shown", found[0].found))
            continue
        if started >= end:
            found.append(RowResult(row.name, "not shown", "the time for all rows was over"))
            continue
        ground = TrialGround(row, f"{directory}/{number}")
        try:
            judged = try_row(ground, trial)
        finally:
            shutil.rmtree(ground.top, ignore_errors=True)
        found.append(RowResult(row.name, *judged, int((clock() - started) * 1000)))
        nothing_runs = number >= FIRST and all(result.found.startswith(NO_COMMAND) for result in found)
    return facts._replace(rows=tuple(found))


def try_row(ground: TrialGround, trial: Trial) -> Judged:
    row = ground.row
    if row.way == "vault":
        os.makedirs(ground.top)
        return Judged(*try_volume(row.deed, trial.volume, ground.top))
    for directory in (ground.work, ground.private, ground.project):
        os.makedirs(directory, mode=0o700, exist_ok=True)
    with ExitStack() as stack:
        if row.service == CLIPBOARD and trial.witness is not None:
            stack.callback(trial.witness.fill_clipboard())

        def put(path: str, kind: CanaryKind, root: str = "", port: int = 0) -> Canary:
            return put_up(stack, path, kind, root=root, service=row.service, port=port, witness=trial.witness)

        twin = put(ground.twin, kind_of_twin(row.twin, row.canary))
        control = put(ground.control, row.canary)
        aim = put(ground.aim, row.canary, ground.work, twin.port if row.has_port_of_gate else 0)
        is_done, number = _control(ground, control, trial.alone)
        if not is_done and number not in row.nobody:
            return Judged("not shown", NOTHING_THERE, number)
        return _confined(ground, trial, twin, aim)


def _control(ground: TrialGround, canary: Canary, alone: Alone) -> tuple[bool, int]:
    """Try the deed unconfined. Return whether its effect is seen, and its error number."""
    call = DeedCall(ground.row.deed, ground.control + "-run", canary.facts)
    answers = read_answers(alone(program([call], ground.top)))
    is_done = bool(answers) and canary.is_done(answers[-1].evidence)
    canary.end_left()
    return is_done, answers[-1].errno if answers else 0


def _confined(ground: TrialGround, trial: Trial, twin: Canary, aim: Canary) -> Judged:
    """Try the permitted twin and the deed in a sandbox, and look at both from outside."""
    row = ground.row
    calls = (
        DeedCall(row.twin or row.deed, ground.work + "/run-twin", twin.facts),
        DeedCall(row.deed, ground.work + "/run-deed", aim.facts),
    )
    words = [os.fsencode(word) for word in program(calls, ground.work)]
    try:
        status, output, is_over_time = trial.start(trial.prepare(ground, twin.port), words, ground, trial.patience)
    except (MudroomError, OSError) as error:
        return judge_failure(error, is_done=aim.is_done(""))
    answers = read_answers(output)
    is_done = aim.is_done(answers[-1].evidence if answers else "")
    seen = Observation(
        status,
        is_over_time,
        (calls[0].deed, calls[1].deed),
        answers,
        aim.nonce.encode() in output,
        is_done,
        twin.is_done(answers[0].evidence if answers else ""),
        bool(aim.left()),
    )
    return judge(row, seen)
