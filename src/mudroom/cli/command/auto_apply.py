"""What ``user_commands`` of the policy says about a command that ``mudroom run`` has run: whether its changes are
applied without asking, and what is shown at once.

Rules of this file: only what went well is applied unasked. A command that was ended by a signal, ran out of time or
failed, a conflict, and a file that runs by itself later (unless ``auto_apply_flagged: true``) leave it to the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mudroom.cli.terminal.context import Context
from mudroom.core.command.policy import CommandRule, matches
from mudroom.core.command.verdict import CommandPart
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.core.tree.change import summarise
from mudroom.core.tree.path import show_path
from mudroom.session import Session

_FLAGS = ("executes-later", "protected")


class AutoApply(NamedTuple):
    applies: bool
    why: str
    """The setting that says so; or why not, although one does; empty if none does."""


def decide_auto_apply(result: Result, argv: Sequence[bytes], session: Session) -> AutoApply:
    """Hold the vault's lock since the changes were collected."""
    setting = _setting(argv, session.actor.settings)
    if not setting:
        return AutoApply(False, "")
    against = _against(result, session)
    return AutoApply(not against, against or setting)


def own_level(settings: Settings) -> Settings:
    """With the level that is for the user's own commands."""
    return settings if settings.user_level is None else settings._replace(level=settings.user_level)


def is_trusted(argv: Sequence[bytes], settings: Settings) -> bool:
    """By its first words, as they are given to the program: ``sh -c 'npm ci'`` is sh."""
    part = CommandPart(tuple(argv), True, (), "")
    return any(matches(CommandRule(pattern, "allow"), part) for pattern in settings.trusted)


def show_short(result: Result, session: Session, context: Context) -> None:
    """The diff, if it is short enough."""
    found = summarise(result.changeset.changes)
    if not 0 < found.lines_added + found.lines_removed <= session.actor.settings.show_diff_threshold:
        return
    from mudroom.cli.change.diff import coloured

    for line in session.changes.diff(result.fork):
        context.terminal.say(coloured(line, context, 2).decode("utf-8", "replace").rstrip("\n"))


def _setting(argv: Sequence[bytes], settings: Settings) -> str:
    if settings.auto_apply == "always":
        return "user_commands.auto_apply: always"
    if (settings.auto_apply == "trusted" or settings.auto_apply_trusted) and is_trusted(argv, settings):
        return "user_commands.trusted"
    return ""


def _against(result: Result, session: Session) -> str:
    if result.timed_out:
        return "the command ran out of time"
    if result.signal:
        return f"signal {result.signal} ended the command"
    if result.exit_code:
        return f"the command exited with {result.exit_code}"
    flagged = [one for one in result.changeset.changes if set(_FLAGS).intersection(one.flags)]
    if flagged and not session.actor.settings.auto_apply_flagged:
        more = f" and {len(flagged) - 1} more" if len(flagged) > 1 else ""
        return f"{show_path(flagged[0].path)}{more} runs by itself later"
    conflicts = list(session.changes.conflict_paths(result.fork))
    return f"{show_path(conflicts[0])} was changed in the project meanwhile" if conflicts else ""
