"""``mudroom resolve``: decide conflicts between a fork and the project, for the next apply."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence

from mudroom.cli.change import resolution
from mudroom.cli.change.part_paths import NamedPart, named_parts
from mudroom.cli.project_session import only_fork, open_session
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold_beside
from mudroom.core.merge.read_resolution import read_choices
from mudroom.core.merge.resolution_words import choice_words, take_words
from mudroom.core.result import path_fields, text
from mudroom.errors import UsageError
from mudroom.session.project_session import with_shown
from mudroom.typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from mudroom.session import ForkConflict, Session

    PartConflict: TypeAlias = tuple[NamedPart, ForkConflict]

MOST_PLACES = 8
"""Most places whose decision is shown."""
EXAMPLES = """\
examples:
  mudroom resolve agent-1                           list the conflicts and their decisions
  mudroom resolve agent-1 src/app.py --mine         keep the project's version; --theirs: the fork's
  mudroom resolve agent-1 notes.md --both           both, the project's first, at each place that conflicts
  mudroom resolve agent-1 src/app.py --hunk 2 --theirs --hunk 1 --mine   one place at a time
  mudroom resolve agent-1 src/app.py --edit         in $VISUAL or $EDITOR, with conflict markers; if decided, the result
  mudroom resolve agent-1 src/app.py --tool mergiraf     by a merge driver: mergiraf, or a command with %O %A %B
  mudroom resolve agent-1 --all --rule              as a rule merges it: inserts, imports, keys; a lock file made again
  mudroom resolve agent-1 src/app.py --undecide     take it back

Nothing is applied: mudroom apply does that, and finds the decision as long as both versions are still the same."""


class _Hunk(argparse.Action):
    """``--hunk N``: the next --mine, --theirs or --both decides conflict N."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _option: Any = None) -> None:
        try:
            namespace.hunk = int(values)
        except ValueError:
            raise UsageError(
                f"--hunk takes the number of a conflict in the file, not {values!r}", "mudroom diff FORK --conflicts"
            ) from None


class _Choice(argparse.Action):
    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, _parser: Any, namespace: argparse.Namespace, _values: Any, _option: Any = None) -> None:
        hunk = getattr(namespace, "hunk", None)
        if hunk is None:
            namespace.whole = [*(namespace.whole or []), self.const]
        else:
            namespace.hunks = {**(namespace.hunks or {}), hunk: self.const}
            namespace.hunk = None


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fork", nargs="?", help="the fork; may be left out if there is only one")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files in conflict; with a directory all in it")
    parser.set_defaults(whole=None, hunks=None, hunk=None)
    for names, value, about in (
        (("--mine", "--ours"), "ours", "keep the project's version"),
        (("--theirs",), "theirs", "take the fork's version"),
        (("--both",), "both", "the project's lines, then the fork's; of binary files, NAME.theirs beside NAME"),
    ):
        parser.add_argument(*names, action=_Choice, const=value, dest="whole", help=about)
    parser.add_argument("--hunk", action=_Hunk, metavar="N", help="only conflict N of the file (from 1)")
    parser.add_argument("--edit", action="store_true", help="in an editor, with conflict markers")
    parser.add_argument("--tool", metavar="CMD", help="by a merge driver: mergiraf, or a command with %%O %%A %%B")
    parser.add_argument("--rule", action="store_true", help="as a rule merges it, where the list says that one does")
    parser.add_argument(
        "--show", action="append", default=[], metavar="PATH", help="a secret that the editor or the driver may read"
    )
    parser.add_argument("--all", action="store_true", help="every conflict of the fork")
    parser.add_argument("--undecide", action="store_true", help="take the decision back")


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.hunk is not None:
        raise UsageError(
            "--hunk needs --mine, --theirs or --both after it", "mudroom resolve FORK PATH --hunk 1 --mine"
        )
    with open_session(context, adjust=lambda settings: with_shown(settings, args.show)) as session:
        name = only_fork(session, args.fork)
        parts = named_parts(session, name, args.paths)
        conflicts = conflicts_in(parts)
        decide = _decision(args, context)
        if decide is not None:
            if not args.all and not (args.paths and any(part.paths or part.root for part in parts)):
                raise UsageError("which conflict?", f"name its PATH, or --all; mudroom resolve {name} lists them")
            if args.rule:
                conflicts = _with_rule(conflicts, name)
            if not conflicts:
                shown = [part.shown(path) for part in parts for path in part.paths]
                where = " at " + ", ".join(shown) if shown else ""
                raise UsageError("there is no conflict" + where, f"mudroom diff {name} --conflicts lists them")
            for part, conflict in conflicts:
                decide(part.session, part.name, conflict)
            conflicts = conflicts_in(parts)
    return print_state(conflicts, name, context)


