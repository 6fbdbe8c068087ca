"""``mudroom apply --commit``: what it says, and where git's settings of the user are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mudroom.cli.change.preview import name_some
from mudroom.cli.terminal.context import Context
from mudroom.core.result import text

if TYPE_CHECKING:
    from mudroom.session.commit_apply import CommittedApply
    from mudroom.vault.git.user_settings import UserFiles


def user_git_files(environ: Mapping[bytes, bytes]) -> UserFiles:
    """Return git's settings files of the user: git-config(1), "Files"."""
    from mudroom.vault.git.user_settings import UserFiles

    home = environ.get(b"HOME", b"/")
    own = environ.get(b"XDG_CONFIG_HOME") or home + b"/.config"
    system = () if environ.get(b"GIT_CONFIG_NOSYSTEM") else (environ.get(b"GIT_CONFIG_SYSTEM") or b"/etc/gitconfig",)
    instead = environ.get(b"GIT_CONFIG_GLOBAL")
    personal = (instead,) if instead is not None else (own + b"/git/config", home + b"/.gitconfig")
    return UserFiles(home, tuple(path for path in (*system, *personal) if path))


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
