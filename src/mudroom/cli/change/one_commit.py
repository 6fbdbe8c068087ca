"""What ``mudroom apply --commit`` says."""

from __future__ import annotations

from mudroom.cli.change.preview import name_some
from mudroom.cli.terminal.context import Context
from mudroom.core.result import text
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mudroom.ext.commits.session import CommittedApply


def one_commit_to_json(done: CommittedApply) -> dict[str, Any]:
    commit = done.commit
    if commit is None:
        return {"commit": None, "commit_problem": done.problem}
    return {
        "commit": {
            "id": commit.id,
            "branch": commit.branch or None,
            "files": commit.files,
            "with_changes": [text(path) for path in commit.with_changes],
            "left_out": [text(path) for path in commit.left_out],
        }
    }


def print_one_commit(done: CommittedApply, context: Context) -> None:
    terminal, commit = context.terminal, done.commit
    if commit is None:
        terminal.say(f"{terminal.style('not committed: ', 'red')}{done.problem}")
        return
    place = f" on {commit.branch}" if commit.branch else " on a detached HEAD"
    files = f"{commit.files:,} file{'' if commit.files == 1 else 's'}"
    terminal.say(f"{terminal.style('committed: ', 'green')}{commit.id[:10]}{place}, {files}")
    if commit.with_changes:
        terminal.say(f"  with changes of yours that were not committed: {name_some(commit.with_changes)}")
    if commit.left_out:
        terminal.say(f"  not in the commit (ignored by git, or of another repository): {name_some(commit.left_out)}")
