"""``mudroom diff FORK --commits``: the commits of a fork, as git log shows them, oldest first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from mudroom.cli.project_session import project_paths
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.pager import page
from mudroom.core.result import path_fields, text
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from mudroom.session import Session
    from mudroom.ext.commits.git.commit_diff import CommitDiff, CommitFile
    from mudroom.ext.commits.git.log import CommitIdentity, CommitLog


def show_commits(session: Session, name: str, words: list[str], args: argparse.Namespace, context: Context) -> int:
    """``words``: the commits to show; empty: all. A commit that is named is shown with its differences."""
    repository = repository_of(args.repository, session)
    log = session.changes.commits(name, repository)
    diffs = session.changes.commit_diffs(name, words, repository) if words or log.commits else iter(())
    patch = args.patch or bool(words)
    if context.as_json:
        _print_json(name, log, diffs, context, patch=patch)
        return 0
    if not log.commits:
        context.terminal.note(f"{name} has no commits that the project's repository does not have")
        return 0
    if not words and log.total > len(log.commits):
        context.terminal.note(f"only the last {len(log.commits):,} of {log.total:,} commits are shown")
    page(_lines(diffs, patch=patch), context)
    return 0


def repository_of(directory: str | None, session: Session) -> bytes:
    """Return the ``.git`` of a directory of the project, which may be written with or without its ``.git``."""
    if directory is None:
        return b".git"
    (path,) = project_paths([directory], session)
    return path if path == b".git" or path.endswith(b"/.git") else (path + b"/.git").lstrip(b"/")


def _lines(diffs: Iterable[CommitDiff], *, patch: bool) -> Iterator[bytes]:
    for number, diff in enumerate(diffs):
        commit = diff.commit
        labels = f" ({', '.join(commit.labels)})" if commit.labels else ""
        lines = [""] if number else []
        lines += [f"commit {commit.id}{labels}"]
        if len(commit.parents) > 1:
            lines.append("Merge:  " + " ".join(parent[:10] for parent in commit.parents))
        lines += [f"Author: {commit.author.name}", f"Date:   {commit.author.date}"]
        if commit.committer.name != commit.author.name:
            lines.append(f"Commit: {commit.committer.name}")
        lines += ["", *("    " + line if line else "" for line in commit.message.split("\n"))]
        lines += ["", " " + counts(diff)]
        for line in lines:
            yield line.encode("utf-8", "replace") + b"\n"
        if patch:
            yield b"\n"
            for file in diff.files:
                yield from file.lines()


def counts(diff: CommitDiff) -> str:
    """Return the size of a commit in words: ``2 files changed, +10 -3``."""
    files = f"{len(diff.files):,}{' and more' if diff.more else ''} file{'' if len(diff.files) == 1 else 's'} changed"
    added = f"+{diff.lines_added:,}" if diff.lines_added else ""
    removed = f"-{diff.lines_removed:,}" if diff.lines_removed else ""
    lines = " ".join(part for part in (added, removed) if part)
    return files + (f", {lines}" if lines else "")


def _print_json(name: str, log: CommitLog, diffs: Iterable[CommitDiff], context: Context, *, patch: bool) -> None:
    report = {
        "schema": "mudroom.commit-list/1",
        "fork": name,
        "repository": text(log.repository),
        "branch": log.branch or None,
        "total": log.total,
        "commits": [_commit(diff, patch=patch) for diff in diffs],
    }
    context.terminal.out(json.dumps(report))


def _commit(diff: CommitDiff, *, patch: bool) -> dict[str, Any]:
    commit = diff.commit
    row: dict[str, Any] = {
        "id": commit.id,
        "subject": commit.subject,
        "message": commit.message,
        "author": _identity(commit.author),
        "committer": _identity(commit.committer),
        "parents": list(commit.parents),
        "refs": list(commit.refs),
        "lines_added": diff.lines_added,
        "lines_removed": diff.lines_removed,
        "files": [_file(file) for file in diff.files],
        "more_files": diff.more,
    }
    if patch:
        row["patch"] = text(b"".join(line for file in diff.files for line in file.lines()))
    return row


def _identity(identity: CommitIdentity) -> dict[str, Any]:
    return {"name": identity.name, "date": identity.date, "time": identity.time}


def _file(file: CommitFile) -> dict[str, Any]:
    change = file.change
    source = path_fields(change.source, "from") if change.source else {}
    counted = {"lines_added": change.lines_added, "lines_removed": change.lines_removed}
    return {**path_fields(change.path), **source, "change": change.verb, "kind": file.kind, **counted}
