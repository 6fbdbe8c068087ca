"""``mudroom fleet``: other machines that run commands for this project. Their changes come back as forks; nothing lands
here."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import closing

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.tree.quote import show_words
from mudroom.errors import UsageError
from mudroom.ext.fleet.cli import fleet_run, fleet_table
from mudroom.ext.fleet.origin import worker_registry
from mudroom.ext.fleet.origin.errand_log import ErrandLog
from mudroom.ext.fleet.origin.output import NAMES
from mudroom.ext.fleet.origin.probe import probe
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.policy.config import user_config
from mudroom.vault.forks.background import read_ring
from mudroom.vault.forks.live_output import PLACE
from mudroom.vault.store.fork import fork_directory

EXAMPLES = """\
examples:
  mudroom fleet add big -- ssh big.example.org mudroom worker --stdio
  mudroom fleet add hpc --jobs 8 -- srun --quiet mudroom worker --stdio
  mudroom fleet add pod -- kubectl exec -i {node}-0 -- mudroom worker --stdio    {node}: the worker's name
  mudroom fleet ls                               each worker: what it answers, or why it cannot be reached
  mudroom fleet run -n 8 --judge 'pytest -q' -- ./attempt.sh {i}
  mudroom fleet run --each tests.txt -- pytest {}     once for each line
  mudroom fleet runs                             the runs of this project, and their errands
  mudroom fleet logs r1-3                        the end of what it printed
  mudroom fleet cancel r1 | r1-3                 from another terminal
  mudroom fleet resume                           after the origin was killed, or workers came back
  mudroom fleet fetch r1-2                       the fork of an errand that was not fetched
  mudroom run --on big -- make test              one command there, reviewed here"""

PROBE_TIMEOUT = 30.0
"""Seconds for the answers to ``fleet ls``."""
MOST_JOBS = 1_000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_ACTIONS), help="what to do")
    parser.add_argument("words", nargs="*", metavar="NAME", help="of workers, runs (r1) or errands (r1-3)")
    parser.add_argument("--replace", action="store_true", help="add: in place of the one of this name")
    parser.add_argument("--jobs", type=int, metavar="N", help="add: errands at one time; default: one a processor")
    fleet_run.add_run_options(parser)


def execute(args: argparse.Namespace, context: Context) -> int:
    run, least, most, takes_command = _ACTIONS[args.action]
    if takes_command != (args.command is not None):
        problem = "takes no command" if args.command is not None else "needs a command, after --"
        raise UsageError(f"fleet {args.action} {problem}", "mudroom fleet --help")
    if takes_command and not args.command:
        raise UsageError("no command was given", f"mudroom fleet {args.action} … -- COMMAND")
    if not least <= len(args.words) <= most:
        takes = "no name" if not most else "one name" if most == 1 else "one or more names"
        raise UsageError(f"fleet {args.action} takes {takes}, {len(args.words)} given", "mudroom fleet --help")
    return run(args, context)


def _add(args: argparse.Namespace, context: Context) -> int:
    if args.jobs is not None and not 0 < args.jobs <= MOST_JOBS:
        raise UsageError(f"--jobs {args.jobs} is not a number of errands", f"1 to {MOST_JOBS:,}")
    worker = FleetWorker(args.words[0], tuple(map(os.fsencode, args.command)), args.jobs or 0)
    known = worker_registry.load(user_config(context.environ)).get(worker.name)
    if known is not None and not args.replace:
        raise UsageError(
            f"there is a worker named {worker.name} already: {show_words(known.argv)}",
            f"mudroom fleet add {worker.name} --replace -- …, or mudroom fleet rm {worker.name}",
        )
    was_there = worker_registry.add(user_config(context.environ), worker)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.fleet-worker/1", **fleet_table.worker_to_json(worker)})
    else:
        done = "changed" if was_there else "added"
        context.terminal.say(f"{done} {worker.name}; mudroom fleet ls {worker.name} asks whether it answers")
    return 0


def _rm(args: argparse.Namespace, context: Context) -> int:
    worker_registry.remove(user_config(context.environ), args.words[0])
    if context.as_json:
        context.terminal.json({"schema": "mudroom.fleet-worker/1", "removed": args.words[0]})
    else:
        context.terminal.say(f"removed {args.words[0]}; what it has kept there stays until mudroom there removes it")
    return 0


def _ls(args: argparse.Namespace, context: Context) -> int:
    known = worker_registry.load(user_config(context.environ))
    if not known and not args.words:
        if context.as_json:
            context.terminal.json({"schema": "mudroom.fleet/1", "workers": []})
        else:
            context.terminal.say(f"no workers; {worker_registry.ADD} adds one")
        return 0
    workers = worker_registry.chosen(known, args.words)
    probes = probe(workers, fleet_run.starter(context), PROBE_TIMEOUT)
    if context.as_json:
        rows = [fleet_table.probe_to_json(row) for row in probes]
        context.terminal.json({"schema": "mudroom.fleet/1", "workers": rows})
    else:
        context.terminal.out("\n".join(fleet_table.probe_lines(probes)))
    return 1 if any(row.reason for row in probes) else 0


def _runs(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        log = ErrandLog(session.vault.path)
    with closing(log):
        runs = [row for row in log.runs() if not args.words or row.run in args.words]
        tables = [(row, log.errands(row.run), log.attempts(row.run)) for row in runs]
    missing = set(args.words) - {row.run for row in runs}
    if missing:
        raise UsageError(f"there is no run {min(missing)} in this project", "mudroom fleet runs lists them")
    if context.as_json:
        context.terminal.json(
            {"schema": "mudroom.fleet-runs/1", "runs": [fleet_table.run_to_json(*row) for row in tables]}
        )
    elif not tables:
        context.terminal.say("no runs; mudroom fleet run -- COMMAND makes one")
    for row in () if context.as_json else tables:
        context.terminal.out("\n".join(fleet_table.run_lines(*row, brief=not args.words)))
    return 0


def _logs(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        with closing(ErrandLog(session.vault.path)) as log:
            _errand, row = fleet_run.named_attempt(log, args.words[0])
            paths = [log.result_directory(row)]
        if row.fork:
            paths.insert(0, session.vault.path + b"/forks/" + fork_directory(row.fork) + PLACE)
    output = {}
    for name in NAMES.values():
        output[name] = next((data for path in paths if (data := read_ring(path + b"/" + name.encode()))), b"")
    if context.as_json:
        texts = {name: data.decode("utf-8", "replace") for name, data in output.items()}
        context.terminal.json({"schema": "mudroom.fleet-logs/1", "errand": args.words[0], **texts})
        return 0
    for number, name in NAMES.items():
        fleet_run.write_raw(number, output[name])
    return 0


def _cancel(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        log = ErrandLog(session.vault.path)
    with closing(log):
        errands = fleet_run.named_errands(log, args.words)
        log.request_cancel(row.errand for row, attempt in errands if not attempt.is_final and attempt.state != "ended")
        is_owned = log.has_owner()
    if not context.as_json:
        context.terminal.say(
            "cancelled" if is_owned else "cancelled with the next mudroom fleet resume: no run is under way"
        )
    else:
        context.terminal.json({"schema": "mudroom.fleet-cancel/1", "errands": len(errands)})
    return 0


_MANY = 10_000
_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace, Context], int], int, int, bool]] = {
    "add": (_add, 1, 1, True),
    "ls": (_ls, 0, _MANY, False),
    "rm": (_rm, 1, 1, False),
    "run": (fleet_run.run, 0, 0, True),
    "runs": (_runs, 0, _MANY, False),
    "logs": (_logs, 1, 1, False),
    "cancel": (_cancel, 0, _MANY, False),
    "resume": (fleet_run.resume, 0, 1, False),
    "fetch": (fleet_run.fetch, 1, _MANY, False),
}
"""Each action's function, the least and the most names it takes, and whether it takes a command."""
