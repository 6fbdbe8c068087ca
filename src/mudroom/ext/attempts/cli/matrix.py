"""``mudroom ls --matrix``: a triangle of forks, and below it the paths in conflict."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.result import text
from mudroom.core.text.json_text import to_json_text
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show_path
from mudroom.core.tree.quote import show_words
from mudroom.errors import UsageError
from mudroom.ext.attempts.session.matrix import MatrixCell, matrix
from mudroom.ext.attempts.session.verdict import verify_cells, verify_command, with_verdicts
from mudroom.sandbox.client.cancellation import Cancellation

MOST_PATHS = 4
"""Most paths of a pair that are shown."""


def show(context: Context, *, verify: bool = False) -> int:
    """Print the matrix of all forks. ``verify``: run the policy's verify command where no verdict is known. Return 3 if
    there is a conflict, 5 if the command fails somewhere, else 0."""
    with open_session(context) as session:
        names = [fork.name for fork in session.vault.forks()]
        cells, words = with_verdicts(session, matrix(session, names)), verify_command(session)
        if verify:
            if not words:
                raise UsageError(
                    "the policy has no verify command", "verify: {command: make test} in .mudroom/policy.yaml"
                )
            with closing(Cancellation()) as cancellation:
                cells = verify_cells(session, cells, cancellation, report=partial(_report, context))
    if context.as_json:
        rows = [
            {
                "fork": cell.one,
                "other": cell.other or None,
                "conflicts": None if cell.problem else [text(path) for path in cell.conflicts],
                "problem": cell.problem or None,
                "verified": cell.verified,
                "verified_at": cell.verified_at or None,
            }
            for cell in cells
        ]
        context.terminal.out(to_json_text({"schema": "mudroom.matrix/1", "forks": names, "pairs": rows}))
    elif names:
        context.terminal.out("\n".join(table(names, cells)))
        if times := [cell.verified_at for cell in cells if cell.verified_at]:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(times) / 1e9))
            context.terminal.note(f"passes, fails: {show_words(words)}, since {since}; edits since then may matter")
    else:
        context.terminal.say("no forks")
    failed = any(cell.verified is False for cell in cells)
    return 3 if any(cell.conflicts for cell in cells) else 5 if failed else 0


def _report(context: Context, pair: str, done: int, total: int) -> None:
    context.terminal.note(f"verifying {pair} ({done + 1} of {total})")


def table(names: Sequence[str], cells: Sequence[MatrixCell]) -> Iterator[str]:
    """Yield a row for each fork, with a column for the project and for each fork above, then a line for each pair that
    has more to say than "clean"."""
    words = {(cell.other, cell.one): _words(cell) for cell in cells}
    columns = ("", *names[:-1])
    rows = [["", "project", *names[:-1]]]
    rows += [
        [
            name,
            *(words.get((column, name), words.get((name, column), "")) if column != name else "" for column in columns),
        ]
        for name in names
    ]
    for place, row in enumerate(rows[1:], 1):
        del row[1 + place :]
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
    for cell in cells:
        pair = f"{cell.one} and {cell.other or 'the project'}"
        if cell.problem:
            yield f"{pair}: {cell.problem}"
        elif cell.conflicts:
            more = len(cell.conflicts) - MOST_PATHS
            shown = ", ".join(map(show_path, cell.conflicts[:MOST_PATHS]))
            yield f"{pair}: {shown}" + (f" and {more:,} more" if more > 0 else "")


def _words(cell: MatrixCell) -> str:
    if cell.problem or cell.conflicts:
        return "?" if cell.problem else counted(len(cell.conflicts), "conflict")
    return {None: "clean", True: "passes", False: "fails"}[cell.verified]
