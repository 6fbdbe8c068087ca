"""``mudroom ps``: list the commands that run in a project's forks, and end them."""

from __future__ import annotations

import argparse
import sys
import time

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.background import BackgroundStart, to_json
from mudroom.core.registry import part_or_none
from mudroom.core.system.write_all import write_all
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_text
from mudroom.errors import UsageError
from mudroom.policy.setting_type import seconds
from mudroom.session import Session
from mudroom.typing import Any

EXAMPLES = """\
examples:
  mudroom ps                      background commands, and forks in which another one runs
  mudroom ps --json
  mudroom ps --output 3f2a81c0    the end of its output so far
  mudroom ps --output my-fork     of the newest command of this fork
  mudroom ps --end 3f2a81c0       SIGTERM; after --grace SIGKILL; its changes stay in the fork
  mudroom ps --end --all          every background command of this project

A background command belongs to its fork: discarding that with --end ends it, and so does its time limit."""

GRACE = 2.0
"""Seconds from SIGTERM to SIGKILL, by default."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID | FORK", help="a command, or those of a fork; default: all")
    parser.add_argument("--end", action="store_true", help="end background commands")
    parser.add_argument("--output", action="store_true", help="print the output of one: stdout, then stderr")
    parser.add_argument("--all", action="store_true", help="all of them; without --end: those that are over, too")
    parser.add_argument("--grace", metavar="TIME", help="between asking one to end and ending it: 1s, 10s")


def execute(args: argparse.Namespace, context: Context) -> int:
    grace = seconds(args.grace, "--grace") if args.grace else GRACE
    with open_session(context, needs_policy=False) as session:
        if args.output:
            return _print_output(session, args.ids, context)
        if args.end:
            return _end_commands(session, args.ids, args.all, grace, context)
        rows = [row for row in process_rows(session) if args.all or row["state"] != "ended"]
        if args.ids:
            forks = {row["fork"] for row in rows}
            named = {word if word in forks else _commands(session, word)[0].id for word in args.ids}
            rows = [row for row in rows if row["id"] in named or row["fork"] in named]
    if context.as_json:
        context.terminal.json({"schema": "mudroom.processes/1", "commands": rows})
    elif rows:
        context.terminal.out("\n".join(describe(row) for row in rows))
    else:
        context.terminal.say("nothing runs")
    return 0


def process_rows(session: Session) -> list[dict[str, Any]]:
    """Return the background commands, oldest first, then the forks' foreground commands."""
    commands, usages = session.sandboxes.backgrounds(), session.sandboxes.usages()
    rows = []
    for started, ended in commands:
        row = to_json(started, ended)
        usage = usages.get(started.id) if ended is None else None
        row["pid"] = usage.pid if usage is not None else None
        row["pid_inside"] = usage.inside if usage is not None else None
        row["processes"] = usage.processes if usage is not None else 0
        row["cpu"] = round(usage.cpu, 2) if usage is not None else None
        row["memory"] = usage.memory if usage is not None else None
        row["ports"] = list(usage.ports) if usage is not None else []
        rows.append(row)
    for fork, command, since in session.sandboxes.foreground():
        row = {"schema": None, "id": None, "fork": fork, "command": [command], "started": since, "state": "foreground"}
        rows.append({**row, "ports": list(session.sandboxes.foreground_ports(fork))})
    for row in rows:
        row["addresses"] = []
    pages = part_or_none("web", "addresses") if any(row["ports"] for row in rows) else None
    if pages is not None:
        pages.add_addresses(session.vault, rows)
    return rows


def describe(row: dict[str, Any]) -> str:
    # a foreground command is known by its lock's holder alone, which is quoted already
    words = show(row["command"][0].encode()) if row["state"] == "foreground" else show_text(row["command"])
    age = _age(time.time() - row["started"] / 1e9)
    if row["state"] == "foreground":
        return f"{'-':<8}  {row['fork']}  {age}  {words}{_servers(row)}"
    details = f"  ended with {row['exit_code']}" if row["state"] == "ended" else ""
    details += ", out of time" if row.get("timed_out") else ""
    if row["pid"] is not None:
        details += f"  pid {row['pid']}  {row['cpu']:.1f} s  {row['memory'] / (1 << 20):.0f} MiB"
    details += _servers(row)
    agent = f"  {row['agent']}" if row["agent"] else ""
    return f"{row['id']}  {row['fork']}{agent}  {age}  {words}{details}"


def _servers(row: dict[str, Any]) -> str:
    if not row["ports"]:
        return ""
    ways = ", ".join(row["addresses"]) or f"mudroom serve, or mudroom net open {row['ports'][0]} --fork {row['fork']}"
    return "  listens on " + ", ".join(map(str, row["ports"])) + f" ({ways})"


def _age(duration: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if duration >= size:
            return f"{duration / size:.0f}{unit}"
    return f"{max(0, duration):.0f}s"


def _print_output(session: Session, ids: list[str], context: Context) -> int:
    if len(ids) != 1:
        raise UsageError(f"ps --output takes one ID, {len(ids)} given", "mudroom ps --output ID; mudroom ps lists them")
    identity = _commands(session, ids[0])[-1].id
    out, err = session.background(identity).output()
    if context.as_json:
        texts = {"stdout": out.decode("utf-8", "replace"), "stderr": err.decode("utf-8", "replace")}
        context.terminal.json({"schema": "mudroom.printed/1", "id": identity, **texts})
        return 0
    for stream, data in ((sys.stdout, out), (sys.stderr, err)):
        stream.flush()
        write_all(stream.fileno(), data)
    return 0


def _commands(session: Session, word: str) -> list[BackgroundStart]:
    """Return the background command with this id, or the commands in the fork with this name: ended ones first, then by
    age. Raise UsageError if there is none."""
    known = session.sandboxes.backgrounds()
    of_fork = [started for started, _ended in sorted(known, key=lambda row: row[1] is None) if started.fork == word]
    if of_fork and all(started.id != word for started, _ended in known):
        return of_fork
    if not of_fork and session.vault.find(word) is not None:
        raise UsageError(f"the fork {word} has no background command", "mudroom ps --all shows those of this project")
    return [session.sandboxes.started(word)]


def _end_commands(session: Session, ids: list[str], ends_all: bool, grace: float, context: Context) -> int:
    if bool(ids) == ends_all:
        raise UsageError("ps --end takes either IDs or --all", "mudroom ps --end ID, or mudroom ps --end --all")
    running = [started.id for started, ended in session.sandboxes.backgrounds() if ended is None]
    named = [started.id for word in ids for started in _commands(session, word) if started.id in (word, *running)]
    commands = [session.background(command) for command in (named if ids else running)]
    for command in commands:
        session.sandboxes.end(command.fork, [command.id], grace)
    ended = [command.wait() for command in commands]
    rows = [to_json(command.started, end) for command, end in zip(commands, ended, strict=True)]
    if context.as_json:
        context.terminal.json({"schema": "mudroom.ended/1", "commands": rows})
    elif rows:
        context.terminal.say("ended: " + ", ".join(f"{row['id']} ({row['exit_code']})" for row in rows))
    else:
        context.terminal.say("nothing runs in the background")
    return 0
