"""``mudroom redo``: apply again what was undone."""

from __future__ import annotations

import argparse

from mudroom.cli.change.undo import print_turned
from mudroom.cli.project_session import exclusive, open_session, print_remarks
from mudroom.cli.terminal.context import Context
from mudroom.errors import UsageError

EXAMPLES = """\
examples:
  mudroom redo              the last apply that was undone
  mudroom redo u12          that one
  mudroom redo u12 src a.c  only these; the rest is in its fork
  mudroom redo u12 -p       choose hunk by hunk; the rest is in its fork

A file that changed since stays as it is and is reported (exit code 3). A fork that is gone is made again for the
rest: mudroom diff shows it."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="accepted as in other commands: it never asks")
    parser.add_argument("--patch", "-p", action="store_true", help="choose hunk by hunk")
    parser.add_argument("apply", nargs="?", metavar="ID", help="u1, u2 …; mudroom log shows them")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only paths at and below these, or matching them")


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.patch or args.paths:
        return _redo_part(args, context)
    with open_session(context, needs_policy=False) as session, exclusive(session, context, "mudroom redo"):
        applied = session.changes.redo(args.apply)
    return print_turned(applied, "redo", context)


def _redo_part(args: argparse.Namespace, context: Context) -> int:
    """Apply a part of an undone apply from its fork."""
    from mudroom.cli.change import apply

    if args.patch and (context.as_json or not context.terminal.interactive):
        raise UsageError("there is no terminal to ask on", "-p asks about each hunk; PATH chooses without asking")
    landed = None
    with open_session(context) as session, exclusive(session, context, "mudroom redo"):
        name, is_new = session.changes.give_again(args.apply)
        print_remarks(session, context)
        try:
            landed = apply.apply_chosen(session, name, args.paths, context, patch=args.patch)
        finally:
            if landed is None and is_new:
                session.forks.discard(name)
    if landed is None:
        return 0
    if context.as_json:
        context.terminal.json({"schema": "mudroom.applied/1", "fork": name} | apply.landed_to_json(landed))
    else:
        apply.print_landed(landed, name, context)
    return apply.exit_code(landed)
