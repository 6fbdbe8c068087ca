"""Places in which rows are tried against a stand-in for sandbox-exec."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from macbox import enforcing_sandbox_exec

from mudroom.core.confinement.plan import Plan
from mudroom.core.tree.entry import Entry
from mudroom.ext.certify.ground import TrialGround
from mudroom.ext.certify.killed_apply import run_apply, try_killed_apply, volume_here
from mudroom.ext.certify.macos import mac_trial
from mudroom.ext.certify.row import Certificate, RowResult, TrialRow
from mudroom.ext.certify.table import MACOS
from mudroom.ext.certify.trial import Prepare, certify
from mudroom.ext.certify.volume import Volume
from mudroom.ext.macos.client import DarwinClient
from mudroom.stage import disk
from mudroom.vault.apply.rename import At

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


def _copied(read: int, size: int, at: int, name: bytes) -> bool:
    with open(disk.open_at(at, name, os.O_WRONLY | os.O_CREAT), "wb") as stream:
        stream.write(os.pread(read, size, 0))
    return True


def _empty(read: int, size: int, at: int, name: bytes) -> bool:
    return _copied(read, 0, at, name)


def _linked(_read: int, target: int, to: bytes, _entry: Entry) -> None:
    disk.link(target, b"one", target, to)


def _renamed(at: int, name: bytes, to: int, new: bytes) -> None:
    disk.rename(at, name, to, new)


def _moved(old: At, new: At) -> None:
    disk.rename(*old, *new)


def _unsaid(*_arguments: object) -> None:
    """Report success, and do nothing."""


def lose_plans(words: Sequence[str]) -> int:
    """Run an apply, and lose what it wrote of its plan, as a file system would that takes names late."""
    status = run_apply(words)
    for directory, _directories, names in os.walk(f"{words[-1]}/state"):
        for name in names:
            if name.startswith("plan."):
                os.unlink(os.path.join(directory, name))
    return status


VOLUME = volume_here()._replace(clone=_copied)
"""A volume that can do all: clones are copies, for the file system of the tests may have none."""
LOSSES: Mapping[str, str] = {
    "copy_apart": "a copy is another name of the file",
    "no_replace": "a rename replaces what is there",
    "swap": "a swap is a rename",
    "kill_9": "what an apply wrote of its plan is lost with it",
    "clone": "a clone has no content",
    "one_step": "the flag of the rename is ignored",
    "flush": "a flush does nothing",
}
"""The mutants of a volume in words, by row."""
LOSING: Mapping[str, Volume] = {
    "copy_apart": VOLUME._replace(copy=_linked),
    "clone": VOLUME._replace(clone=_empty),
    "no_replace": VOLUME._replace(move=_moved),
    "swap": VOLUME._replace(exchange=_moved),
    "one_step": VOLUME._replace(rename_new=_renamed),
    "flush": VOLUME._replace(flush=_unsaid),
    "kill_9": VOLUME._replace(killed_apply=functools.partial(try_killed_apply, run=lose_plans)),
}
"""Mutants of the volume, by row."""
SILENT: Mapping[str, Volume] = {
    "copy_apart": VOLUME._replace(copy=_unsaid),
    "clone": VOLUME._replace(clone=lambda *_arguments: True),
    "no_replace": VOLUME._replace(move=_unsaid),
    "swap": VOLUME._replace(exchange=_unsaid),
    "one_step": VOLUME._replace(swap=_unsaid),
    "flush": VOLUME._replace(flush=_unsaid),
    "kill_9": VOLUME._replace(killed_apply=functools.partial(try_killed_apply, run=lambda _words: 0)),
}
"""Volumes that report success and do nothing, by row."""


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
        self, tool: bytes, rows: Sequence[TrialRow], patience: float = 20.0, without: str = "", volume: Volume = VOLUME
    ) -> dict[str, RowResult]:
        """Try rows, each at the number that it has in the table. ``without``: a step of the plan that is lost."""
        client = DarwinClient(tool=tool)
        trial = mac_trial(client, home=bytes(self._place / "home"), search=[], volume=volume)._replace(
            patience=patience
        )
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
