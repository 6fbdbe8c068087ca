"""Places in which rows are tried against a stand-in for sandbox-exec."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from macbox import enforcing_sandbox_exec
from mudroom.certify.macos import mac_trial
from mudroom.certify.row import Certificate, RowResult, TrialRow
from mudroom.certify.table import MACOS
from mudroom.certify.trial import Prepare, TrialGround, certify
from mudroom.core.confinement.plan import Plan
from mudroom.sandbox.macos.client import DarwinClient

NUMBERS = {row.name: number for number, row in enumerate(MACOS, 1)}
NO_FACTS = Certificate("darwin", "a system", "a machine", 0)


UNENFORCED: dict[str, dict[str, object]] = {
    "leftover": {"unmarked": True},
    "shell": {"forbid": [("process-exec", os.path.realpath("/bin/sh"))]},
    "git": {"forbid": [("process-exec", os.path.realpath(shutil.which("git") or "/usr/bin/git"))]},
    "precedence": {"reading": "wildcards"},
}
"""Mutants of the stand-in for rows that are no refusal of one operation: the mark by which a process is found is lost;
no shell or no git is started; rules decide by an order that no source names."""
WITHOUT = {"open_files": "rlimit", "file_size": "rlimit"}
"""Mutants of the plan: a step is lost."""


class Refusal(NamedTuple):
    """An operation that the stand-in refused, and the path or peer."""

    operation: str
    name: str


class Lab:
    """A directory in which the row of a number has the same paths each time. Owner: one test."""

    def __init__(self, tmp_path: Path) -> None:
        self._place = Path(os.path.realpath(tmp_path))
        self._log = self._place / "log"
        (self._place / "home").mkdir()

    def tool(self, **settings: object) -> bytes:
        return enforcing_sandbox_exec(self._place / "tool", log=str(self._log), **settings)

    def results(
        self, tool: bytes, rows: Sequence[TrialRow], patience: float = 20.0, without: str = ""
    ) -> dict[str, RowResult]:
        """Try rows, each at the number that it has in the table. ``without``: a step of the plan that is lost."""
        client = DarwinClient(tool=tool)
        trial = mac_trial(client, home=bytes(self._place / "home"), search=[])._replace(patience=patience)
        if without:
            trial = trial._replace(prepare=_losing(trial.prepare, without))
        found: dict[str, RowResult] = {}
        try:
            for row in rows:
                directory = self._place / "rows" / str(NUMBERS[row.name])
                directory.mkdir(parents=True, exist_ok=True)
                (result,) = certify([row], trial, str(directory), NO_FACTS).rows
                found[row.name] = result
        finally:
            client.close()
        return found

    def refusals(self, row: TrialRow) -> frozenset[Refusal]:
        """Return what the stand-in refused since the last call: of ``row`` alone, not what each interpreter meets."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        top = str(self._place / "rows" / str(NUMBERS[row.name])) + "/"
        told = {Refusal(*json.loads(line)) for line in lines}
        ours = (top, "/dev/ttys")
        return frozenset(one for one in told if not one.name.startswith("/") or any(part in one.name for part in ours))


def _losing(prepare: Prepare, step: str) -> Prepare:
    """Return a ``prepare`` whose plans lack the steps of a kind."""

    def prepared(ground: TrialGround, port: int) -> Plan:
        plan = prepare(ground, port)
        return plan._replace(steps=tuple(one for one in plan.steps if one[0] != step))

    return prepared
