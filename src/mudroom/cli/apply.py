"""``mudroom apply``: bring a fork's changes into the project."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from mudroom.cli.main import Context
from mudroom.cli.open import exclusive, only_fork, open_session, project_paths
from mudroom.cli.preview import left_out, preview
from mudroom.core.path import show
from mudroom.core.result import conflicts_to_json, text
from mudroom.errors import UsageError

if TYPE_CHECKING:
    from mudroom.session import Landed

EXAMPLES = """\
examples:
  mudroom apply run-7f3a                 show what would change, ask, apply
  mudroom apply run-7f3a --yes src docs  only these, without asking
  mudroom apply run-7f3a --git           the repository, too; it is left out else
  mudroom apply run-7f3a .git/config     hooks and settings are applied only when they are named

A file that changed in the project since the command ran is never overwritten: it is reported as a conflict (exit
code 3), the project keeps its version and the fork keeps its own."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.add_argument("--git", action="store_true", help="what changed in .git, too, as a whole")
    parser.add_argument("fork", nargs="?", help="the fork; may be left out if there is only one")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only what is at and below these")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        name = only_fork(session, args.fork)
        paths = project_paths(args.paths, session)
        with exclusive(session, context, f"mudroom apply {name}"):
            if not args.yes and not _confirmed(session.changes(name), context):
                return 0
            landed = session.apply(name, paths, git=args.git)
    if context.as_json:
        context.terminal.out(json.dumps({"schema": "mudroom.applied/1", "fork": name} | landed_to_json(landed)))
    else:
        tell_landed(landed, name, context)
    return 3 if landed.conflicts else 0


def _confirmed(changeset: Any, context: Context) -> bool:
    if context.as_json or not context.terminal.interactive:
        raise UsageError("there is no terminal to ask on", "add --yes")
    for line in preview("apply would change", changeset, context.terminal):
        context.terminal.say(line)
    return context.terminal.ask("[a]pply  [c]ancel: ").strip().lower() in ("a", "apply", "y", "yes")


def landed_to_json(landed: Landed) -> dict[str, Any]:
    applied = landed.applied
    return {
        "state": "conflicts" if applied.conflicts else "applied",
        "written": applied.written,
        "removed": applied.removed,
        "conflicts": conflicts_to_json(applied.conflicts),
        "withheld": [text(path) for path in landed.withheld],
        "remarks": [{"path": text(remark.path), "text": remark.text} for remark in applied.remarks],
        "undo": applied.name or None,
    }


def tell_landed(landed: Landed, fork: str, context: Context) -> None:
    applied, terminal = landed.applied, context.terminal
    parts = [f"{applied.written:,} written", f"{applied.removed:,} removed" if applied.removed else ""]
    back = f"   mudroom undo takes it back ({applied.name})" if applied.name else ""
    terminal.say(terminal.style("applied: ", "green") + ", ".join(part for part in parts if part) + back)
    for conflict in applied.conflicts[:20]:
        terminal.say(f"  {terminal.style('conflict', 'red')}  {show(conflict.path)}: {conflict.reason}")
    if len(applied.conflicts) > 20:
        terminal.say(f"  … and {len(applied.conflicts) - 20:,} more conflicts")
    for remark in applied.remarks:
        terminal.say(f"  {show(remark.path)} {remark.text}")
    for line in left_out(landed.withheld):
        terminal.say(f"  {line}")
    if landed.remaining:
        terminal.say(
            f"  the rest stays in {fork}: mudroom diff {fork}, mudroom apply {fork} PATH, mudroom discard {fork}"
        )
