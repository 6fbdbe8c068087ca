"""``mudroom fleet run``, ``resume`` and ``fetch``: errands on workers, followed to their ends.

Exit code: 0 if every errand ended with 0 and its judge passed; 1 if a command or a judge failed; 125 if an errand was
lost, refused or could not be run; 128 + N if a signal ended this.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from mudroom.cli.command.run import is_agent_program
from mudroom.cli.project_session import open_session, working_directory
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.signals import handling
from mudroom.cli.terminal.terminal import is_terminal
from mudroom.core.settings import Settings
from mudroom.core.system.write_all import write_all
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import is_below, show
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.cli import fleet_table
from mudroom.ext.fleet.engine import process
from mudroom.ext.fleet.origin import run as origin
from mudroom.ext.fleet.origin import worker_registry
from mudroom.ext.fleet.origin.errand_log import AttemptRow, ErrandLog, ErrandRow
from mudroom.ext.fleet.origin.fleet_event import ErrandOutput, ErrandSettled, FleetEvent, WorkerDisconnected, WorkerNote
from mudroom.ext.fleet.origin.link import Transport
from mudroom.ext.fleet.origin.run import FleetErrand, FleetRun, FrontEnd, RunRequest
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.policy.config import user_config
from mudroom.policy.limit_option import with_limit
from mudroom.policy.setting_type import seconds
from mudroom.session import Session

_MOST_BYTES = 64 << 20
"""Bytes in the file for ``--each``."""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    group.add_argument("-n", "--count", type=int, metavar="N", help="run it N times; {i} in its words is the number")
    group.add_argument("--each", metavar="FILE", help="run it once for each line, which replaces {} or is added")
    group.add_argument("--on", action="append", default=[], metavar="NAME", help="on this worker only; may be repeated")
    group.add_argument("--judge", metavar="COMMAND", help="run there in a fork of each result; its exit code is shown")
    group.add_argument("--retry", type=int, metavar="N", help="try an errand that is lost again, at most N times")
    group.add_argument("--fetch", metavar="WHICH", help="all (default), best, best:N, or none: which forks come here")
    group.add_argument(
        "--through-origin",
        action="store_true",
        help="connections of the commands leave from this machine, by its rules, and not from the worker",
    )
    group.add_argument("--any-arch", action="store_true", help="also on machines with other processors")
    group.add_argument("--git", action="store_true", help="send .git, too")
    group.add_argument("--level", type=int, choices=(0, 1, 2), help="as of mudroom run")
    group.add_argument("--timeout", metavar="TIME", help="end each after so long: 90s, 5m, 1h")
    group.add_argument("--memory", metavar="SIZE", help="memory for each, kept free for it on its worker: 16GB")
    group.add_argument("--cpus", metavar="N", help="processors for each, kept free for it: 0.5, 4")
    group.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs for each")
    group.add_argument("--quiet", "-q", action="store_true", help="do not show what the errands print")


def starter(context: Context) -> Callable[[FleetWorker], Transport]:
    """Return the function that starts a worker's program."""
    return lambda worker: process.start(worker.argv, worker.name, context.environ)


# --- the verbs ---


def run(args: argparse.Namespace, context: Context) -> int:
    workers = worker_registry.chosen(worker_registry.load(user_config(context.environ)), args.on)
    errands = _errands(args)
    with open_session(context, adjust=lambda settings: _adjusted(args, settings), level=args.level) as session:
        current = os.path.realpath(working_directory())
        request = RunRequest(
            errands,
            tuple(map(os.fsencode, args.command)),
            cwd=current if is_below(current, session.project) else session.project,
            judge=tuple(map(os.fsencode, shlex.split(args.judge))) if args.judge else (),
            fetch=_fetch(args.fetch),
            retry=natural(args.retry or 0, "--retry"),
            any_arch=args.any_arch,
            through_origin=args.through_origin,
            git=args.git,
            gpus=natural(args.gpus, "--gpus"),
        )
        if is_agent_program(request.command, context.environ):
            name = show(os.path.basename(request.command[0]))
            context.terminal.say(f"{name} has no login on a worker: logins stay on this machine (mudroom {name})")
        with origin.begin(session, request, workers, front_end(context, quiet=args.quiet)) as fleet:
            if not context.as_json:
                names = ", ".join(worker.name for worker in workers)
                context.terminal.say(f"run {fleet.row.run}: {counted(len(errands), 'errand')} on {names}")
            return follow(fleet, context)


