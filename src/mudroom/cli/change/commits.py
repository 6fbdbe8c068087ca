"""``mudroom apply --commits`` and ``--git``: what has come of the branches, tags and stashes of a fork."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mudroom.cli.terminal.context import Context
from mudroom.core.git.ref_plan import HEAD, STASH, RefOutcome
from mudroom.core.result import text
from mudroom.core.tree.path import show
from mudroom.errors import UsageError

if TYPE_CHECKING:
    from mudroom.session import Session
    from mudroom.vault.git.commits import Commit
    from mudroom.vault.git.transfer import TransferResult

_MOST_SHOWN = 20
_PREFIXES = (b"refs/heads/", b"refs/tags/", b"refs/")


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
    for line in ref_lines(outcome for outcome in commits.result.refs if outcome.ref != HEAD):
        print_line(f"  {line}")
    print_line(f"  look: git log {branch}   take: git merge {branch}")
    return 0


def print_transfers(repositories: Iterable[TransferResult], conflicts: Collection[bytes], context: Context) -> None:
    """Print what an apply has done to refs. ``conflicts``: paths of conflicts, which were printed already."""
    for result in repositories:
        place = "" if result.label == b".git" else f"{show(result.label)}: "
        refs = (outcome for outcome in result.refs if result.label + b"/" + outcome.ref not in conflicts)
        for line in ref_lines(refs):
            context.terminal.say(f"  {place}{line}")
        print_commits(result.commits, context)


def print_commits(commits: tuple[Commit, ...], context: Context) -> None:
    style = context.terminal.style
    for commit in commits[-_MOST_SHOWN:]:
        context.terminal.say(f"  {style(commit.id[:10], 'yellow')} {commit.subject}  {style(commit.author, 'dim')}")
    if len(commits) > _MOST_SHOWN:
        context.terminal.say(f"  and {len(commits) - _MOST_SHOWN:,} before them")


def ref_lines(outcomes: Iterable[RefOutcome]) -> Iterator[str]:
    """Yield a line for each ref of the fork."""
    for outcome in outcomes:
        name, target = _short(outcome.ref), _short(outcome.target)
        if outcome.ref == STASH:
            yield outcome.reason
        elif outcome.result == "there":
            yield f"{name}: the repository has it already"
        elif outcome.result == "moved":
            yield f"HEAD is on {target} now" if outcome.ref == HEAD else f"{name} moved"
        elif outcome.result == "beside":
            reason = f": {name} {outcome.reason}" if outcome.reason else ""
            yield f"{target} has the commits{reason}"
        else:
            yield f"{name} {outcome.reason}"


def _short(ref: bytes) -> str:
    return show(next((ref[len(prefix) :] for prefix in _PREFIXES if ref.startswith(prefix)), ref))


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
