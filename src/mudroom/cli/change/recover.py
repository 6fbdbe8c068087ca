"""``mudroom recover``: finish or take back applies that a killed mudroom, or a crash of the machine, cut off."""

from __future__ import annotations

import json
import os

from mudroom.cli.project_session import open_session, print_recovered
from mudroom.cli.terminal.context import Context
from mudroom.core.result import conflicts_to_json
from mudroom.core.tree.path import show_path
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
examples:
  mudroom recover            finish or take back applies that were cut off
  mudroom recover --json

Every run, apply and undo does the same first. An apply that had not touched the project is taken back (deferred: the
fork is whole); one that had is finished, and changes by the user meanwhile are conflicts like any other (exit
code 3). mudroom undo takes it back as a whole."""


def configure(_parser: argparse.ArgumentParser) -> None:
    pass


def execute(_args: argparse.Namespace, context: Context) -> int:
    print_line = context.terminal.say
    with open_session(context) as session:
        holder = f"`mudroom recover` (process {os.getpid()})"
        with session.alone(holder, context.terminal.tell_waiting) as recovered:
            pass
    conflicts = [conflict for recovery in recovered for conflict in recovery.applied.conflicts]
    if context.as_json:
        rows = [
            {"apply": recovery.name, "fork": recovery.fork, "outcome": recovery.outcome}
            | {"conflicts": conflicts_to_json(recovery.applied.conflicts)}
            for recovery in recovered
        ]
        context.terminal.out(json.dumps({"schema": "mudroom.recovered/1", "applies": rows}))
        return 3 if conflicts else 0
    for recovery in recovered:
        print_recovered(context, recovery.name, recovery.fork, recovery.outcome)
        for remark in recovery.applied.remarks:
            print_line(f"  {show_path(remark.path)}: {remark.text}")
    for conflict in conflicts:
        print_line(f"  {context.terminal.style('conflict', 'red')}  {show_path(conflict.path)}: {conflict.reason}")
    if not recovered:
        print_line("nothing was cut off")
    return 3 if conflicts else 0
