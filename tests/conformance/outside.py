"""The outside of attempts: what is put into a project for them, the command that makes them, and what came of each."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .attempt import Table

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"
_HERE = Path(__file__).parent


class Outcome(NamedTuple):
    name: str
    evidence: str
    """How it got out, or through; empty if it did not."""
    error: str
    """What it was told."""


Outcomes = Mapping[str, Outcome]


def plant(suite: str, project: Path) -> None:
    """Put what runs inside into a project: the runner, and the attempts of a suite."""
    shutil.copytree(_HERE / suite, project / "conformance" / suite, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__", "attempt", "run"):
        shutil.copy(_HERE / f"{name}.py", project / "conformance")


def starting(module: str, *words: str) -> list[str]:
    """Return the command that runs a module in a project that has it, by a plain interpreter without site-packages."""
    program = f"import sys; sys.path.insert(0, '.'); from conformance.{module} import main; main()"
    return [PYTHON, "-I", "-S", "-B", "-c", program, *words]


def attempting(suite: str, names: Sequence[str]) -> list[str]:
    return starting("run", suite, ",".join(names))


def answers(said: str) -> dict[str, dict[str, str]]:
    """Return what the runner has told of each attempt."""
    found = [json.loads(line) for line in said.splitlines() if line.startswith('{"name"')]
    return {answer["name"]: answer for answer in found}


def able(table: Table) -> list[str]:
    """Return the attempts that are harmless, and possible for this user, without a sandbox."""
    able = ("anybody", "root") if os.geteuid() == 0 else ("anybody",)
    return [attempt.name for attempt in table.values() if attempt.control in able]


def got_out(outcomes: Outcomes) -> dict[str, str]:
    return {name: outcome.evidence for name, outcome in outcomes.items() if outcome.evidence}


def mistaken(outcomes: Outcomes) -> dict[str, str]:
    """Return attempts that failed for a fault of their own: they prove nothing."""
    return {name: outcome.error for name, outcome in outcomes.items() if outcome.error.startswith("mistaken")}
