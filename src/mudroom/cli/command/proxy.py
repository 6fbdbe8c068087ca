"""``mudroom proxy``: what an agent's runtime does around ``mudroom exec``. Made for programs: nothing is asked."""

from __future__ import annotations

import argparse
import json
import time

from mudroom.cli.change.preview import preview
from mudroom.cli.command.run import adjusted, asked_level, configure_confinement
from mudroom.cli.project_session import only_fork, open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.fork_report import ForkReport, PreparedFork, inspected_to_json, prepared_to_json
from mudroom.core.result import changes_to_json
from mudroom.core.tree.path import show
from mudroom.errors import UsageError

EXAMPLES = """\
examples:
  mudroom proxy prepare --fork a --agent coder          make the fork, say what commands will find in it
  mudroom proxy prepare --fork b --from a --at green    on what the fork a held at its checkpoint green
  mudroom exec --fork a --agent coder --json -- CMD     then every command
  mudroom proxy inspect --fork a --json                 changes, checkpoints, what was refused
  mudroom proxy rollback --fork a                       back to before the last command that got a checkpoint
  mudroom proxy rollback before-rm-rf-src-1 --fork a    to a checkpoint by name; this, too, can be rolled back"""

_WORDS = {"prepare": 0, "inspect": 0, "rollback": 1}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_WORDS), help="what to do")
    parser.add_argument("checkpoint", nargs="?", help="rollback: the checkpoint; default: the last one")
    parser.add_argument("--fork", metavar="NAME", help="the fork. prepare: made if there is none; default: a new one")
    parser.add_argument("--agent", metavar="NAME", help="whose commands these will be, for the policy")
    parser.add_argument("--from", dest="parent", metavar="FORK", help="prepare: on what another fork holds")
    parser.add_argument("--at", metavar="CHECKPOINT", help="prepare: or held at a checkpoint")
    parser.add_argument("--snapshot", action="store_true", help="prepare: on a frozen copy of the project")
    parser.add_argument("--mark", metavar="NAME", help="prepare: freeze what the fork holds under this name")
    configure_confinement(parser)


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.checkpoint is not None and not _WORDS[args.action]:
        raise UsageError(f"proxy {args.action} takes no {args.checkpoint!r}", "mudroom proxy --help")
    return {"prepare": _prepare, "inspect": _inspect, "rollback": _rollback}[args.action](args, context)


def _prepare(args: argparse.Namespace, context: Context) -> int:
    with open_session(
        context, adjust=lambda settings: adjusted(args, settings), level=asked_level(args), agent=args.agent or "agent"
    ) as session:
        found = session.prepare(args.fork, parent=args.parent, at=args.at, snapshot=args.snapshot, checkpoint=args.mark)
    if context.as_json:
        context.terminal.out(json.dumps(prepared_to_json(found)))
        return 0
    context.terminal.out("\n".join(_prepared_lines(found)))
    for note in found.notes:
        context.terminal.note(note)
    return 0


def _prepared_lines(found: PreparedFork) -> list[str]:
    lines = [
        f"fork       {found.fork}" + (" (new)" if found.created else ""),
        f"project    {show(found.project)}, staged ({found.view})",
        f"level      {found.level}, network {found.network}",
        f"agent      {found.agent}",
    ]
    lines += [f"{name:<17} {action.replace('_', ' ')}" for name, action in found.actions]
    return lines


def _inspect(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        found = session.inspect(only_fork(session, args.fork))
    if context.as_json:
        context.terminal.out(json.dumps(inspected_to_json(found)))
        return 0
    context.terminal.out("\n".join(_inspected_lines(found)))
    for line in preview("it would change", found.changeset, context.terminal) if found.changeset.changes else ():
        context.terminal.out(line)
    return 0


def _inspected_lines(found: ForkReport) -> list[str]:
    origin = f", from {found.parent}" if found.parent else ""
    lines = [f"{found.fork}: {found.state}{origin}"]
    if found.command:
        lines.append(f"last: {show(b' '.join(found.command))} (exit {found.exit_code})")
    for point in found.checkpoints:
        when = time.strftime("%H:%M:%S", time.localtime(point.time / 1e9))
        lines.append(f"checkpoint {point.name}  {when}{'  automatic' if point.automatic else ''}")
    lines += [f"refused {one['kind']}: {show(one['target'].encode())}: {one['reason']}" for one in found.denials[:5]]
    return lines


def _rollback(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        fork = only_fork(session, args.fork)
        point = args.checkpoint or session.forks.last_checkpoint(fork)
        with session.forks.compare(fork, f"{fork}@{point}") as found:
            dropped = found.changeset
        before = session.forks.rollback(fork, point)
    undo = before.name if before is not None else None
    if context.as_json:
        report = {"schema": "mudroom.rollback/1", "fork": fork, "checkpoint": point, "done": True, "undo": undo}
        context.terminal.out(json.dumps(report | {"changes": changes_to_json(dropped)}))
        return 0
    for line in preview(f"rolled {fork} back to {point}, which has changed in it", dropped, context.terminal):
        context.terminal.out(line)
    if undo:
        context.terminal.say(f"mudroom proxy rollback {undo} --fork {fork} has it back")
    return 0
