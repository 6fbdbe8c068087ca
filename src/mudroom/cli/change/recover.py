"""``mudroom recover``: finish or take back applies that a killed mudroom or a machine crash cut off, and name the forks
in which a command was cut off."""

from __future__ import annotations

import argparse
import os

from mudroom.cli.project_session import open_session, print_recovered
from mudroom.cli.terminal.context import Context
from mudroom.core.result import conflicts_to_json
from mudroom.core.tree.path import show_path
from mudroom.vault.forks.fork_summary import ForkSummaries, ForkSummary
from mudroom.vault.store.fork import interrupted_forks

EXAMPLES = """\
examples:
  mudroom recover            finish or take back applies that were cut off; name forks whose command was
  mudroom recover --json

Every run, apply and undo does the same first. An apply that had not touched the project is taken back (deferred: the
fork is whole); one that had is finished, and changes by the user meanwhile are conflicts like any other (exit
code 3). mudroom undo takes it back as a whole."""


def configure(_parser: argparse.ArgumentParser) -> None:
    pass


def execute(_args: argparse.Namespace, context: Context) -> int:
    print_line = context.terminal.say
    with open_session(context, needs_policy=False) as session:
        holder = f"`mudroom recover` (process {os.getpid()})"
        with session.alone(holder, context.terminal.tell_waiting) as recovered:
            pass
        waiting = {fork.name for fork in interrupted_forks(session.vault.path)}
        cut_off = [summary for summary in ForkSummaries().all(session.vault) if summary.state == "cut off"]
    conflicts = [conflict for recovery in recovered for conflict in recovery.applied.conflicts]
    if context.as_json:
        rows = [
            {"apply": recovery.name, "fork": recovery.fork, "outcome": recovery.outcome}
            | {"conflicts": conflicts_to_json(recovery.applied.conflicts)}
            for recovery in recovered
        ]
        forks = [{"fork": summary.name, "changed": _changed(summary)} for summary in cut_off]
        context.terminal.json({"schema": "mudroom.recovered/1", "applies": rows, "forks": forks})
        return 3 if conflicts else 0
    for recovery in recovered:
        print_recovered(context, recovery.name, recovery.fork, recovery.outcome)
        for remark in recovery.applied.remarks:
            print_line(f"  {show_path(remark.path)}: {remark.text}")
    for conflict in conflicts:
        print_line(context.terminal.conflict_line("conflict", conflict))
    for summary in cut_off:
        count = _changed(summary)
        kept = "1 change of it is kept" if count == 1 else f"{count:,} changes of it are kept"
        kept = "what it did is kept, and recorded by the next look at it" if summary.name in waiting else kept
        print_line(f"a command of {summary.name} was cut off; {kept}: mudroom diff {summary.name}")
    if not recovered and not cut_off:
        print_line("nothing was cut off")
    return 3 if conflicts else 0


def _changed(summary: ForkSummary) -> int:
    return summary.brief.summary.files if summary.brief is not None else 0