def resume(args: argparse.Namespace, context: Context) -> int:
    workers = worker_registry.load(user_config(context.environ))
    with open_session(context) as session:
        name = args.words[0] if args.words else _last_run(session)
        with origin.resume(session, name, workers, front_end(context, quiet=args.quiet)) as fleet:
            return follow(fleet, context)


def fetch(args: argparse.Namespace, context: Context) -> int:
    """Bring errands here that were not fetched."""
    workers = worker_registry.load(user_config(context.environ))
    code = 0
    with open_session(context) as session:
        with closing(ErrandLog(session.vault.path)) as log:
            chosen = named_errands(log, args.words)
        for run_name in dict.fromkeys(errand.run for errand, _row in chosen):
            wanted = frozenset(row.key for errand, row in chosen if errand.run == run_name)
            with origin.resume(session, run_name, workers, front_end(context, quiet=True), wanted) as fleet:
                code = max(code, follow(fleet, context))
    return code


def _last_run(session: Session) -> str:
    with closing(ErrandLog(session.vault.path)) as log:
        runs = log.runs()
    if not runs:
        raise UsageError("this project has no runs", "mudroom fleet run -- COMMAND makes one")
    return next((row.run for row in reversed(runs) if not row.ended), runs[-1].run)


# --- words ---


def _errands(args: argparse.Namespace) -> tuple[FleetErrand, ...]:
    if args.count is not None and args.each is not None:
        raise UsageError("-n and --each exclude each other", "leave one of them out")
    words = tuple(map(os.fsencode, args.command))
    if args.each is None:
        count = 1 if args.count is None else args.count
        if not 0 < count <= origin.MOST:
            raise UsageError(f"-n {count}: not a number of errands", f"1 to {origin.MOST:,}")
        return tuple(
            FleetErrand(tuple(word.replace(b"{i}", b"%d" % number) for word in words)) for number in range(1, count + 1)
        )
    lines = [line for line in _read(args.each).split(b"\n") if line.strip()]
    if not lines:
        raise UsageError(f"{args.each} has no lines", "one line for each errand")
    if any(b"\0" in line for line in lines):
        raise UsageError(f"{args.each} is not a file of lines", "one line for each errand")
    has_place = any(b"{}" in word for word in words)
    return tuple(
        FleetErrand(tuple(word.replace(b"{}", line) for word in words) if has_place else (*words, line))
        for line in lines
    )


def _read(path: str) -> bytes:
    try:
        with open(0 if path == "-" else path, "rb", closefd=path != "-") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--each {path}: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"--each {path} has more than {_MOST_BYTES >> 20} MiB", f"at most {origin.MOST:,} lines")
    return data


def _fetch(which: str | None) -> str:
    if which is None:
        return "all"
    kind, colon, number = which.partition(":")
    if which in ("all", "best", "none") or (kind == "best" and colon and number.isdecimal() and 0 < len(number) < 6):
        return which
    raise UsageError(f"--fetch {which}: not known", "all, best, best:3 or none")


def natural(number: int, option: str) -> int:
    if not 0 <= number <= 100:
        raise UsageError(f"{option} {number}: not a number of times", "0 to 100")
    return number


def _adjusted(args: argparse.Namespace, settings: Settings) -> Settings:
    for option, value in (("memory", args.memory), ("cpus", args.cpus)):
        if value is not None:
            settings = with_limit(settings, option, value, f"--{option}")
    return settings._replace(timeout=seconds(args.timeout, "--timeout")) if args.timeout else settings


def named_errands(log: ErrandLog, names: Sequence[str]) -> list[tuple[ErrandRow, AttemptRow]]:
    """Return the last attempts for the errands or runs with these names; without a name, for all runs that are under
    way. Raise UsageError if a name is unknown."""
    runs = log.runs()
    rows: dict[str, list[tuple[ErrandRow, AttemptRow]]] = {}
    for run_row in runs:
        if names and not any(name == run_row.run or name.startswith(run_row.run + "-") for name in names):
            continue
        if not names and run_row.ended:
            continue
        last = {row.errand: row for row in log.attempts(run_row.run)}
        pairs = [(errand, last[errand.errand]) for errand in log.errands(run_row.run)]
        rows[run_row.run] = pairs
        for pair in pairs:
            rows.setdefault(pair[0].label, [pair])
    if not names:
        return [pair for row in runs for pair in rows.get(row.run, ())]
    for name in names:
        if name not in rows:
            raise UsageError(f"there is no errand {name} in this project", "mudroom fleet runs lists them")
    return [pair for name in names for pair in rows[name]]


def named_attempt(log: ErrandLog, name: str) -> tuple[ErrandRow, AttemptRow]:
    pairs = named_errands(log, [name])
    if len(pairs) != 1:
        raise UsageError(
            f"{name} has {len(pairs)} errands", f"name one of them: mudroom fleet logs {pairs[0][0].label}"
        )
    return pairs[0]


