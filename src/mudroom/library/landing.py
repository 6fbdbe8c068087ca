"""A fork's changes, and their way into the project. The arguments are explained in ``Room`` and ``ForkHandle``."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mudroom.library.argument import paths_of, required_name, words_of
from mudroom.library.life import Life
from mudroom.library.value import Applied, ChangeList, applied, change_list, landed
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.library.argument import CommandLine, Word


def changes(life: Life, fork: str) -> ChangeList:
    with life.call() as session:
        return change_list(session.changes.of(required_name(fork)).changes)


def diff(life: Life, fork: str, paths: Word | Sequence[Word]) -> str:
    chosen = paths_of(paths, life.project)
    with life.call() as session:
        lines = b"".join(session.changes.diff(required_name(fork), chosen))
    return lines.decode("utf-8", "replace")


def apply(
    life: Life,
    fork: str,
    paths: Word | Sequence[Word],
    verify: CommandLine | None,
    reviewed: str | None,
    *,
    git: bool,
) -> Applied:
    name, chosen = required_name(fork), paths_of(paths, life.project)
    words = None if verify is None else words_of(verify)
    with life.call() as session:
        session.sandboxes.wait_for_ended(name)
        with session.alone(holder(f"mudroom apply {name}"), forks=(name,)):
            made = session.changes if words is None else session.changes_verified_by(words)
            return landed(made.apply(name, chosen, reviewed=reviewed, git=git))


def undo(life: Life, name: str | None) -> Applied:
    with life.call() as session, session.alone(holder("mudroom undo")):
        return applied(session.changes.undo(name))


def redo(life: Life, name: str | None) -> Applied:
    with life.call() as session, session.alone(holder("mudroom redo")):
        return applied(session.changes.redo(name))


def holder(what: str) -> str:
    """Return this call's name, for processes that wait for it."""
    return f"`{what}` of a program (process {os.getpid()})"
