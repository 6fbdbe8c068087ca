"""``mudroom shell``: a shell in a fork, confined like every command."""

from __future__ import annotations

import argparse
import os
import sys

from mudroom.cli.command.exec import run_command
from mudroom.cli.command.run import add_confinement_options
from mudroom.cli.terminal.context import Context

EXAMPLES = """\
examples:
  mudroom shell --fork try-1      work in a fork as you would in the project; exit leaves all in the fork
  mudroom shell                   in a new fork
  mudroom exec --fork try-1 -- codex  an agent with its login; one in the shell has none"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fork", metavar="NAME", help="the fork; made if there is none. Default: a new one")
    parser.add_argument("--card", metavar="FILE", help="the agent's card (JSON): as the agent would be confined")
    add_confinement_options(parser)


def execute(args: argparse.Namespace, context: Context) -> int:
    if sys.platform == "win32":
        args.command = ["cmd", "/d"]
        return run_command(args, context, None)
    shell = context.environ.get(b"SHELL", b"")
    args.command = [os.fsdecode(shell if shell.startswith(b"/") and os.access(shell, os.X_OK) else b"/bin/sh")]
    return run_command(args, context, None)