# --- following ---


def front_end(context: Context, *, quiet: bool) -> FrontEnd:
    """Return how a run shows itself on this terminal."""
    terminal = context.terminal

    def report(event: FleetEvent) -> None:
        if isinstance(event, WorkerDisconnected):
            hint = f" ({event.hint})" if event.hint else ""
            again = "" if event.given_up else "; it is tried again"
            terminal.note(f"{event.node}: {event.reason}{hint}{again}")
        elif isinstance(event, WorkerNote):
            terminal.note(f"{fleet_table.node_text(event.node)}: {event.text}")
        elif isinstance(event, ErrandSettled) and not context.as_json:
            terminal.say(fleet_table.settled_line(event.errand, event.row))

    def line(output: ErrandOutput, text: str) -> None:
        prefix = terminal.style(f"{output.errand.label}@{output.row.worker}| ", "dim", output.stream)
        (terminal.out if output.stream == 1 else terminal.say)(prefix + text)

    return FrontEnd(
        starter(context),
        context.environ,
        report,
        None if quiet or context.as_json else line,
        note=terminal.note,
    )


def follow(fleet: FleetRun, context: Context) -> int:
    """Follow a run to its end, print the table, and return the exit code."""
    total = len(fleet.rows())
    done = 0
    with cancelled_by_signals(fleet) as received:
        for _settled in fleet.settled():
            done += 1
            context.terminal.progress("errands", done, total)
    rows = fleet.rows()
    if context.as_json:
        errands = [fleet_table.errand_to_json(errand, row) for errand, row in rows]
        moved = {
            worker.name: dict(zip(("sent", "received"), worker.traffic, strict=True))
            for worker in fleet.worker_sessions()
        }
        report = {"schema": "mudroom.fleet-run/1", "run": fleet.row.run, "errands": errands, "workers": moved}
        context.terminal.json(report)
    else:
        for line in fleet_table.summary_lines(rows, fleet.worker_sessions()):
            context.terminal.say(line)
        _print_next(fleet, rows, context)
    return 128 + received[0] if received else exit_code(rows, fleet.row.fetch)


def _print_next(fleet: FleetRun, rows: Sequence[tuple[ErrandRow, AttemptRow]], context: Context) -> None:
    forks = [row.fork for _errand, row in fleet_table.best_first(rows) if row.fork]
    if forks:
        context.terminal.say(f"look: mudroom diff {forks[0]}; land: mudroom apply {forks[0]}")
    there = [
        errand.label
        for errand, row in rows
        if row.state in ("ended", "late", "expired") and row.outcome is not None and row.outcome.archive
    ]
    if there:
        verb = "is" if len(there) == 1 else "are"
        context.terminal.say(f"{counted(len(there), 'fork')} {verb} kept there: mudroom fleet fetch {there[0]}")
    if any(row.state == "lost" for _errand, row in rows):
        context.terminal.say(f"lost ones may come back with their worker: mudroom fleet resume {fleet.row.run}")


def exit_code(rows: Sequence[tuple[ErrandRow, AttemptRow]], fetch: str) -> int:
    last = {row.errand: row for _errand, row in rows}
    if any(row.state not in ("ended", "fetched", "kept") for row in last.values()):
        return 125
    if fetch == "all" and any(row.state == "ended" for row in last.values()):
        return 125  # its fork was to come here and has not
    outcomes = [row.outcome for row in last.values() if row.outcome is not None]
    if any(outcome.state != "ended" for outcome in outcomes):
        return 125  # its worker ended while it ran, or gave it up: what it left came late
    failed = any(outcome.exit_code or outcome.signal or outcome.judged > 0 for outcome in outcomes)
    return 1 if failed else 0


@contextmanager
def cancelled_by_signals(fleet: FleetRun) -> Iterator[list[int]]:
    """Cancel the run by the first signal that would end this process; the second one ends it. Yield those that came."""
    received: list[int] = []

    def handle(number: int, _frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        fleet.cancel()

    with handling(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), handle)):
        yield received


def write_raw(descriptor: int, data: bytes) -> None:
    """Write an errand's output: as it is to a file or a pipe, escaped to a terminal."""
    if is_terminal(descriptor):
        data = b"".join(show(line.replace(b"\t", b"    ")).encode() + b"\n" for line in data.splitlines())
    try:
        write_all(descriptor, data)
    except OSError as error:
        raise MudroomError(f"the output cannot be written: {error.strerror}") from error
