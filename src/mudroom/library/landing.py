"""A fork's changes, and their way into the project. The arguments are explained in ``Room`` and ``ForkHandle``."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mudroom.library.argument import effects_of, paths_of, required_name, words_of
from mudroom.library.life import Life
from mudroom.library.value import Applied, ChangeList, applied, change_list, landed
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.core.network.push import PushRow
    from mudroom.library.argument import CommandLine, Effects, Word


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
    effects: Effects,
    *,
    git: bool,
) -> Applied:
    name, chosen, sent = required_name(fork), paths_of(paths, life.project), effects_of(effects)
    with life.call() as session:
        session.sandboxes.wait_for_ended(name)
        with session.alone(holder(f"mudroom apply {name}"), forks=(name,)):
            made = session.changes if verify is None else session.changes_verified_by(words_of(verify))
            alone = bool(sent) and not paths  # and no file
            return landed(made.apply(name, chosen, reviewed=reviewed, git=git, pushes=sent, exact=alone))


def effects(life: Life, fork: str) -> list[PushRow]:
    with life.call() as session:
        return session.held_effects(required_name(fork))


def discard(life: Life, fork: str, effects: Effects | None) -> None:
    with life.call() as session:
        session.sandboxes.wait_for_ended(required_name(fork))
        if effects is None:
            session.forks.discard(fork)
        else:
            session.changes.drop_pushes(fork, effects_of(effects))


def undo(life: Life, name: str | None) -> Applied:
    with life.call() as session, session.alone(holder("mudroom undo")):
        return applied(session.changes.undo(name))


def redo(life: Life, name: str | None) -> Applied:
    with life.call() as session, session.alone(holder("mudroom redo")):
        return applied(session.changes.redo(name))


def holder(what: str) -> str:
    """Return this call's name, for processes that wait for it."""
    return f"`{what}` of a program (process {os.getpid()})"
