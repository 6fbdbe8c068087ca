"""``mudroom keeper``: show or end the processes that have everything loaded for the next command."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from mudroom.cli.terminal.context import Context
from mudroom.core.confinement.limit import show_size
from mudroom.errors import UsageError
from mudroom.ext.keeper.caller import differences
from mudroom.ext.keeper.start import DIRECTORY, PAUSE, is_wanted
from mudroom.ext.keeper.status import KeeperStatus, is_recent, keepers, stop
from mudroom.policy.config import places

EXAMPLES = """\
examples:
  mudroom keeper status     its pid, age and memory, and whether this shell has one; exit code 1 if there is none
  mudroom keeper stop       end it; commands that run go on

The first command starts a keeper in the background, and it ends after ten minutes without a command. Each command is
run by a fork of it, which has everything loaded. It keeps nothing of a command. MUDROOM_KEEPER=0 is for without it.
At a terminal it runs ls and status: other verbs need the terminal themselves."""

SCRIPT_ENDING = "-python"
"""Of the program's script (``src/native/native.h``), which lies beside it."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("status", "stop"), default="status", help="default: status")


def execute(args: argparse.Namespace, context: Context) -> int:
    directory = places(context.environ).state + DIRECTORY
    try:
        return _stop(directory, context) if args.action == "stop" else _status(directory, context)
    except PermissionError as error:
        hint = "run it as the user of this state directory"
        raise UsageError(f"the keepers cannot be listed: {error.strerror}", hint) from error


def here(context: Context) -> str:
    """Return whether this shell has a keeper, and why not, in one line."""
    why_not = _why_not_here(keepers(places(context.environ).state + DIRECTORY), context)
    return f"keeper: this shell has {'none: ' + why_not if why_not else 'one, which runs its commands'}"


def _status(directory: bytes, context: Context) -> int:
    rows = keepers(directory)
    why_not = _why_not_here(rows, context)
    if context.as_json:
        found = [{**row._asdict(), "age": round(row.age, 1), "idle": round(row.idle, 1)} for row in rows]
        context.terminal.json({"schema": "mudroom.keeper/1", "keepers": found, "not_here": why_not})
        return 0 if rows else 1
    for row in rows:
        context.terminal.out(
            f"process {row.pid}  mudroom {row.version}  {_time(row.age)} old  idle for {_time(row.idle)}  "
            f"{row.commands} running  {show_size(row.memory)}"
        )
    if not rows:
        context.terminal.out("no keeper")
    context.terminal.out(f"this shell has {'none: ' + why_not if why_not else 'one'}")
    return 0 if rows else 1


def _why_not_here(rows: Sequence[KeeperStatus], context: Context) -> str:
    """Return why no keeper runs the commands of this process's shell; "" if one does, as a harmless command finds."""
    if context.environ.get(b"MUDROOM_KEEPER") == b"0":
        return "MUDROOM_KEEPER=0 is set"
    program = sys.argv[0].removesuffix(SCRIPT_ENDING)
    if program == sys.argv[0]:
        return "only the program mudroom uses one, not python -m mudroom"
    # An option that ls has not: the command ends in the parser. It makes no vault, and collects no fork.
    environ = {**context.environ, b"MUDROOM_KEEPER": b"only"}
    done = subprocess.run(
        [program, "ls", "--none"], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, check=False, text=True,
    )  # fmt: skip
    if not done.stdout:
        return ""
    answer, *own = done.stdout.split()
    row = next((row for row in rows if row.name in own), None)
    if answer in _UNLIKE:
        return _why_none(rows, own, answer, context)
    if row is None:
        return "its variables or options exclude one (LD_PRELOAD, a relative PYTHONPATH, …)"
    return _difference(row.pid)


def _why_none(rows: Sequence[KeeperStatus], own: Sequence[str], answer: str, context: Context) -> str:
    """Return why none has one of this shell's ``own`` names, and when a command starts one (``start.py``)."""
    unlike = "".join(f"process {row.pid} {_UNLIKE[answer]}; " for row in rows[:1])
    directory = places(context.environ).state + DIRECTORY
    if not is_wanted(context.environ):
        return "CI is set"
    if any(row.idle < PAUSE for row in rows):
        return f"{unlike}a command starts another when that was idle for {PAUSE:.0f} s"
    if any(is_recent(directory + b"/" + os.fsencode(name) + b".lock", time.time() - PAUSE) for name in own):
        return f"one is starting; if it cannot, a command after {PAUSE:.0f} s tries again"
    return f"{unlike}the next command starts one"


_UNLIKE = {
    "none": "has another interpreter, or variables of its own",
    "apart": "may not have its control group or limits",
    "own": "cannot have its variables (PYTHONPATH, LD_…)",
}


def _difference(keeper: int) -> str:
    opened: list[int] = []
    try:
        opened += [_open_process(os.getpid())]
        opened += [_open_process(keeper)]
        different = differences(*opened)
    except (FileNotFoundError, ProcessLookupError):
        return f"process {keeper} has just ended"
    finally:
        for descriptor in opened:
            os.close(descriptor)
    if different is None:
        return "it is traced, or confined (no_new_privs)"
    return f"it differs from process {keeper} in {', '.join(different) or 'its locale or limits'}"


def _open_process(pid: int) -> int:
    return os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _stop(directory: bytes, context: Context) -> int:
    pids = stop(directory)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.keeper/1", "stopped": pids})
    else:
        context.terminal.out("\n".join(f"process {pid} has ended" for pid in pids) or "no keeper")
    return 0


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
