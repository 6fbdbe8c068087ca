"""The policy section ``user_commands``: whether a ``mudroom run`` applies its changes without asking, and whether it
shows the diff at once.

Rules of this file: only a successful command's changes are applied without asking. The user is asked if the command was
ended by a signal, ran out of time or failed, if there is a conflict, or if a changed file runs by itself later, is a
link that leads out of the project or is not known to be inert (unless ``auto_apply_flagged: true``).
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.cli.terminal.context import Context
from mudroom.core.command.policy import CommandRule, matches
from mudroom.core.command.verdict import CommandPart
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.core.tree.change import Change, summarise
from mudroom.core.tree.landing_form import LEADS_OUT
from mudroom.core.tree.path import show_path
from mudroom.core.tree.runs_later import group_later
from mudroom.errors import ForkMoved
from mudroom.session import Session
from mudroom.typing import NamedTuple

_FLAGS = {
    "executes-later": "runs by itself later",
    "protected": "runs by itself later",
    LEADS_OUT: "is a link that leads out of the project",
}
"""Flags that make mudroom ask the user, with the reason."""


class AutoApply(NamedTuple):
    applies: bool
    why: str
    """If it applies, the setting that allows it. Otherwise the reason why it does not although a setting allows it; ""
    if no setting does."""


def decide_auto_apply(result: Result, argv: Sequence[bytes], session: Session) -> AutoApply:
    """Decide whether to apply the changes. The caller must have held the vault's lock since they were collected."""
    setting = _allowing_setting(argv, session.actor.settings)
    if not setting:
        return AutoApply(False, "")
    reason = "it changes another project, too" if result.roots else _reason_against(result, session)
    return AutoApply(not reason, reason or setting)


def is_trusted(argv: Sequence[bytes], settings: Settings) -> bool:
    """Return whether a rule trusts the command's first words. Inner commands do not count: ``sh -c 'npm ci'`` is sh."""
    part = CommandPart(tuple(argv), True, (), "")
    return any(matches(CommandRule(pattern, "allow"), part) for pattern in settings.trusted)


def show_short(result: Result, session: Session, context: Context) -> None:
    """Print the diff if it is short enough."""
    summary = summarise(result.changeset.changes)
    if not 0 < summary.lines_added + summary.lines_removed <= session.actor.settings.show_diff_threshold:
        return
    from mudroom.cli.terminal.pager import coloured

    try:
        for line in session.changes.diff(result.fork, reviewed=result.changeset.changes):
            context.terminal.say(coloured(line, context, 2).decode("utf-8", "replace").rstrip("\n"))
    except ForkMoved as error:
        context.terminal.say(str(error))


def _allowing_setting(argv: Sequence[bytes], settings: Settings) -> str:
    if settings.auto_apply == "always":
        return "user_commands.auto_apply: always"
    if (settings.auto_apply == "trusted" or settings.auto_apply_trusted) and is_trusted(argv, settings):
        return "user_commands.trusted"
    return ""


def _reason_against(result: Result, session: Session) -> str:
    if result.timed_out:
        return "the command ran out of time"
    if result.signal:
        return f"signal {result.signal} ended the command"
    if result.exit_code:
        return f"the command exited with {result.exit_code}"
    flagged = [change for change in result.changeset.changes if not _FLAGS.keys().isdisjoint(change.flags)]
    if flagged and not session.actor.settings.auto_apply_flagged:
        return _why_asked(flagged)
    unknown = [] if session.actor.settings.auto_apply_flagged else session.changes.not_inert(result.changeset.changes)
    if unknown:
        told = _and_more([change.path for change in unknown])
        return f"{told} may run or be obeyed: only text, data and source beside source do not"
    conflicts = list(session.changes.conflict_paths(result.fork))
    return f"{show_path(conflicts[0])} was changed in the project meanwhile" if conflicts else ""


def _why_asked(flagged: Sequence[Change]) -> str:
    """Return the reason for the first change, with the number of further ones."""
    reason = next(words for flag, words in _FLAGS.items() if flag in flagged[0].flags)
    groups = group_later(flagged)
    if LEADS_OUT in flagged[0].flags or not groups:
        return f"{_and_more([change.path for change in flagged])} {reason}"
    return f"{_and_more([path for group in groups for path in group.paths])} {reason} ({groups[0].when})"


def _and_more(paths: Sequence[bytes]) -> str:
    return show_path(paths[0]) + (f" and {len(paths) - 1:,} more" if len(paths) > 1 else "")
