"""``mudroom keeper``: show or end the processes that have everything loaded for the next command."""

from __future__ import annotations

import argparse
import json

from mudroom.cli.terminal.context import Context
from mudroom.core.confinement.limit import show_size
from mudroom.errors import UsageError
from mudroom.ext.keeper.client import DIRECTORY
from mudroom.ext.keeper.status import keepers, stop
from mudroom.policy.config import places

EXAMPLES = """\
examples:
  mudroom keeper status     its pid, age and memory; exit code 1 if there is none
  mudroom keeper stop       end it; commands that run go on

The first command starts a keeper in the background, and it ends after ten minutes without a command. Each command is
run by a fork of it, which has everything loaded. It keeps nothing of a command. MUDROOM_KEEPER=0 is for without it."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("status", "stop"), default="status", help="default: status")


def execute(args: argparse.Namespace, context: Context) -> int:
    directory = places(context.environ).state + DIRECTORY
    try:
        return _stop(directory, context) if args.action == "stop" else _status(directory, context)
    except PermissionError as error:
        hint = "run it as the user of this state directory"
        raise UsageError(f"the keepers cannot be listed: {error.strerror}", hint) from error


def _status(directory: bytes, context: Context) -> int:
    rows = keepers(directory)
    if context.as_json:
        found = [{**row._asdict(), "age": round(row.age, 1), "idle": round(row.idle, 1)} for row in rows]
        context.terminal.out(json.dumps({"schema": "mudroom.keeper/1", "keepers": found}))
        return 0 if rows else 1
    for row in rows:
        context.terminal.out(
            f"process {row.pid}  mudroom {row.version}  {_time(row.age)} old  idle for {_time(row.idle)}  "
            f"{row.commands} running  {show_size(row.memory)}"
        )
    if not rows:
        context.terminal.out("no keeper")
    return 0 if rows else 1


def _stop(directory: bytes, context: Context) -> int:
    pids = stop(directory)
    if context.as_json:
        context.terminal.out(json.dumps({"schema": "mudroom.keeper/1", "stopped": pids}))
    else:
        context.terminal.out("\n".join(f"process {pid} has ended" for pid in pids) or "no keeper")
    return 0


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
