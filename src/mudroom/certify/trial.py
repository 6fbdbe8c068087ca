"""Try the rows of a platform: each in a sandbox of its own, with a control before and a look from outside after.

Rules of this file:
1. The command's word is never taken for a refusal that mattered: a row holds if the canary outside is untouched *and*
   the twin's effect is seen in the copy *and* the command ended by exit with the expected errors.
2. Each row has a directory, a sandbox and a canary to itself, so a sandbox that confines the first few commands only is
   found out, and one row's fall is nobody else's.
3. A row is not shown if anything is unclear: a signal, a time-out, an answer that cannot be read.
4. Reasons name no path and nothing of this machine: a certificate may be sent to others.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from mudroom.certify.canary import TWINS, Canary
from mudroom.certify.row import Certificate, RowResult, TrialRow, Verdict
from mudroom.certify.table import CLIPBOARD, READINGS
from mudroom.certify.volume import Volume, try_volume
from mudroom.certify.windows_witness import Witness
from mudroom.core.confinement.plan import Plan
from mudroom.errors import MudroomError
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.invocation import Invocation
from mudroom.typing import Any, NamedTuple

PATIENCE = 5.0
"""Seconds for one row; a command that is not ended by SIGTERM then is killed soon after."""
WHOLE = 60.0
"""Seconds for all rows: those that are left then are not shown."""

NO_COMMAND = "no command runs"
FIRST = 2
"""Rows after which nothing is started any more if no command ran."""
NOTHING_THERE = "the deed does not work where nothing confines"
"""Found of a row whose control failed: this machine has nothing that the deed could reach."""
_LIMIT = 1 << 16
_PATH = b"/usr/bin:/bin:/usr/sbin:/sbin"

Prepare = Callable[["TrialGround", int], Plan]
"""Makes the plan of a row's sandbox; with the port that stands for the gate's."""
Start = Callable[[Plan, Sequence[bytes], "TrialGround", float], tuple[int, bytes, bool]]
"""Runs a command and returns its wait status, its output, and whether it ran out of time. Raises MudroomError."""
Alone = Callable[[Sequence[str]], bytes]
"""Runs a command without a sandbox and returns its output."""
Progress = Callable[[int, int, str], None]
"""Called before each row with its number from 1, the number of rows, and its name."""


class TrialGround(NamedTuple):
    """The directories of one row, below a directory of its own."""

    row: TrialRow
    top: str

    @property
    def work(self) -> str:
        return self.top + "/fork/work"

    @property
    def private(self) -> str:
        return self.top + "/fork/private"

    @property
    def project(self) -> str:
        return self.top + "/project"

    @property
    def aim(self) -> str:
        """The directory that the deed is aimed at."""
        name = 'q"\\\u00e9' if self.row.name == "quoting" else "l"
        return {
            "outside": self.top + "/outside",
            "project": self.project,
            "policy": self.work + "/.mudroom",
            "mask": self.top + "/tools/mask",
            "store": self.top + "/store",
            "copy": f"{self.work}/{name}",
            "container": self.top + "/container",
            "users": self.top + "/users",
        }[self.row.where]

    @property
    def twin(self) -> str:
        return self.work + "/twin"

    @property
    def control(self) -> str:
        return self.top + "/control"


def alone(words: Sequence[str]) -> bytes:
    """Run a command and return its output. On Windows it inherits each handle that may be inherited."""
    with suppress(subprocess.TimeoutExpired):
        closes = os.name == "posix"
        return subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False, close_fds=closes).stdout
    return b""


class Trial(NamedTuple):
    """A platform that can be tried. ``prepare`` makes plans; ``start`` runs them, and ``alone`` runs a command that
    nothing confines. ``volume``: the calls of rows about the vault. ``witness``: on Windows."""

    prepare: Prepare
    start: Start
    volume: Volume
    patience: float = PATIENCE
    witness: Witness | None = None
    alone: Alone = alone


def start_by(client: Client) -> Start:
    """Return the way in which a client runs a command."""

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
    """Try every row in ``directory``, which is empty and real. ``facts``: the certificate without rows. Where no
    command runs for any of the first rows, the others are not tried, but for those of the vault."""
    end, found, nothing_runs = clock() + WHOLE, list[RowResult](), False
    for number, row in enumerate(table, 1):
        if not row.deed:
            found.append(RowResult(row.name, "not shown", row.why))
            continue
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
            verdict, why, number_of_error = try_row(ground, trial)
        finally:
            shutil.rmtree(ground.top, ignore_errors=True)
        found.append(RowResult(row.name, verdict, why, number_of_error, int((clock() - started) * 1000)))
        nothing_runs = number >= FIRST and all(result.found.startswith(NO_COMMAND) for result in found)
    return facts._replace(rows=tuple(found))


def try_row(ground: TrialGround, trial: Trial) -> tuple[Verdict, str, int]:
    """Return the verdict, its reason, and the error number of the deed."""
    if ground.row.way == "vault":
        os.makedirs(ground.top)
        return try_volume(ground.row.deed, trial.volume, ground.top)
    row, twin = ground.row, TWINS.get(ground.row.twin, ground.row.canary)
    for directory in (ground.work, ground.private, ground.project):
        os.makedirs(directory, mode=0o700, exist_ok=True)
    with ExitStack() as stack:
        seen = trial.witness
        if row.service == CLIPBOARD and seen is not None:
            stack.callback(seen.fill_clipboard())
        places = {
            "twin": stack.enter_context(Canary(ground.twin, twin, row.service, 0, seen)),
            "control": stack.enter_context(Canary(ground.control, row.canary, row.service, 0, seen)),
        }
        port = places["twin"].port if row.has_port_of_gate else 0
        places["aim"] = stack.enter_context(Canary(ground.aim, row.canary, row.service, port, seen))
        if row.canary == "root":
            places["aim"].watch(ground.work)
        is_done, number = _does(row.deed, ground.control + "-run", places["control"], trial.alone)
        if not is_done and number not in row.nobody:
            return "not shown", NOTHING_THERE, number
        return _judge(ground, trial, places)


def _does(deed: str, directory: str, canary: Canary, alone: Alone) -> tuple[bool, int]:
    """Try a deed unconfined. Return whether its effect is seen, and its error number."""
    answers = _answers(alone(program([(deed, directory, canary.facts())], os.path.dirname(directory))))
    is_done = bool(answers) and canary.is_done(answers[-1][2])
    canary.end_left()
    return is_done, answers[-1][1] if answers else 0


def program(deeds: Sequence[tuple[str, str, Mapping[str, Any]]], directory: str) -> list[str]:
    """Return the words of a command that tries deeds in turn. On Windows their text is put into ``directory``: it is
    too long for a command line ("CreateProcessW": 32,767 characters), and a Python of a virtual environment starts
    another one there."""
    tail = "\nimport sys; main(sys.argv[1:])\n"
    if sys.platform == "win32":
        path = directory + "/deeds.py"
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text_of("deed", "windows_deed") + tail)
        python = getattr(sys, "_base_executable", "") or sys.executable
        return [os.path.realpath(python), "-I", "-S", path, json.dumps(deeds)]
    return [os.path.realpath(sys.executable), "-I", "-S", "-c", text_of("deed") + tail, json.dumps(deeds)]


def text_of(*modules: str) -> str:
    """Return the text of deeds that run elsewhere."""
    directory = os.path.dirname(os.path.abspath(__file__))
    texts = []
    for name in modules:
        with open(f"{directory}/{name}.py", encoding="utf-8") as stream:
            texts.append(stream.read())
    return "\n".join(texts)


def _answers(output: bytes) -> list[tuple[str, int, str]]:
    """Return (deed, error number, evidence) of the lines; none if any cannot be read."""
    try:
        rows = [json.loads(line) for line in output.splitlines()]
        return [(str(deed), int(number), str(evidence)) for deed, number, evidence in rows]
    except (ValueError, TypeError):
        return []


def _judge(ground: TrialGround, trial: Trial, places: Mapping[str, Canary]) -> tuple[Verdict, str, int]:
    row, aim, twin = ground.row, places["aim"], places["twin"]
    deeds = [
        (row.twin or row.deed, ground.work + "/run-twin", twin.facts()),
        (row.deed, ground.work + "/run-deed", aim.facts()),
    ]
    words = [os.fsencode(word) for word in program(deeds, ground.work)]
    try:
        status, output, timed_out = trial.start(trial.prepare(ground, twin.port), words, ground, trial.patience)
    except MudroomError as error:
        if aim.is_done(""):
            return "fell", "it was done, and the sandbox reported a failure", 0
        return "not shown", f"{NO_COMMAND}: {type(error).__name__}", 0
    except OSError as error:
        return "not shown", f"{NO_COMMAND}: {errno.errorcode.get(error.errno or 0, 'an error')}", 0
    answers = _answers(output)
    evidence = answers[-1][2] if answers else ""
    if row.canary == "reading":
        return _judge_reading(status, answers, twin)
    if row.canary == "works":
        is_right = aim.is_done(evidence) and not status
        return (
            ("held", "it works", 0) if is_right else ("not shown", "it does not work", answers[-1][1] if answers else 0)
        )
    if aim.is_done(evidence) or aim.nonce.encode() in output:
        return "fell", "it was done", 0
    if timed_out:
        return "not shown", "it took too long", 0
    if status & 0x7F:  # wait(2); Windows has no os.WIFEXITED
        return "not shown", f"it ended by signal {status & 0x7F}", 0
    if status or [answer[0] for answer in answers] != [deed for deed, _directory, _facts in deeds]:
        return "not shown", f"the deeds did not run (status {status >> 8})", 0
    if not twin.is_done(answers[0][2]):
        return "not shown", "its permitted twin did not work either", answers[0][1]
    number = answers[-1][1]
    if row.canary == "process":
        return ("held", "it was ended with the command", 0) if aim.was_there else ("not shown", "it did not start", 0)
    if number not in row.errors:
        name = errno.errorcode.get(number, str(number)) if number else "no error"
        return "not shown", f"it was refused by {name}, not by the sandbox", number
    return (
        "held",
        f"refused by {errno.errorcode.get(number, str(number))}" if number else "done in a place of its own",
        number,
    )


def _judge_reading(status: int, answers: list[tuple[str, int, str]], twin: Canary) -> tuple[Verdict, str, int]:
    if status or len(answers) != 2 or not twin.is_done(answers[0][2]):
        return "not shown", "the deeds did not run", 0
    reading = READINGS.get(answers[1][2])
    return ("held", reading, 0) if reading else ("fell", f"an unknown order ({answers[1][2]})", 0)
