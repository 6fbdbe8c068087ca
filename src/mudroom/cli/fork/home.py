"""``mudroom`` alone: what waits for the user in this project, with the command for it, or how to begin.

It only reads: a project without a vault does not get a vault.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence

from mudroom.cli.first_command import harmless_command, install_command
from mudroom.cli.fork.ls import describe, listed_forks
from mudroom.cli.listing import ProjectListing, open_listing
from mudroom.cli.project_place import project_of
from mudroom.cli.terminal.context import Context
from mudroom.core.known_agents import known_agents
from mudroom.core.registry import is_installed
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.config import places, user_config
from mudroom.stage.views.preflight import check_project
from mudroom.vault.apply.plan_state import list_applies
from mudroom.vault.store.store import vault_path

MOST_FORKS = 5
"""Most forks that are listed; the newest."""
_COLUMN = 34
"""Minimum columns for a command and the gap after it. Its description follows."""

ALWAYS = (
    ("mudroom doctor", "what this machine can protect"),
    ("mudroom --help", "all verbs"),
)


def show_home(context: Context) -> int:
    """Print the overview. Return the exit code, 0 even where no project can be."""
    try:
        place = places(context.environ)
        project, state = os.path.realpath(project_of(context)), os.path.realpath(place.state)
        check_project(project, os.path.realpath(place.home), state)
    except UsageError as error:
        _print(context, [f"{error.message}: mudroom works in a project"], (("cd PROJECT", "then: mudroom"), *ALWAYS))
        return 0
    if not os.path.lexists(vault_path(state, project)):
        lines = [show(project), "mudroom has not been used here; nothing lands until you apply it"]
        _print(context, lines, (*_begin(project, context), *ALWAYS))
        return 0
    with open_listing(context) as listing:
        lines, commands = _waiting(listing, context)
    _print(context, [show(project), *lines], (*commands, *ALWAYS[1:]))
    return 0


def _waiting(listing: ProjectListing, context: Context) -> tuple[list[str], list[tuple[str, str]]]:
    """Return lines about pending questions, applies and forks, and the next commands, most urgent first."""
    lines: list[str] = []
    commands: list[tuple[str, str]] = []
    questions = [row for row in listing.vault.approvals.rows() if row.state == "waiting"]
    if questions:
        wait = "waits" if len(questions) == 1 else "wait"
        lines.append(f"{counted(len(questions), 'question')} of agents {wait} for your answer")
        commands.append(("mudroom approve", "shows and answers them"))
    applies = list_applies(listing.vault)
    unfinished = [row["apply"] for row in applies if row["state"] in ("deferred", "interrupted")]
    if unfinished:
        lines.append(f"cut off in the middle of an apply: {', '.join(unfinished)}")
        commands.append(("mudroom recover", "finishes or takes back what was cut off"))
    rows = listed_forks(listing)
    if rows:
        lines.append(f"{counted(len(rows), 'fork')}, not applied:")
        width = context.terminal.columns(1) - 2
        lines += ["  " + describe(row, width).replace("\n", "\n  ") for row in rows[-MOST_FORKS:]]
        if len(rows) > MOST_FORKS:
            lines.append(f"  and {counted(len(rows) - MOST_FORKS, 'older fork')} (mudroom ls)")
        name = next((row["fork"] for row in reversed(rows) if not row["problem"]), rows[-1]["fork"])
        look = (f"mudroom diff {name}", "shows its changes")
        if is_installed("tui") and importlib.util.find_spec("textual") is not None:
            look = (f"mudroom review {name}", "look, choose, decide")
        commands += [
            look,
            (f"mudroom apply {name}", "bring it into the project"),
            (f"mudroom discard {name}", "throw it away"),
        ]
    undoable = [row["apply"] for row in applies if row["state"] == "applied"]
    if undoable:
        lines.append(f"the last apply can be taken back: {undoable[-1]}")
        commands.append(("mudroom undo", "takes it back"))
    if not lines:
        return ["nothing waits for you here"], _begin(listing.vault.project, context)
    return lines, commands


def _begin(project: bytes, context: Context) -> list[tuple[str, str]]:
    """Return first commands that fit the project's files and this machine's programs."""
    search = os.fsdecode(context.environ.get(b"PATH", os.defpath.encode()))

    def is_there(program: str | bytes) -> bool:
        return shutil.which(os.fsdecode(program), path=search) is not None

    install = install_command(project, is_there)
    known = known_agents(user_config(context.environ))
    agents = known.installed(is_there)
    agent = [("mudroom agent ls", "agents that mudroom knows; none is installed")] if known.names() else []
    if agents:
        agent = [(f"mudroom {agents[0]}", "an agent in a fork of its own; mudroom agent ls: the others")]
    return [*([install] if install else []), harmless_command(project), *agent]


def _print(context: Context, lines: list[str], commands: Sequence[tuple[str, str]]) -> None:
    column = max(_COLUMN, *(len(command) + 2 for command, _what in commands))
    is_narrow = column + 2 + max(len(what) for _command, what in commands) > context.terminal.columns(1)
    rows = []
    for command, what in commands:
        gap = "\n      " if is_narrow else " " * (column - len(command))
        rows.append(f"  {command}{gap}{context.terminal.style(what, 'dim', 1)}")
    context.terminal.out("\n".join([*lines, "", *rows]))
