"""One verb in a process that is ended before one of its changes (``test_killed_process.py``). It imports no pytest:
under Wine that takes longer than everything else that such a process does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from workbench import Killer, Workbench

DO: dict[str, Callable[[Workbench], object]] = {
    "apply": lambda bench: bench.apply("f"),
    "undo": lambda bench: bench.undo(),
    "checkpoint": lambda bench: bench.forks.checkpoint("f", "here"),
    "rollback": lambda bench: bench.forks.rollback("f", "one"),
    "discard": lambda bench: bench.forks.discard("f"),
}


def work(root: str, verb: str, at: str) -> None:
    """Do it, ended before change number ``at``. Print the number of changes, and the conflicts, if it comes to that."""
    bench = Workbench(Path(root))
    sys.dont_write_bytecode = True  # a module that is imported from here on would be counted
    killer = Killer(int(at))
    killer.begin()
    said = DO[verb](bench)
    killer.at = 0
    sys.stdout.write(json.dumps([killer.count, said if verb in ("apply", "undo") else []]))
