"""``mudroom discard``: throw a fork away."""

from __future__ import annotations

import argparse

from mudroom.cli.project_session import end_mount, exclusive, open_session, print_remarks
from mudroom.cli.terminal.context import Context
from mudroom.core.text.plural import amount
from mudroom.errors import UsageError
from mudroom.session import upkeep

_TOLD = 100_000_000
"""Bytes of caches from which the last fork's end says that they are there."""
EXAMPLES = """\
examples:
  mudroom discard run-7f3a
  mudroom discard --end run-7f3a      with the commands in its background and its mount, for which it is refused else
  mudroom discard run-7f3a mail:2     only this one of its held effects"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("forks", nargs="+", metavar="FORK", help="or FORK EFFECT...: drop these held effects only")
    parser.add_argument("--yes", "-y", action="store_true", help="accepted as in other commands: it never asks")
    parser.add_argument("--end", action="store_true", help="end their background commands and mounts first")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context, needs_policy=False) as session:
        effects = [word for word in args.forks if ":" in word]  # which no fork's name has
        # all must exist before the first is discarded
        names = [session.vault.fork(word).name for word in args.forks if word not in effects]
        if effects and len(names) != 1:
            raise UsageError("held effects are dropped from one fork", f"mudroom discard FORK {effects[0]}")
        if args.end:
            for name in names:
                session.sandboxes.end(name)
                end_mount(session, name)
        with exclusive(session, context, "mudroom discard", *names):
            if effects:
                session.changes.drop_pushes(names[0], effects)
            for name in () if effects else names:
                session.forks.discard(name)
        print_remarks(session, context)
        caches = 0 if list(session.vault.forks()) else upkeep.kept_caches(session.vault)
    if caches >= _TOLD:
        context.terminal.note(
            f"{amount(caches)} of caches stay for the next commands: mudroom vault gc --caches removes them"
        )
    names = [] if effects else names
    if context.as_json:
        context.terminal.json({"schema": "mudroom.discarded/1", "forks": names})
    elif names:
        context.terminal.say("discarded: " + ", ".join(names))
    return 0
