"""``mudroom recover``: deal with what a killed mudroom, or a machine that went down, has left in the middle."""

from __future__ import annotations

import argparse
import json
import os

from mudroom.cli.project_session import open_session, tell_recovered
from mudroom.cli.terminal.context import Context
from mudroom.core.result import conflicts_to_json
from mudroom.core.tree.path import show_path

EXAMPLES = """\
examples:
  mudroom recover            finish or take back what was cut off; says what it did
  mudroom recover --json

Every run, apply and undo does the same first. An apply that had not touched the project is taken back (deferred: the
fork is whole); one that had is finished, and what the user has changed meanwhile is a conflict like any other (exit
code 3). mudroom undo takes it back as a whole."""


def configure(_parser: argparse.ArgumentParser) -> None:
    pass


def execute(_args: argparse.Namespace, context: Context) -> int:
    say = context.terminal.say
    with open_session(context) as session:
        holder = f"`mudroom recover` (process {os.getpid()})"
        with session.alone(holder, lambda other: say(f"waiting for {other} to end; Ctrl-C to give up")) as found:
            pass
    conflicts = [conflict for one in found for conflict in one.applied.conflicts]
    if context.as_json:
        rows = [
            {"apply": one.name, "fork": one.fork, "outcome": one.outcome}
            | {"conflicts": conflicts_to_json(one.applied.conflicts)}
            for one in found
        ]
        context.terminal.out(json.dumps({"schema": "mudroom.recovered/1", "applies": rows}))
        return 3 if conflicts else 0
    for one in found:
        tell_recovered(context, one.name, one.fork, one.outcome)
        for remark in one.applied.remarks:
            say(f"  {show_path(remark.path)}: {remark.text}")
    for conflict in conflicts:
        say(f"  {context.terminal.style('conflict', 'red')}  {show_path(conflict.path)}: {conflict.reason}")
    if not found:
        say("nothing was cut off")
    return 3 if conflicts else 0
