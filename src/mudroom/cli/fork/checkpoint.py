"""``mudroom checkpoint``: freeze a fork's state under a name."""

from __future__ import annotations

import argparse
import time

from mudroom.cli.project_session import only_fork, open_session
from mudroom.cli.terminal.context import Context
from mudroom.session import Session

EXAMPLES = """\
examples:
  mudroom checkpoint green --fork try-1    freeze the present state of try-1
  mudroom checkpoint --fork try-1          list its checkpoints
  mudroom rollback green --fork try-1      drop later changes
  mudroom diff try-1@green try-1           the changes since"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="of the checkpoint; without one, the checkpoints are listed")
    parser.add_argument("--fork", metavar="FORK", help="the fork; may be left out if there is only one")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        fork = only_fork(session, args.fork, "--fork")
        if args.name is None:
            _list_checkpoints(session, fork, context)
            return 0
        session.forks.checkpoint(fork, args.name)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.checkpoint/1", "fork": fork, "checkpoint": args.name})
    else:
        context.terminal.say(f"{fork} is frozen as {args.name}: mudroom rollback {args.name} --fork {fork}")
    return 0


def _list_checkpoints(session: Session, fork: str, context: Context) -> None:
    points = session.vault.fork(fork).state.checkpoints
    if context.as_json:
        rows = [
            {"checkpoint": point.name, "time": point.time, "automatic": point.automatic, "layers": len(point.layers)}
            for point in points
        ]
        context.terminal.json({"schema": "mudroom.checkpoints/1", "fork": fork, "checkpoints": rows})
        return
    for point in points:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(point.time / 1e9))
        context.terminal.out(f"{point.name}  {when}{'  automatic' if point.automatic else ''}")
    if not points:
        context.terminal.say(f"{fork} has no checkpoints")
