"""``mudroom policy trust`` and ``distrust``: whether the project policy's loosening lines apply on this machine."""

from __future__ import annotations

import argparse
import time

from mudroom.cli.project_session import open_session, project_of
from mudroom.cli.terminal.context import Context
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.combine import project_items, read, roles_of
from mudroom.policy.config import MACHINE, places, user_config
from mudroom.policy.host_answers import loosening_items, missing_answers, tightening_items
from mudroom.policy.trust import forget, freeing_roles, holds, judge, loosens, mark, remember, seen


def execute(args: argparse.Namespace, context: Context) -> int:
    return _trust(args, context) if args.what == "trust" else _distrust(context)


def _trust(args: argparse.Namespace, context: Context) -> int:
    project, state = project_of(context), places(context.environ).state
    layers = read(project, user_config(context.environ), state, MACHINE)
    settings, roles = project_items(layers), roles_of(layers)
    freed = freeing_roles(settings, roles)
    loose = [(mark(setting), setting.at) for setting in settings if loosens(setting, freed)]
    judged = judge(project, state, settings, roles, trusts_all=False)
    seen_before = seen(project, state)
    local_settings = [
        setting for setting in settings if setting.local and holds(setting) and not loosens(setting, freed)
    ]  # local settings count more once they were seen
    answers, denials = loosening_items(project, state), tightening_items(project, state)
    vanished = missing_answers(project, state) if answers else []
    loose += [*((mark(setting), setting.at) for setting in local_settings), *answers]
    new_texts = {
        *map(mark, judged.left_out),
        *(text for text, _at in loose if text.startswith("local ") and text not in seen_before),
        *(text for text, _at in answers if vanished),
    }
    reason = f"it no longer says {vanished[0]}" if vanished else judged.why or "it says more than was said here"
    agreed = not new_texts or args.yes or _ask_user(loose, new_texts, reason, context)
    if agreed and (loose or seen_before):
        remember(project, state, settings, roles, time.time_ns(), [text for text, _at in answers], denials)
        if new_texts:
            note_change(context, trusted=sorted(new_texts))
    if context.as_json:
        row = {
            "schema": "mudroom.policy.trust/1",
            "trusted": agreed,
            "loosens": [{"text": text, "source": at, "new": text in new_texts} for text, at in loose],
        }
        context.terminal.json(row)
    elif not loose:
        context.terminal.say("the project's policy loosens nothing: there is nothing to trust")
    else:
        context.terminal.say("trusted on this machine" if agreed else "the new lines are not trusted")
    return 0 if agreed else 1


def _ask_user(loose: list[tuple[str, str]], new_texts: set[str], reason: str, context: Context) -> bool:
    terminal = context.terminal
    if context.as_json:
        return False
    terminal.say(f"the project's policy loosens what holds else; {reason}:")
    for text, at in loose:
        terminal.say(f"{'+' if text in new_texts else ' '} {text}   {show(at.rpartition('/')[2].encode())}")
    if not terminal.interactive:
        raise UsageError("there is nobody here to ask", "add --yes if you trust who wrote it")
    return terminal.ask("Trust this? [y]es [n]o: ").strip().lower() in ("y", "yes")


def _distrust(context: Context) -> int:
    project = project_of(context)
    was_trusted = forget(project, places(context.environ).state)
    if was_trusted:
        note_change(context, trusted=[])
    if context.as_json:
        context.terminal.json({"schema": "mudroom.policy.trust/1", "trusted": False, "was": was_trusted})
    else:
        context.terminal.say("no longer trusted" if was_trusted else "it was not trusted")
    return 0


def note_change(context: Context, **data: object) -> None:
    """Record a policy change in the project's journal."""
    with open_session(context) as session:
        session.vault.journal.append("policy", "", data, time=time.time_ns())
