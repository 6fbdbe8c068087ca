"""``mudroom undo``: take an apply back."""

from __future__ import annotations

from mudroom.cli.project_session import exclusive, open_session, print_remarks
from mudroom.cli.terminal.context import Context
from mudroom.core.merge.apply_summary import undo_words
from mudroom.core.merge.made_undo import STAYS
from mudroom.core.network.push import push_to_json, pushes_left
from mudroom.core.result import conflicts_to_json, text
from mudroom.core.tree.entry import HELD
from mudroom.core.tree.path import show_path
from mudroom.typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import argparse

    from mudroom.session import ApplyResult, Session

EXAMPLES = """\
examples:
  mudroom undo        the last apply that has not been undone
  mudroom undo u12    that one
  mudroom undo u12 --decide   decide about the files that it could not take back

The changes are in their fork again, if that is still there. Changes of a file since the apply are merged; where it
cannot be, the file stays as it is and is reported (exit code 3). mudroom redo applies it again, whole or in part."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="accepted as in other commands: it never asks")
    parser.add_argument("--decide", action="store_true", help="list what it could not take back, to decide it")
    parser.add_argument("apply", nargs="?", metavar="ID", help="u1, u2 …; mudroom log shows them")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context, needs_policy=False) as session, exclusive(session, context, "mudroom undo"):
        if args.decide and (refused := session.changes.refused_undo(args.apply)):
            return _decide(session, refused, context)
        applied = session.changes.undo(args.apply)
        if args.decide and session.changes.refused_undo(applied.name):
            print_turned(applied, "undo", context._replace(as_json=False))
            return _decide(session, applied.name, context)
    return print_turned(applied, "undo", context)


def _decide(session: Session, apply: str, context: Context) -> int:
    """Print the conflicts between the project and what an undo could not take back. Return the exit code."""
    from mudroom.cli.change.part_paths import named_parts
    from mudroom.cli.change.resolve import conflicts_in, print_state

    name = session.changes.refused(apply)
    print_remarks(session, context)
    code = print_state(conflicts_in(named_parts(session, name, ())), name, context)
    if code and not context.as_json:
        context.terminal.say(
            f"mudroom resolve {name} PATH --mine keeps the project's, --theirs takes the one from before {apply}; "
            f"mudroom review {name} shows both; then: mudroom apply {name}"
        )
    return code


_STATES = {"undo": "undone", "redo": "redone"}


def print_turned(applied: ApplyResult, action: Literal["undo", "redo"], context: Context) -> int:
    """Print the outcome of an undo or redo. Return the exit code."""
    state = _STATES[action]
    if context.as_json:
        report = {
            "schema": f"mudroom.{state}/1",
            "undo": applied.name,
            "state": "conflicts" if applied.conflicts else state,
            "written": applied.written,
            "removed": applied.removed,
            "again": [text(path) for path in applied.again],
            "fork": applied.holder or None,
            "refs": list(applied.refs),
            "conflicts": conflicts_to_json(applied.conflicts),
            "remarks": [{"path": text(remark.path), "text": remark.text} for remark in applied.remarks],
            "pushes": [push_to_json(row) for row in applied.pushes],
            "roots": [
                {"root": label, "undo": done.name, "written": done.written, "removed": done.removed,
                 "conflicts": conflicts_to_json(done.conflicts)}
                for label, done in applied.roots
            ],
        }  # fmt: skip
        context.terminal.json(report)
        return 3 if _has_conflicts(applied) else 0
    terminal = context.terminal
    summary = undo_words(
        action, applied.written, applied.removed, len(applied.again), applied.holder, len(applied.refs)
    )
    terminal.say(terminal.style(f"{state}: {applied.name}", "green") + f", {summary}")
    for conflict in applied.conflicts[:20]:
        terminal.say(terminal.conflict_line("stays", conflict))
    for remark in applied.remarks:
        terminal.say(f"  {show_path(remark.path)} {remark.text}")
    for label, done in applied.roots:
        terminal.say(f"  in {label}: {undo_words(action, done.written, done.removed, 0, '', 0)}")
        for conflict in done.conflicts[:20]:
            terminal.say(terminal.conflict_line("stays", conflict))
    if action == "undo" and any(map(is_decidable, (applied, *(done for _label, done in applied.roots)))):
        terminal.say(f"  mudroom undo {applied.name} --decide decides them")
    return 3 if _has_conflicts(applied) else 0


def _has_conflicts(applied: ApplyResult) -> bool:
    return bool(
        applied.conflicts or pushes_left(applied.pushes) or any(done.conflicts for _label, done in applied.roots)
    )


def is_decidable(undone: ApplyResult) -> bool:
    """Return whether an undo left files that ``--decide`` decides."""
    return any(conflict.reason not in (HELD, STAYS) for conflict in undone.conflicts)
