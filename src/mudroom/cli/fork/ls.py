"""``mudroom ls``: a project's forks."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Sequence

from mudroom.cli.listing import ProjectListing, open_listing
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold
from mudroom.cli.terminal.terminal import cut
from mudroom.core.registry import part_or_none
from mudroom.core.result import text
from mudroom.core.text.plural import counted
from mudroom.core.tree.change import summarise
from mudroom.core.tree.quote import show_text
from mudroom.errors import READ_AGAIN, UPGRADE, ProjectClosed, UsageError
from mudroom.typing import Any
from mudroom.vault.forks.damage import UNREADABLE, damage_of
from mudroom.vault.forks.ties import ties_of
from mudroom.vault.store.fork import Fork, last_holder

_EMPTY: dict[str, Any] = {
    "fork": "", "command": [], "state": "", "level": None, "changed": 0, "lines_added": 0, "lines_removed": 0,
    "agent": None, "checkpoints": [], "also_in": [], "problem": None,
}  # fmt: skip
"""A row's fields. ``also_in``: other projects, or the home, that it changes. ``problem`` says why the fork cannot be
read, or why its last changes cannot be collected yet."""
_LEAST_COLUMNS = 20
"""Minimum columns for the command on its row. With less room it gets a line for itself."""

EXAMPLES = """\
examples:
  mudroom ls
  mudroom ls --json
  mudroom ls --matrix                               which forks conflict with the project, and with each other
  mudroom ls --matrix --verify                      and on which the policy's verify command fails"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--matrix", action="store_true", help="each fork with the project and with each other: conflicts"
    )
    parser.add_argument("--verify", action="store_true", help="with --matrix: run the policy's verify command on each")


def execute(args: argparse.Namespace, context: Context) -> int:
    verify = getattr(args, "verify", False)
    if verify and not args.matrix:
        raise UsageError("--verify is for --matrix", "mudroom ls --matrix --verify")
    if getattr(args, "matrix", False):
        from mudroom.core.registry import part

        shown: int = part("fork", "matrix", "mudroom ls --matrix").show(context, verify=verify)
        return shown
    with open_listing(context) as listing:
        rows = listed_forks(listing)
        queue = part_or_none("decisions", "queue") if rows and not context.as_json else None
        if queue is not None:
            told = queue.queue_lines(listing.vault, context.terminal.columns(1), queue.BESIDE).lines
            context.terminal.out("\n".join(told)) if told else None
    if context.as_json:
        context.terminal.json({"schema": "mudroom.forks/1", "forks": rows})
    elif rows:
        context.terminal.out("\n".join(describe(row, context.terminal.columns(1)) for row in rows))
    else:
        context.terminal.say("no forks")
    return 0


def listed_forks(listing: ProjectListing) -> list[dict[str, Any]]:
    """Return a row for each fork, oldest first. If a fork cannot be read, its row says why (``problem``)."""
    rows = []
    for fork in listing.vault.forks():
        try:
            rows.append(_row(listing, fork))
        except ProjectClosed as error:
            rows.append(_EMPTY | {"fork": fork.name, "state": "cut off", "problem": error.message})
        except UNREADABLE as error:
            problem = damage_of(fork, error)
            if problem is not None:
                rows.append(_EMPTY | {"fork": fork.name, "state": "damaged", "problem": problem})
    return rows


def _row(listing: ProjectListing, fork: Fork) -> dict[str, Any]:
    record = listing.record(fork.name)
    running, unsettled = _is_running(fork), fork.interrupted is not None
    summary = summarise(record.changeset.changes if record is not None else ())
    return _EMPTY | {
        "fork": fork.name,
        "command": [text(word) for word in record.command] if record is not None else [],
        "state": "running" if running else "cut off" if unsettled or (record and not record.command) else "ended",
        "level": record.level if record is not None else None,
        "changed": summary.files,
        "lines_added": summary.lines_added,
        "lines_removed": summary.lines_removed,
        "agent": fork.agent or None,
        "checkpoints": [point.name for point in fork.state.checkpoints],
        "also_in": [tied.label() for tied in ties_of(fork)],
    }


def _is_running(fork: Fork) -> bool:
    """Return whether a command runs in the fork. ``fork.interrupted`` is not enough: after a command was cut off it
    stays set while the policy, which names the secrets, cannot be read."""
    if fork.interrupted is None:
        return False
    with fork.lock_if_free(last_holder(fork), standing=True) as free:
        return not free


def describe(row: dict[str, Any], width: int) -> str:
    """Return a fork's row as text. ``width`` is the terminal's columns. A longer or multi-line command is cut. A cell
    that does not fit begins an indented new line. A problem is folded, not cut."""
    if row["problem"]:
        return _describe_problem(row, width)
    counts = counted(row["changed"], "file")
    if row["lines_added"] or row["lines_removed"]:  # not counted if there are very many files
        counts += f", +{row['lines_added']} -{row['lines_removed']}"
    counts += "".join(f", also in {label}" for label in row["also_in"])
    state = {"running": "  running", "cut off": "  its last command was cut off"}.get(row["state"], "")
    state += "  level 0" if row["level"] == 0 else ""
    state += f"  of {row['agent']}" if row["agent"] not in (None, row["fork"]) else ""
    points = f"  {counted(len(row['checkpoints']), 'checkpoint')}" if row["checkpoints"] else ""
    cells = [row["fork"], *f"{counts}{state}{points}".split("  ")]
    lines = [cells[0]]
    for cell in cells[1:]:
        if len(lines[-1]) + len(cell) + 2 > width:
            lines.append("")
        lines[-1] += f"  {cell}"
    room = width - len(lines[-1]) - 2
    command = _one_line(row["command"], room if room >= _LEAST_COLUMNS else max(width - 2, 1))
    if command and len(command) > room:
        lines.append("")
    return "\n".join([*lines[:-1], f"{lines[-1]}  {command}".rstrip()])


def _describe_problem(row: dict[str, Any], width: int) -> str:
    name, is_closed = row["fork"], row["state"] == "cut off"
    reason = f"{'not collected' if is_closed else 'damaged'}: {row['problem']}"
    hint = f"(then mudroom diff {name} shows the changes)" if is_closed else f"(mudroom discard {name} removes it)"
    if row["problem"].endswith(os.strerror(errno.EIO)):
        reason, hint = row["problem"], f"({READ_AGAIN})"
    if "this mudroom knows" in row["problem"]:
        reason, hint = row["problem"], f"({UPGRADE})"
    line = f"{name}  {reason}  {hint}"
    if len(line) <= width:
        return line

    return "\n".join([name, fold(f"  {reason}", width, ""), fold(f"  {hint}", width, "")])


def _one_line(command: Sequence[str], width: int) -> str:
    return cut(show_text(command), width)
