"""A fork's held effects on the terminal."""

from __future__ import annotations

from mudroom.core.network.push import PushRow
from mudroom.core.registry import part_or_none
from mudroom.errors import MudroomError
from mudroom.session import Session

_COUNTED = 50
"""Most commits of a ref whose lines are counted."""


def push_rows(session: Session, fork: str) -> list[PushRow]:
    """Return a fork's effects for its review: pushes with the lines of their commits where the fork's repository has
    them, publishes compared with the last version that the registry has."""
    outbox = session.forks.outbox_of(place := session.vault.fork(fork).path)
    rows = [] if outbox is None else [outbox.compared(place, row) for row in outbox.rows(place)]
    commits = part_or_none("commits", "session") if rows else None
    return rows if commits is None else [_with_lines(session, fork, row, commits.commit_diffs) for row in rows]


def _with_lines(session: Session, fork: str, row: PushRow, diffs: object) -> PushRow:
    refs = []
    for ref in row.refs:
        names = [name for name, _subject in ref.commits]
        if names and len(names) <= _COUNTED:
            try:
                seen = list(diffs(session, fork, names))  # type: ignore[operator]
                lines = sum(one.lines_added for one in seen), sum(one.lines_removed for one in seen)
                ref = ref._replace(lines=lines)
            except MudroomError:
                pass  # pushed from another repository than the project's: its commits are shown without lines
        refs.append(ref)
    return row._replace(refs=tuple(refs))
