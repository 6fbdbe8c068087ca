"""``mudroom rollback``: drop a fork's changes since a checkpoint."""

from __future__ import annotations

import argparse

from mudroom.cli.change.preview import PreviewNotes, preview
from mudroom.cli.project_session import end_mount, only_fork, open_session, print_remarks
from mudroom.cli.terminal.context import Context
from mudroom.core.result import changes_to_json
from mudroom.core.tree.change import Changeset, Remark
from mudroom.errors import MudroomError, SandboxAlive, SecretsUnknown, UsageError
from mudroom.session import Session
from mudroom.vault.forks.damage import reason_of

EXAMPLES = """\
examples:
  mudroom rollback green --fork try-1         show the changes to drop, ask, drop them
  mudroom rollback green --fork try-1 --yes   without asking
  mudroom rollback green --fork try-1 --no    only show it
  mudroom rollback --fork try-1               to the last checkpoint: before the last command that got one
  mudroom rollback rollback-1 --fork try-1    restore: every rollback leaves a checkpoint of the dropped state

The project is not touched: only the fork changes."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="CHECKPOINT", help="of the checkpoint; default: the last one")
    parser.add_argument("--fork", metavar="FORK", help="the fork; may be left out if there is only one")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.add_argument("--no", "-n", action="store_true", help="only show the changes to drop")
    parser.add_argument("--end", action="store_true", help="end the fork's background commands and mount first")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        fork = only_fork(session, args.fork, "--fork")
        name = args.name or session.forks.last_checkpoint(fork)
        if args.end and not args.no:
            session.sandboxes.end(fork)
            end_mount(session, fork)
        dropped = _dropped(session, fork, name)
        asks = (dropped or dropped.remarks) and not args.yes
        if asks and not args.no and (context.as_json or not context.terminal.interactive):
            raise UsageError("there is no terminal to ask on", "add --yes, or --no to only look")
        if asks and not context.as_json:
            title = f"rolling {fork} back to {name} would change in it"
            notes = PreviewNotes({}, session.changes.ignored(dropped.changes))
            for line in preview(title, dropped, context.terminal, notes):
                context.terminal.say(line)
        done = not args.no and (not asks or _confirm(context))
        before = session.forks.rollback(fork, name) if done else None
        print_remarks(session, context)
    undo = before.name if before is not None else None
    if context.as_json:
        report = {"schema": "mudroom.rollback/1", "fork": fork, "checkpoint": name, "done": done, "undo": undo}
        context.terminal.json(report | {"changes": changes_to_json(dropped)})
    elif done:
        back = f"; mudroom rollback {undo} --fork {fork} has it back" if undo else ""
        context.terminal.say(f"{fork} is as it was at {name}{back}")
    return 0


def _dropped(session: Session, fork: str, name: str) -> Changeset:
    """Return the changes that a rollback drops. Changes that cannot be collected are one remark."""
    try:
        with session.forks.compare(fork, f"{fork}@{name}") as comparison:
            return comparison.changeset
    except (SandboxAlive, SecretsUnknown, UsageError):
        raise
    except (MudroomError, OSError) as error:
        return Changeset(remarks=(Remark(b"", f"its changes cannot be shown: {reason_of(error)}"),))


def _confirm(context: Context) -> bool:
    return context.terminal.ask("[r]oll back  [c]ancel: ").strip().lower() in ("r", "rollback", "y", "yes")
