"""``mudroom`` alone, and ``mudroom status``: the project's state, and the commands for what waits in it.

As text it only reads: a project without a vault does not get a vault.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from mudroom.cli.fork.ls import describe, listed_forks
from mudroom.cli.listing import ProjectListing, open_listing
from mudroom.cli.project_place import project_of
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold_beside
from mudroom.core.confinement.limit import show_size
from mudroom.core.registry import part_or_none
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.config import places
from mudroom.stage import disk
from mudroom.stage.views.preflight import check_project
from mudroom.vault.apply.plan_state import list_applies
from mudroom.vault.caches.pool import shared_caches
from mudroom.vault.store.store import vault_path

EXAMPLES = """\
examples:
  mudroom                the same
  mudroom --json"""

MOST_FORKS = 5
"""Most forks that are listed; the newest."""
_ABOUT = 9
"""Columns before a line's text."""
_COLUMN = 34
"""Minimum columns for a command and the gap after it. Its description follows."""

ALWAYS = (
    ("mudroom doctor", "what this machine can protect"),
    ("mudroom --help", "the usual verbs"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    del parser


def execute(args: argparse.Namespace, context: Context) -> int:
    """Print the state. As text, return 0 even where the current directory can be no project."""
    del args
    if context.as_json:
        with open_listing(context) as listing:
            report = _as_json(listing, certified(context))
        context.terminal.json(report)
        return 0
    place = places(context.environ)
    project, state = disk.real_path(project_of(context)), disk.real_path(place.state)
    try:
        check_project(project, disk.real_path(place.home), state)
    except UsageError as error:
        if context.project is not None:
            raise
        _print(context, [f"{error.message}: mudroom works in a project"], (("cd PROJECT", "then: mudroom"), *ALWAYS))
        return 0
    if not os.path.lexists(vault_path(state, project)):
        from mudroom.cli.first_command import first_commands

        lines = [show(project), "mudroom has not been used here; nothing lands until you apply it"]
        _print(context, lines, (*first_commands(project, context.environ), *ALWAYS))
        return 0
    with open_listing(context) as listing:
        lines, commands = _state(listing, context)
    _print(context, lines, (*commands, *ALWAYS[1:]))
    return 0


def _as_json(listing: ProjectListing, sandbox: list[str]) -> dict[str, object]:
    vault = listing.vault
    report: dict[str, object] = {"schema": "mudroom.status/1", "project": os.fsdecode(vault.project)}
    report |= {"vault": os.fsdecode(vault.path), "forks": listed_forks(listing), "applies": list_applies(vault)}
    report["caches"] = {"bytes": _cached(listing), "limit": listing.settings.cache_limit}
    return report | ({"certified": sandbox} if sandbox else {})


def _cached(listing: ProjectListing) -> int:
    return sum(cache.size for cache in shared_caches(listing.vault.cache))


def _state(listing: ProjectListing, context: Context) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the lines, and the next commands, most urgent first."""
    vault, columns = listing.vault, context.terminal.columns(1)
    lines = [f"project  {show(vault.project)}", f"vault    {show(vault.path)}"]
    commands: list[tuple[str, str]] = []

    def tell(label: str, text: str) -> None:
        lines.append(fold_beside(f"{label:<{_ABOUT}}", text, columns))

    has_queue = os.path.lexists(vault.path + b"/approvals")  # this saves importing the queue
    questions = sum(row.state == "waiting" for row in vault.approvals.rows()) if has_queue else 0
    if questions:
        wait = "waits" if questions == 1 else "wait"
        tell("asked", f"{counted(questions, 'question')} of agents {wait} for your answer")
        commands.append(("mudroom approve", "shows and answers them"))
    applies = list_applies(vault)
    unfinished = [row["apply"] for row in applies if row["state"] in ("deferred", "interrupted")]
    for name in unfinished:
        tell("apply", f"{name} was cut off; the next mudroom run, apply or undo settles it")
    if unfinished:
        commands.append(("mudroom recover", "finishes or takes back what was cut off"))
    forks = listed_forks(listing)
    queue = part_or_none("decisions", "queue") if questions or forks else None
    waiting = queue.queue_lines(vault, columns - _ABOUT) if queue is not None else None
    if waiting is not None:
        lines += [f"{'' if number else 'waits':<{_ABOUT}}{line}" for number, line in enumerate(waiting.lines)]
    if forks:
        rest = [row for row in forks if waiting is None or row["fork"] not in waiting.forks]
        tell("forks", f"{counted(len(forks), 'fork')}, not applied{':' if rest else ' (mudroom ls)'}")
        margin = " " * _ABOUT
        lines += [margin + describe(row, columns - _ABOUT).replace("\n", "\n" + margin) for row in rest[-MOST_FORKS:]]
        if len(rest) > MOST_FORKS:
            tell("", f"and {counted(len(rest) - MOST_FORKS, 'older fork')} (mudroom ls)")
        whole = [row for row in forks if not row["problem"]] or forks
        commands += _fork_commands(whole[-1]["fork"])
    undoable = [row["apply"] for row in applies if row["state"] == "applied"]
    if undoable:
        tell("undo", undoable[-1] + (f", then {len(undoable) - 1} more" if len(undoable) > 1 else ""))
        commands.append(("mudroom undo", "takes the last apply back"))
    if not commands:
        lines.append("nothing waits for you here")
        commands.append(("mudroom run -- COMMAND", "shows what it would change; apply or not"))
    if cached := _cached(listing):
        limit = show_size(listing.settings.cache_limit)
        tell("caches", f"{show_size(cached)} (at most {limit} for you, and for each agent)")
    for line in certified(context):
        tell("sandbox", line)
    return lines, commands


def _fork_commands(name: str) -> list[tuple[str, str]]:
    from mudroom.core.registry import is_installed

    look = (f"mudroom diff {name}", "shows its changes")
    # importlib.util.find_spec, without importing it
    if is_installed("tui") and any(finder.find_spec("textual", None) for finder in sys.meta_path):
        look = (f"mudroom review {name}", "look, choose, decide")
    apply = (f"mudroom apply {name}", "bring it into the project")
    return [look, apply, (f"mudroom discard {name}", "throw it away")]


def _print(context: Context, lines: Sequence[str], commands: Sequence[tuple[str, str]]) -> None:
    column = max(_COLUMN, *(len(command) + 2 for command, _what in commands))
    is_narrow = column + 2 + max(len(what) for _command, what in commands) > context.terminal.columns(1)
    rows = []
    for command, what in commands:
        gap = "\n      " if is_narrow else " " * (column - len(command))
        rows.append(f"  {command}{gap}{context.terminal.style(what, 'dim', 1)}")
    context.terminal.out("\n".join([*lines, "", *rows]))


def certified(context: Context) -> list[str]:
    """Return a line for each protection that this machine's certification record opens or closes, or [] on platforms
    that need no record."""
    platform: str = sys.platform
    if platform == "linux":
        return []  # needs no record; this saves importing sandbox modules
    from mudroom.core.registry import NotInstalled, part
    from mudroom.sandbox.platform import BY_RECORD, system_name

    if platform not in BY_RECORD:
        return []
    try:
        lines: list[str] = part("certify", "cli", f"mudroom on {system_name(platform)}").certified(context.environ)
    except NotInstalled as error:
        lines = [f"none: {error.message}"]
    return lines
