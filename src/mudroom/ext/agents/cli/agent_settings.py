"""``mudroom agent settings``: a fork's changes to its agent's settings; land them, undo a landing."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Iterator

from mudroom.cli.project_session import exclusive, only_fork, open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.agents.core.home_change import HomeChange
from mudroom.ext.agents.home.agent_settings import LandedSetting, SettingsHome, agent_settings, land, take_back
from mudroom.ext.agents.settings_review import line_of, shown
from mudroom.session import Session
from mudroom.typing import Any

_MOST_LINES = 200
"""Most lines in one file's diff."""
CONFLICTS = 3


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fork", nargs="?", metavar="FORK", help="default: the only fork there is")
    parser.add_argument("--diff", action="store_true", help="show what the files would become")
    parser.add_argument("--land", action="append", default=[], metavar="PATH", help="bring this file to the home")
    parser.add_argument("--all", action="store_true", help="bring all of them")
    parser.add_argument("--undo", action="store_true", help="take the last landing back")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        if args.undo:
            with exclusive(session, context, "mudroom agent settings --undo"):
                return _told(take_back(session), context, "taken back")
        fork = only_fork(session, args.fork)
        if not args.land and not args.all:
            return _listed(session, fork, args, context)
        with exclusive(session, context, f"mudroom agent settings {fork}"):
            return _land(session, fork, args, context)


def _land(session: Session, fork: str, args: argparse.Namespace, context: Context) -> int:
    wanted = {_relative(word, session) for word in args.land}
    known = {change.path for _home, changes in agent_settings(session, fork) for change in changes}
    unknown = sorted(wanted - known)
    if unknown:
        raise UsageError(f"{fork} has not changed ~/{show(unknown[0])}", f"mudroom agent settings {fork}")
    return _told(land(session, fork, lambda change: args.all or change.path in wanted), context, "landed")


def _relative(word: str, session: Session) -> bytes:
    path, home = os.fsencode(word), session.machine.confinement.home
    if path.startswith(b"~/"):
        return path[2:]
    return path[len(home) + 1 :] if path.startswith(home + b"/") else path


def _told(results: list[LandedSetting], context: Context, verb: str) -> int:
    if context.as_json:
        rows = [{"path": show(item.path), "reason": item.reason or None} for item in results]
        context.terminal.json({"schema": "mudroom.settings/1", "results": rows})
    for item in results if not context.as_json else ():
        path = show(item.path) if item.path.startswith(b"/") else f"~/{show(item.path)}"
        context.terminal.say(f"  {path}  {verb}" if not item.reason else f"  {path}  not {verb}: {item.reason}")
    if verb == "landed" and any(not item.reason for item in results) and not context.as_json:
        context.terminal.say("mudroom agent settings --undo takes it back")
    return CONFLICTS if any(item.reason for item in results) else 0


def _listed(session: Session, fork: str, args: argparse.Namespace, context: Context) -> int:
    stores = agent_settings(session, fork)
    if context.as_json:
        rows = [row for home, changes in stores for row in rows_of(home, changes)]
        context.terminal.json({"schema": "mudroom.settings/1", "fork": fork, "changes": rows})
        return 0
    if not stores:
        context.terminal.say(f"{fork} has changed no settings of its agent")
        return 0
    for home, changes in stores:
        for change in changes:
            context.terminal.out(line_of(home, change))
            if args.diff:
                for line in _diff(home, change):
                    context.terminal.out(line)
    context.terminal.say(f"mudroom agent settings {fork} --land PATH, or --all, brings them to your home")
    return 0


def rows_of(home: SettingsHome, changes: list[HomeChange]) -> list[dict[str, Any]]:
    return [
        {
            "store": home.name,
            "path": f"~/{show(change.path)}",
            "change": change.change,
            "keys": list(change.keys),
            "conflict": change.conflict,
        }
        for change in changes
    ]


def _diff(home: SettingsHome, change: HomeChange) -> Iterator[str]:
    before, after = (
        (content or b"").decode("utf-8", "surrogateescape").splitlines()
        for content in (home.host_content(change.path), home.content(change.path))
    )
    lines = difflib.unified_diff(before, after, "host", "fork", lineterm="")
    for number, line in enumerate(lines):
        if number == _MOST_LINES:
            yield "    …"
            return
        yield "    " + shown(line)
