"""``mudroom fork``: make, start, list, rename and remove forks."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mudroom.cli.fork.ls import execute as list_forks
from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.registry import part
from mudroom.core.text.plural import counted
from mudroom.core.tree.change import summarise
from mudroom.errors import UsageError
from mudroom.typing import Any

EXAMPLES = """\
examples:
  mudroom fork new try-1                       a fork of the project as it is
  mudroom fork new try-2 --from try-1          with all that try-1 holds; neither sees the other's later work
  mudroom fork new try-3 --from try-1@green    with its state at the checkpoint green
  mudroom fork new long --snapshot             on a frozen copy: the project may move on meanwhile
  mudroom fork new b --from a --live           commands of a stop for the copy; then the policy's start commands in b
  mudroom fork start b                         the policy's start commands in it: mudroom ps
  mudroom fork ls
  mudroom fork rename try-2 keeper
  mudroom fork rm try-1 --yes                  remove it, with its changes"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_ACTIONS), help="what to do")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the fork; rename: the old name and the new one")
    parser.add_argument(
        "--from", dest="parent", metavar="FORK[@CHECKPOINT]", help="new: start with the state of this one"
    )
    parser.add_argument("--snapshot", action="store_true", help="new: on a frozen copy of the project")
    parser.add_argument(
        "--live",
        action="store_true",
        help="new: while commands run in the fork of --from, which stop for the copy; then the policy's start commands",
    )
    parser.add_argument("--yes", "-y", action="store_true", help="rm: even if it holds changes that were not applied")


def execute(args: argparse.Namespace, context: Context) -> int:
    run, names = _ACTIONS[args.action]
    if names is not None and len(args.names) != names:
        raise UsageError(
            f"fork {args.action} takes {counted(names, 'name') if names else 'no name'}, {len(args.names)} given",
            "mudroom fork --help",
        )
    run(args, context)
    return 0


def _new(args: argparse.Namespace, context: Context) -> None:
    parent, _at, point = (args.parent or "").partition("@")
    if parent and args.snapshot:
        raise UsageError(
            "--snapshot is not for --from: a fork of a fork has the base of that fork", "leave one of them out"
        )
    if args.live:
        _live().fork_new(args.names[0], parent, point, args.snapshot, context)
        return
    with open_session(context) as session:
        fork = session.forks.new(args.names[0], parent=parent or None, at=point or None, snapshot=args.snapshot)
        report = {"schema": "mudroom.fork/1", "fork": fork.name, "base": fork.state.base, "parent": fork.state.parent}
    if context.as_json:
        context.terminal.json(report)
    else:
        context.terminal.say(f"made {fork.name}: mudroom exec --fork {fork.name} -- COMMAND")


def _start(args: argparse.Namespace, context: Context) -> None:
    _live().fork_start(args.names[0], context)


def _live() -> Any:
    return part("live", "cli", "a live fork")


def _rename(args: argparse.Namespace, context: Context) -> None:
    with open_session(context) as session:
        session.forks.rename(*args.names)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.fork/1", "fork": args.names[1]})


def _remove(args: argparse.Namespace, context: Context) -> None:
    if not args.names:
        raise UsageError("no fork was named", "mudroom fork rm NAME")
    with open_session(context) as session:
        # all forks must exist before the first is removed
        forks = [session.vault.fork(name) for name in dict.fromkeys(args.names)]
        for fork in forks:
            if not args.yes and fork.state_or_none is not None:
                files = summarise(session.changes.of(fork.name).changes).files
                if files and not _confirm_removal(fork.name, files, context):
                    continue
            session.forks.discard(fork.name)
            if not context.as_json:
                context.terminal.say(f"removed {fork.name}")
    if context.as_json:
        context.terminal.json({"schema": "mudroom.removed/1", "forks": args.names})


def _confirm_removal(name: str, files: int, context: Context) -> bool:
    if context.as_json or not context.terminal.interactive:
        raise UsageError(f"{name} holds {files:,} changed files that were not applied", "add --yes to throw them away")
    answer = context.terminal.ask(
        f"{name} holds {files:,} changed files that were not applied. Throw away? [y]es [n]o: "
    )
    return answer.strip().lower() in ("y", "yes")


_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace, Context], object], int | None]] = {
    "new": (_new, 1),
    "ls": (list_forks, 0),
    "rename": (_rename, 2),
    "rm": (_remove, None),
    "start": (_start, 1),
}
"""Action to (function, number of names it takes); None: one or more."""
