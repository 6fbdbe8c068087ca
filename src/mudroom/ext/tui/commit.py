"""The commits of a fork as rows: the list, and one with its message and differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mudroom.core.text.escaping import escape_line
from mudroom.ext.tui.pane import Pieces

if TYPE_CHECKING:
    from mudroom.ext.commits.git.commit_diff import CommitDiff
    from mudroom.ext.commits.git.log import LoggedCommit

LINES = 5_000
"""Lines of a commit's differences that are shown."""
_TAB = "    "
_STYLES = {b"+": "added", b"-": "removed", b"@": "head"}


def commit_row(commit: LoggedCommit) -> Pieces:
    labels = f"  ({', '.join(commit.labels)})" if commit.labels else ""
    subject = commit.subject or "(no message)"
    return [(commit.id[:8] + "  ", "dim"), (subject, ""), (labels, "good"), (f"  {commit.author.name}", "dim")]


def commit_rows(diff: CommitDiff) -> list[Pieces]:
    commit = diff.commit
    labels = f" ({', '.join(commit.labels)})" if commit.labels else ""
    rows: list[Pieces] = [[(f"commit {commit.id}", "head"), (labels, "good")]]
    if len(commit.parents) > 1:
        rows.append([("Merge:  " + " ".join(parent[:10] for parent in commit.parents), "dim")])
    rows += [[("Author: " + commit.author.name, "dim")], [("Date:   " + commit.author.date, "dim")]]
    if commit.committer.name != commit.author.name:
        rows.append([("Commit: " + commit.committer.name, "dim")])
    message = ["    " + line.replace("\t", _TAB) for line in commit.message.split("\n")]
    rows += [[(line, "")] for line in ("", *message, "")]
    left = LINES
    for file in diff.files:
        for line in file.lines():
            rows.append(_line(line))
            left -= 1
            if left <= 0:
                return [
                    *rows,
                    [(f"only the first {LINES:,} lines are shown: mudroom diff --commits shows all", "warn")],
                ]
    if diff.more:
        rows.append([("and more files", "warn")])
    return rows


def _line(line: bytes) -> Pieces:
    style = _STYLES.get(line[:1], "")
    if line.startswith((b"diff ", b"+++ ", b"--- ")):
        style = "head"
    return [(escape_line(line.rstrip(b"\n")).text.replace("\t", _TAB), style)]
