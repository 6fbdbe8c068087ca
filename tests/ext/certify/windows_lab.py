"""Places in which the rows for Windows are tried against the stand-in, and its mutants by row."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from certify.lab import LOSING as LOSING_ANYWHERE
from certify.lab import LOSSES
from certify.lab import VOLUME as ANY_VOLUME
from certify.windows_model import Machine, Program, Token
from certify.windows_program import run
from mudroom.core.confinement.plan import Plan
from mudroom.ext.certify.ground import TrialGround
from mudroom.ext.certify.row import Certificate, RowResult, TrialRow
from mudroom.ext.certify.table import WINDOWS
from mudroom.ext.certify.trial import Start, Trial, certify
from mudroom.ext.certify.volume import Volume
from mudroom.ext.certify.windows_trial import prepare_by
from mudroom.ext.certify.windows_witness import Witness
from mudroom.ext.windows.core.windows_plan import WindowsPlan
from mudroom.ext.windows.sandbox.bridge import relay_text
from mudroom.ext.windows.sandbox.client import status_of
from mudroom.ext.windows.sandbox.plan import WindowsCommand, WindowsMachine, compile_plan
from mudroom.ext.windows.sandbox.run import start as start_process
from mudroom.stage import disk

NUMBERS = {row.name: number for number, row in enumerate(WINDOWS, 1)}
MUTANTS = Path(__file__).parent / "windows_mutants.json"
MACHINE = WindowsMachine(4, python="C:\\python.exe", relay=relay_text())
NO_FACTS = Certificate("win32", "Windows", "AMD64", 0)
FORBIDDEN = {
    "cmd": "cmd.exe", "python": "start", "nul": "NUL", "final_path": "the path of a handle",
    "local_pipe": "a pipe of its own",
}  # fmt: skip
"""Mutants of rows that are no refusal: what the stand-in does not give."""
FELLS_ALL = ("python",)
"""Rows without which no other can be tried."""


@contextlib.contextmanager
def _held(path: str) -> Iterator[None]:
    HELD.add(os.path.basename(path))
    try:
        yield
    finally:
        HELD.clear()


HELD: set[str] = set()
"""Names that a program holds open, as ``_held`` makes it seem."""


def _unless_held(call: Callable[..., None]) -> Callable[..., None]:
    def checked(*arguments: Any) -> None:
        names = {os.fsdecode(name) for at in arguments for name in (at if isinstance(at, tuple) else (at,))
                 if isinstance(name, bytes)}  # fmt: skip
        if names & HELD:
            raise PermissionError(errno.EACCES, "another program holds it")
        call(*arguments)

    return checked


VOLUME = ANY_VOLUME._replace(hold=_held, exchange=_unless_held(ANY_VOLUME.exchange))


def _followed(at: int, path: bytes, flags: int) -> int:
    return os.open(path, flags, dir_fd=at)


LOSING: Mapping[str, Volume] = {
    **{name: volume._replace(hold=_held) for name, volume in LOSING_ANYWHERE.items()},
    "sharing": VOLUME._replace(exchange=ANY_VOLUME.exchange),
    "reparse": VOLUME._replace(open_beneath=_followed),
}
"""Mutants of the volume, by row."""


@contextlib.contextmanager
def renames_are_refused() -> Iterator[None]:
    """Let disk.rename refuse names that are held, for the control of the row ``sharing``."""
    real = disk.rename
    disk.rename = _unless_held(real)
    try:
        yield
    finally:
        disk.rename = real


class WindowsLab:
    """A directory in which the row of a number has the same paths each time. Owner: one test."""

    def __init__(self, tmp_path: Path) -> None:
        self._place = Path(os.path.realpath(tmp_path))
        self.words = ""
        """The deeds of the command that was started last."""

    def machine(self, run: Callable[[Machine, Program], None] | None = None, **settings: Any) -> Machine:
        return Machine(run or self._run, **settings)

    def _run(self, machine: Machine, program: Program) -> None:
        program.output = run(machine, program, self.words)

    def results(
        self,
        machine: Machine,
        rows: Sequence[TrialRow],
        volume: Volume = VOLUME,
        change: Callable[[WindowsPlan], WindowsPlan] = lambda plan: plan,
    ) -> dict[str, RowResult]:
        """Try rows, each at the number that it has in the table. ``change``: of the plan."""
        trial = Trial(
            prepare_by(machine.calls.files), self._start_by(machine, change), volume, witness=_witness(machine),
            alone=lambda words: run(machine, _unconfined(machine), words[-1]),
        )  # fmt: skip
        found = {}
        for row in rows:
            directory = self._place / str(NUMBERS[row.name])
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            (found[row.name],) = certify([row], trial, str(directory), NO_FACTS).rows
        return found

    def _start_by(self, machine: Machine, change: Callable[[WindowsPlan], WindowsPlan]) -> Start:
        def start(plan: Plan, words: Sequence[bytes], ground: TrialGround, _patience: float) -> tuple[int, bytes, bool]:
            _step, spec, limits = plan.steps[0]
            text = tuple(os.fsdecode(word) for word in words)
            self.words = text[-1]
            command = WindowsCommand(text[0], text, {"SYSTEMROOT": "C:\\Windows"})
            compiled = change(compile_plan(spec, limits, command, MACHINE, bytes(range(16))))
            confined = start_process(machine.calls, compiled, (0, 1, 2))
            program: Program = machine.at(confined._process.process)
            try:
                code = confined.wait(0)
            finally:
                confined.close()
            return status_of(code or 0, 0), program.output, code is None

        return start


def _unconfined(machine: Machine) -> Program:
    return Program(Token(), None, frozenset(machine.inheritable))


def _witness(machine: Machine) -> Witness:
    def inheritable(descriptor: int) -> int:
        machine.inheritable.add(descriptor)
        return descriptor

    def is_held(path: str) -> bool:
        holder = machine.held.get(path)
        return holder is not None and not holder.is_over

    def fill() -> Callable[[], None]:
        machine.clipboard = "a text"
        return lambda: None

    return Witness(machine.keys.__contains__, machine.keys.discard, inheritable, is_held, fill, machine.make_pipe)


_OF_ROWS = {
    **{name: f"not given: {what}" for name, what in FORBIDDEN.items()},
    "python": "no command is started, for no row",
    **LOSSES,
    "sharing": "an open file is swapped",
    "reparse": "a link on the way is followed",
}


def refusals(machine: Machine) -> frozenset[tuple[str, str]]:
    """Return what a machine refused."""
    return frozenset(machine.refused)


def measured(row: TrialRow, refused: frozenset[tuple[str, str]] = frozenset()) -> str:
    """Return in words what the mutant of a row does not enforce."""
    if row.name in _OF_ROWS:
        return _OF_ROWS[row.name]
    return ", ".join(sorted(f"`{operation}`" if not name or name.startswith("/") else f"`{operation} {name}`"
                            for operation, name in refused))  # fmt: skip


def measure(tmp_path: Path) -> dict[str, str]:
    """Try each row and return what its mutant is."""
    lab, found = WindowsLab(tmp_path), {}
    for row in WINDOWS:
        machine = lab.machine()
        if row.way != "vault":
            lab.results(machine, [row])
        found[row.name] = measured(row, refusals(machine))
    return found


def mutants_told() -> dict[str, str]:
    """Return the mutants by row, as they were measured last."""
    told: dict[str, str] = json.loads(MUTANTS.read_text())
    return told