def conflicts_in(parts: Sequence[NamedPart]) -> list[PartConflict]:
    return [(part, conflict) for part in parts for conflict in part.session.changes.conflicts(part.name, part.paths)]


def _with_rule(conflicts: list[PartConflict], name: str) -> list[PartConflict]:
    """Return the undecided conflicts that a rule merges. Raise UsageError if there is none."""
    settled = [row for row in conflicts if not row[1].decided and row[1].offered]
    settled.sort(key=lambda row: bool(row[1].remade_by))  # a lock file is made from files that rules may merge
    if conflicts and not settled:
        paths = ", ".join(part.shown(conflict.path) for part, conflict in conflicts[:3])
        raise UsageError(f"no rule merges {paths}", f"mudroom resolve {name} lists what decides it")
    return settled


def print_state(conflicts: list[PartConflict], name: str, context: Context) -> int:
    """Print a fork's conflicts with their decisions. Return the exit code."""
    undecided = sum(not conflict.decided for _part, conflict in conflicts)
    if context.as_json:
        rows = [conflict_to_json(*row) for row in conflicts]
        context.terminal.json({"schema": "mudroom.conflicts/1", "fork": name, "conflicts": rows})
    else:
        _print_conflicts(conflicts, undecided, name, context)
    return 3 if undecided else 0


def _print_conflicts(conflicts: list[PartConflict], undecided: int, name: str, context: Context) -> None:
    terminal = context.terminal
    for part, conflict in conflicts:
        state = terminal.style(*_state(conflict), 1)
        row = f"{part.shown(conflict.path)}: {conflict.how or conflict.reason}"
        if not conflict.decided and conflict.offered:
            row += f"; --rule {conflict.offered}"
        terminal.out(fold_beside(f"{state}  ", row, terminal.columns(1)))
    if not conflicts:
        terminal.say(f"{name} has no conflicts with the project: mudroom apply {name}")
    elif not undecided:
        terminal.say(f"all is decided: mudroom apply {name}")


def _state(conflict: ForkConflict) -> tuple[str, str]:
    """Return the state's words and colour."""
    if not conflict.decided:
        return "conflict", "red"
    if conflict.how:
        return "decided", "green"
    places = _places(conflict) if conflict.take == "content" else ""
    return "decided: " + places if places else take_words(conflict.take), "green"


def _places(conflict: ForkConflict) -> str:
    """Return the decision at each place in a text, or "" if the text was not made by choosing sides."""
    merged, content = conflict.merged, conflict.result
    choices = read_choices(merged, content) if merged is not None and content is not None else None
    if not choices:
        return ""
    more = f" and {len(choices) - MOST_PLACES} more" if len(choices) > MOST_PLACES else ""
    return ", ".join(map(choice_words, choices[:MOST_PLACES])) + more


def conflict_to_json(part: NamedPart, conflict: ForkConflict) -> dict[str, Any]:
    sides = {}
    for side, version in (("base", conflict.base), ("ours", conflict.ours), ("theirs", conflict.theirs)):
        entry = version.entry
        sides[side] = (
            None if entry is None else path_fields(version.path) | {"type": entry.kind, "mode": f"{entry.mode:04o}"}
        )
    return {
        **path_fields(conflict.path),
        "root": text(part.root) or None,
        "reason": conflict.reason,
        "decided": conflict.decided,
        "take": conflict.take or None,
        "places": conflict.places,
        "rule": conflict.by_rule.words if conflict.by_rule is not None else None,
        "command": conflict.remade_by or None,
        "how": conflict.how or None,
        **sides,
    }


def _decision(args: argparse.Namespace, context: Context) -> Callable[[Session, str, ForkConflict], None] | None:
    ways = [bool(args.whole), bool(args.hunks), args.edit, args.tool is not None, args.undecide, args.rule]
    if not any(ways):
        return None
    if sum(ways) > 1 or (args.whole and len(args.whole) > 1):
        raise UsageError(
            "one way of deciding at a time", "give one of --mine, --theirs, --both, --hunk, --edit, --tool, --rule"
        )
    if args.undecide:
        return resolution.undecide
    if args.rule:
        return functools.partial(resolution.decide_by_rule, context=context)
    if args.hunks:
        return functools.partial(resolution.decide_by_hunk, hunks=args.hunks)
    if args.edit:
        return functools.partial(resolution.decide_in_editor, context=context)
    if args.tool is not None:
        return functools.partial(resolution.decide_by_driver, tool=args.tool, context=context)
    return functools.partial(resolution.decide_whole, side=args.whole[0])
