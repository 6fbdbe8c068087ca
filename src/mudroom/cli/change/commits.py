"""``mudroom apply --commits``: the commits of a fork as a branch of the real repository."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from mudroom.cli.terminal.context import Context
from mudroom.errors import UsageError

if TYPE_CHECKING:
    from mudroom.session import Session

_MOST_SHOWN = 20


def bring_commits(session: Session, name: str, args: argparse.Namespace, context: Context) -> int:
    if args.paths or args.patch or args.git or args.bak or args.markers:
        raise UsageError("--commits brings commits, and no files", "apply the files without it")
    result = session.changes.bring_commits(name, branch=args.branch)
    branch = result.branch.removeprefix("refs/heads/")
    if context.as_json:
        report = {
            "schema": "mudroom.commits/1",
            "fork": name,
            "branch": result.branch,
            "head": result.head,
            "before": result.before or None,
            "commits": [commit._asdict() for commit in result.commits],
            "objects": result.objects,
        }
        context.terminal.out(json.dumps(report))
        return 0
    print_line, style = context.terminal.say, context.terminal.style
    count = len(result.commits)
    print_line(
        style(f"{branch}: ", "green") + f"{count:,} commit{'' if count == 1 else 's'}, {result.objects:,} objects"
    )
    for commit in result.commits[-_MOST_SHOWN:]:
        print_line(f"  {style(commit.id[:10], 'yellow')} {commit.subject}  {style(commit.author, 'dim')}")
    if count > _MOST_SHOWN:
        print_line(f"  and {count - _MOST_SHOWN:,} before them")
    print_line(f"  look: git log {branch}   take: git merge {branch}   away: git branch -D {branch}")
    return 0
