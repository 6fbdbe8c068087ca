"""``mudroom apply --commits`` and ``--git``: what has come of the branches, tags and stashes of a fork."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from mudroom.cli.terminal.context import Context
from mudroom.ext.commits.core.ref_plan import HEAD, RefOutcome
from mudroom.ext.commits.core.ref_words import outcome_rows
from mudroom.core.result import text
from mudroom.errors import UsageError
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from mudroom.session import Session
    from mudroom.ext.commits.git.commits import Commit
    from mudroom.ext.commits.git.transfer import TransferResult

_MOST_SHOWN = 20


def bring_commits(session: Session, name: str, args: argparse.Namespace, context: Context) -> int:
    if args.paths or args.patch or args.git or args.bak or args.markers:
        raise UsageError("--commits brings commits, and no files", f"mudroom apply {name} --git brings both")
    commits = session.changes.bring_commits(name, branch=args.branch)
    if context.as_json:
        report = {
            "schema": "mudroom.commits/1",
            "fork": name,
            "branch": commits.branch,
            "head": commits.head,
            "before": commits.before or None,
            "commits": [commit._asdict() for commit in commits.commits],
            "objects": commits.objects,
            "refs": refs_to_json(commits.result.refs),
            "undo": commits.name or None,
        }
        context.terminal.out(json.dumps(report))
        return 0
    print_line, style = context.terminal.say, context.terminal.style
    branch = commits.branch.removeprefix("refs/heads/")
    count = len(commits.commits)
    undo = f"   mudroom undo takes it back ({commits.name})" if commits.name else ""
    words = f"{count:,} commit{'' if count == 1 else 's'}, {commits.objects:,} objects{undo}"
    if not commits.name:
        words = "the repository has all commits of the fork already"
    print_line(style(f"{branch}: ", "green") + words)
    print_commits(commits.commits, context)
    for subject, words in outcome_rows(b".git", (outcome for outcome in commits.result.refs if outcome.ref != HEAD)):
        print_line(f"  {subject} {words}")
    print_line(f"  look: git log {branch}   take: git merge {branch}")
    return 0


def print_transfers(repositories: Iterable[TransferResult], conflicts: Collection[bytes], context: Context) -> None:
    """Print what an apply has done to refs. ``conflicts``: paths of conflicts, which were printed already."""
    for result in repositories:
        for subject, words in outcome_rows(result.label, result.refs, conflicts):
            context.terminal.say(f"  {subject} {words}")
        print_commits(result.commits, context)


def print_commits(commits: tuple[Commit, ...], context: Context) -> None:
    style = context.terminal.style
    for commit in commits[-_MOST_SHOWN:]:
        context.terminal.say(f"  {style(commit.id[:10], 'yellow')} {commit.subject}  {style(commit.author, 'dim')}")
    if len(commits) > _MOST_SHOWN:
        context.terminal.say(f"  and {len(commits) - _MOST_SHOWN:,} before them")


def refs_to_json(outcomes: Iterable[RefOutcome]) -> list[dict[str, Any]]:
    return [
        {
            "ref": text(outcome.ref),
            "result": outcome.result,
            "target": text(outcome.target) or None,
            "reason": outcome.reason or None,
        }
        for outcome in outcomes
    ]


def transfers_to_json(repositories: Iterable[TransferResult]) -> list[dict[str, Any]]:
    return [
        {
            "repository": text(result.label),
            "refs": refs_to_json(result.refs),
            "commits": [commit._asdict() for commit in result.commits],
            "objects": result.objects,
        }
        for result in repositories
    ]
