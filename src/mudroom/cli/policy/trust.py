"""``mudroom policy trust`` and ``distrust``: whether what the project's policy loosens holds on this machine."""

from __future__ import annotations

import argparse
import json
import os
import time

from mudroom.cli.project_session import open_session, project_of
from mudroom.cli.terminal.context import Context
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.combine import inside, read, roles_of
from mudroom.policy.config import places, user_config
from mudroom.policy.host_answers import loosening, missing, tightening
from mudroom.policy.trust import forget, freeing, holds, judge, loosens, mark, remember, seen


def execute(args: argparse.Namespace, context: Context) -> int:
    return _trust(args, context) if args.what == "trust" else _distrust(context)


def _trust(args: argparse.Namespace, context: Context) -> int:
    project, state = project_of(context), places(context.environ).state
    layers = read(project, user_config(context.environ))
    given, roles = inside(layers), roles_of(layers)
    free = freeing(given, roles)
    loose = [(mark(one), one.at) for one in given if loosens(one, free)]
    judged = judge(project, state, given, roles, trusts_all=False)
    known = seen(project, state)
    near = [one for one in given if one.local and holds(one) and not loosens(one, free)]  # counts more if it is seen
    there = os.path.isdir(project + b"/.mudroom")
    answers, denials = (loosening(project), tightening(project)) if there else ([], [])
    gone = missing(project, state) if answers else []
    loose += [*((mark(one), one.at) for one in near), *answers]
    fresh = {
        *map(mark, judged.left_out),
        *(text for text, _at in loose if text.startswith("local ") and text not in known),
        *(text for text, _at in answers if gone),
    }
    why = f"it no longer says {gone[0]}" if gone else judged.why or "it says more than was said here"
    agreed = not fresh or args.yes or _agrees(loose, fresh, why, context)
    if agreed and (loose or known):
        remember(project, state, given, roles, time.time_ns(), [text for text, _at in answers], denials)
        if fresh:
            note_change(context, trusted=sorted(fresh))
    if context.as_json:
        row = {
            "schema": "mudroom.policy.trust/1",
            "trusted": agreed,
            "loosens": [{"text": text, "source": at, "new": text in fresh} for text, at in loose],
        }
        context.terminal.out(json.dumps(row))
    elif not loose:
        context.terminal.say("the project's policy loosens nothing: there is nothing to trust")
    else:
        context.terminal.say("trusted on this machine" if agreed else "nothing of it is trusted that was not before")
    return 0 if agreed else 1


def _agrees(loose: list[tuple[str, str]], fresh: set[str], why: str, context: Context) -> bool:
    terminal = context.terminal
    if context.as_json:
        return False
    terminal.say(f"the project's policy loosens what holds else; {why}:")
    for text, at in loose:
        terminal.say(f"{'+' if text in fresh else ' '} {text}   {show(at.rpartition('/')[2].encode())}")
    if not terminal.interactive:
        raise UsageError("there is nobody here to ask", "add --yes if you trust who wrote it")
    return terminal.ask("Trust this? [y]es [n]o: ").strip().lower() in ("y", "yes")


def _distrust(context: Context) -> int:
    project = project_of(context)
    gone = forget(project, places(context.environ).state)
    if gone:
        note_change(context, trusted=[])
    if context.as_json:
        context.terminal.out(json.dumps({"schema": "mudroom.policy.trust/1", "trusted": False, "was": gone}))
    else:
        context.terminal.say("no longer trusted" if gone else "it was not trusted")
    return 0


def note_change(context: Context, **said_of_it: object) -> None:
    """What may be done in a project belongs to what has happened in it."""
    with open_session(context) as session:
        session.vault.journal.append("policy", "", said_of_it, time=time.time_ns())
