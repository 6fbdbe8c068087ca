"""``mudroom apply --commits``: the commits of a fork as a branch of the real repository."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from mudroom.cli.terminal.context import Context
from mudroom.errors import UsageError

if TYPE_CHECKING:
    from mudroom.session import Session

_MOST = 20


def bring(session: Session, name: str, args: argparse.Namespace, context: Context) -> int:
    if args.paths or args.patch or args.git or args.bak or args.markers:
        raise UsageError("--commits brings commits, and no files", "apply the files without it")
    found = session.changes.bring_commits(name, branch=args.branch)
    branch = found.branch.removeprefix("refs/heads/")
    if context.as_json:
        report = {
            "schema": "mudroom.commits/1",
            "fork": name,
            "branch": found.branch,
            "head": found.head,
            "before": found.before or None,
            "commits": [one._asdict() for one in found.commits],
            "objects": found.objects,
        }
        context.terminal.out(json.dumps(report))
        return 0
    say, style = context.terminal.say, context.terminal.style
    count = len(found.commits)
    say(style(f"{branch}: ", "green") + f"{count:,} commit{'' if count == 1 else 's'}, {found.objects:,} objects")
    for one in found.commits[-_MOST:]:
        say(f"  {style(one.id[:10], 'yellow')} {one.subject}  {style(one.author, 'dim')}")
    if count > _MOST:
        say(f"  and {count - _MOST:,} before them")
    say(f"  look: git log {branch}   take: git merge {branch}   away: git branch -D {branch}")
    return 0
