"""``mudroom diff FORK --why [PATH[:LINE]]``: what was observed at each hunk; and the same as JSON or Agent Trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from mudroom.cli.project_session import project_paths
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.pager import page
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show, show_path
from mudroom.errors import UsageError
from mudroom.ext.reasons.session import ObservedFile, Reasons, changed_files
from mudroom.ext.reasons.telling import observed_lines, observed_to_json, where
from mudroom.ext.reasons.trace import MOST_FILES, record_of
from mudroom.session import Session


def show_reasons(session: Session, fork: str, words: Sequence[str], context: Context, *, trace: bool) -> None:
    """Print what was observed at the hunks of a fork at or below these paths (none: all). Raise UsageError if a path
    has no change."""
    reasons, left_out = Reasons(session, fork), 0
    seen: list[ObservedFile] = []
    for word in words or [""]:
        files, line = _chosen(session, fork, word)
        if not files and word:
            raise UsageError(f"no change at {show(word.encode())}", f"mudroom diff {fork} --stat lists the files")
        left_out += max(0, len(files) - MOST_FILES)
        seen += [reasons.of_line(path, line) if line else reasons.of_file(path) for path in files[:MOST_FILES]]
    if trace:
        context.terminal.out(json.dumps(record_of(reasons, seen, session.forks.clock()), indent=2))
    elif context.as_json:
        hunks = [observed_to_json(reasons, file, row) for file in seen for row in file.rows]
        report = {"schema": "mudroom.reasons/1", "fork": fork, "hunks": hunks}
        context.terminal.json(report | {"skipped": reasons.skipped, "left_out": left_out})
        return
    else:
        page(_lines(reasons, seen), context)
    if reasons.skipped:
        context.terminal.note(f"{counted(reasons.skipped, 'part')} of the conversations could not be read")
    if left_out:
        context.terminal.note(f"{counted(left_out, 'file')} left out: mudroom diff {fork} --why PATH")


def _lines(reasons: Reasons, seen: Sequence[ObservedFile]) -> Iterator[bytes]:
    for file in seen:
        for row in file.rows:
            yield f"{show_path(file.path)} {where(row)}\n".encode()
            for line in observed_lines(reasons, file, row):
                yield f"    {line}\n".encode()


def _chosen(session: Session, fork: str, word: str) -> tuple[list[bytes], int]:
    """Return the changed files that a word names, and a line; 0: none. A file whose name ends like a line comes
    first."""
    files = changed_files(session, fork, project_paths([word], session) if word else [])
    path, _colon, line = word.rpartition(":")
    if not files and path and line.isdecimal() and len(line) < 8 and int(line):
        return changed_files(session, fork, project_paths([path], session)), int(line)
    return files, 0
