"""``mudroom redo``: apply again what was undone."""

from __future__ import annotations

from mudroom.cli.change.undo import print_turned
from mudroom.cli.project_session import exclusive, open_session
from mudroom.cli.terminal.context import Context
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
examples:
  mudroom redo        the last apply that was undone
  mudroom redo u12    that one

A file that changed since stays as it is and is reported (exit code 3)."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="accepted as in other commands: it never asks")
    parser.add_argument("apply", nargs="?", metavar="ID", help="u1, u2 …; mudroom log shows them")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context, needs_policy=False) as session, exclusive(session, context, "mudroom redo"):
        applied = session.changes.redo(args.apply)
    return print_turned(applied, "redo", context)
