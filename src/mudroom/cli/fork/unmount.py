"""``mudroom unmount``: unmount a fork, and keep all changes made in its directory."""

from __future__ import annotations

import argparse

from mudroom.cli.change.preview import preview, preview_notes
from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.result import changes_to_json

EXAMPLES = """\
examples:
  mudroom unmount try-1"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fork", help="the fork")
    parser.add_argument("--lost", action="store_true", help="give up a copy whose directory is gone")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        changeset = session.forks.unmount(args.fork, lost=args.lost)
        notes = None if context.as_json else preview_notes(session, args.fork, changeset.changes)
    if context.as_json:
        report = {"schema": "mudroom.unmount/1", "fork": args.fork, "changes": changes_to_json(changeset)}
        context.terminal.json(report)
    elif changeset:
        for line in preview(f"{args.fork} would change", changeset, context.terminal, notes):
            context.terminal.say(line)
    else:
        context.terminal.say(f"{args.fork} changes nothing")
    return 0
