"""``mudroom proxy``: the operations around ``mudroom exec`` for an agent's runtime. It is for programs, and asks no
questions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from mudroom.cli.change.preview import commit_lines, preview
from mudroom.cli.command.run import add_confinement_options, adjusted, asked_level
from mudroom.cli.project_session import only_fork, open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.result import changes_to_json
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.agents.session.fork_report import (
    ForkReport,
    PreparedFork,
    inspect,
    inspected_to_json,
    prepare,
    prepared_to_json,
)
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
examples:
  mudroom proxy prepare --fork a --agent coder          make the fork, print its terms for commands
  mudroom proxy prepare --fork b --from a --at green    on the state of fork a at its checkpoint green
  mudroom exec --fork a --agent coder --json -- CMD     then every command
  mudroom proxy inspect --fork a --json                 changes, checkpoints, refusals
  mudroom proxy rollback --fork a                       back to before the last command that got a checkpoint
  mudroom proxy rollback before-rm-rf-src-1 --fork a    to a checkpoint by name; this, too, can be rolled back"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_ACTIONS), help="what to do")
    parser.add_argument("checkpoint", nargs="?", help="rollback: the checkpoint; default: the last one")
    parser.add_argument("--fork", metavar="NAME", help="the fork. prepare: made if there is none; default: a new one")
    parser.add_argument("--agent", metavar="NAME", help="whose commands these will be, for the policy")
    parser.add_argument("--from", dest="parent", metavar="FORK", help="prepare: on the state of another fork")
    parser.add_argument("--at", metavar="CHECKPOINT", help="prepare: or held at a checkpoint")
    parser.add_argument("--snapshot", action="store_true", help="prepare: on a frozen copy of the project")
    parser.add_argument("--mark", metavar="NAME", help="prepare: freeze the fork's state under this name")
    add_confinement_options(parser)


def execute(args: argparse.Namespace, context: Context) -> int:
    run, takes_checkpoint = _ACTIONS[args.action]
    if args.checkpoint is not None and not takes_checkpoint:
        raise UsageError(f"proxy {args.action} takes no {args.checkpoint!r}", "mudroom proxy --help")
    return run(args, context)


def _prepare(args: argparse.Namespace, context: Context) -> int:
    with open_session(
        context, adjust=lambda settings: adjusted(args, settings), level=asked_level(args), agent=args.agent or "agent"
    ) as session:
        prepared = prepare(
            session, args.fork, parent=args.parent, at=args.at, snapshot=args.snapshot, checkpoint=args.mark
        )
    if context.as_json:
        context.terminal.out(json.dumps(prepared_to_json(prepared)))
        return 0
    context.terminal.out("\n".join(_prepared_lines(prepared)))
    for note in prepared.notes:
        context.terminal.note(note)
    return 0


def _prepared_lines(prepared: PreparedFork) -> list[str]:
    lines = [
        f"fork       {prepared.fork}" + (" (new)" if prepared.created else ""),
        f"project    {show(prepared.project)}, staged ({prepared.view})",
        f"level      {prepared.level}, network {prepared.network}",
        f"agent      {prepared.agent}",
    ]
    lines += [f"{name:<17} {action.replace('_', ' ')}" for name, action in prepared.actions]
    return lines


def _inspect(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        report = inspect(session.forks, only_fork(session, args.fork, "--fork"))
        commits = {} if context.as_json else commit_lines(session, report.fork, report.changeset.changes)
    if context.as_json:
        context.terminal.out(json.dumps(inspected_to_json(report)))
        return 0
    context.terminal.out("\n".join(_inspected_lines(report)))
    changes, terminal = report.changeset, context.terminal
    for line in preview("it would change", changes, terminal, commits) if changes.changes else ():
        context.terminal.out(line)
    return 0


def _inspected_lines(report: ForkReport) -> list[str]:
    origin = f", from {report.parent}" if report.parent else ""
    lines = [f"{report.fork}: {report.state}{origin}"]
    if report.command:
        lines.append(f"last: {show(b' '.join(report.command))} (exit {report.exit_code})")
    for checkpoint in report.checkpoints:
        when = time.strftime("%H:%M:%S", time.localtime(checkpoint.time / 1e9))
        lines.append(f"checkpoint {checkpoint.name}  {when}{'  automatic' if checkpoint.automatic else ''}")
    lines += [
        f"refused {denial['kind']}: {show(denial['target'].encode())}: {denial['reason']}"
        for denial in report.denials[:5]
    ]
    return lines


def _rollback(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        fork = only_fork(session, args.fork, "--fork")
        checkpoint = args.checkpoint or session.forks.last_checkpoint(fork)
        with session.forks.compare(fork, f"{fork}@{checkpoint}") as comparison:
            dropped = comparison.changeset
        before = session.forks.rollback(fork, checkpoint)
    undo = before.name if before is not None else None
    if context.as_json:
        report = {"schema": "mudroom.rollback/1", "fork": fork, "checkpoint": checkpoint, "done": True, "undo": undo}
        context.terminal.out(json.dumps(report | {"changes": changes_to_json(dropped)}))
        return 0
    for line in preview(f"rolled {fork} back to {checkpoint}, which has changed in it", dropped, context.terminal):
        context.terminal.out(line)
    if undo:
        context.terminal.say(f"mudroom proxy rollback {undo} --fork {fork} has it back")
    return 0


_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace, Context], int], bool]] = {
    "prepare": (_prepare, False),
    "inspect": (_inspect, False),
    "rollback": (_rollback, True),
}
"""Each action's function, and whether it takes a checkpoint."""
