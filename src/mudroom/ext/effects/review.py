"""A fork's held effects as its review shows them: in a terminal, the page, ``diff --json`` and the library."""

from __future__ import annotations

from mudroom.core.network.push import PushRow
from mudroom.core.registry import part_or_none
from mudroom.errors import MudroomError
from mudroom.session import Session

_COUNTED = 50
"""Most commits of a ref whose lines are counted."""


def held_effects(session: Session, name: str) -> list[PushRow]:
    """Return a fork's effects, compared with what their servers have now; pushes with the lines of their commits where
    the fork's repository has them."""
    fork = session.vault.fork(name)
    outbox = session.forks.outbox_of(fork.path)
    rows = [] if outbox is None else outbox.compared(fork, outbox.rows(fork.path))
    commits = part_or_none("commits", "session") if rows else None
    return rows if commits is None else [_with_lines(session, name, row, commits.commit_diffs) for row in rows]


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
