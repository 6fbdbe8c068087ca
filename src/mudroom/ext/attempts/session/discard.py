"""Discarding a try's forks, and on request its record.

A fork whose changes differ from the judged ones holds somebody's later work: a command has run in it, or a new fork has
a discarded one's name. It stays, and is named.
"""

from __future__ import annotations

from mudroom.errors import ForkMoved, UsageError
from mudroom.ext.attempts import record as records
from mudroom.ext.attempts.session.judge import STEM
from mudroom.ext.attempts.value import AttemptRecord, TryRecord
from mudroom.session.session import Session
from mudroom.vault.forks.damage import UNREADABLE
from mudroom.vault.forks.result_digest import result_digest
from mudroom.vault.forks.review import fingerprint


def discard(session: Session, record: TryRecord, *, everything: bool) -> list[str]:
    """Discard a try's forks except the best, and return their names. ``everything``: also the best and the record.
    Forks that are gone are skipped. Raise UsageError if the try is running, or if a fork is in use or has changed
    since it was judged; the other forks are discarded nevertheless."""
    if records.is_running(session.vault.path, record.name):
        raise UsageError(f"the try {record.name} is running", "end it first: Ctrl-C where it was started")
    best = record.attempt(record.best)
    kept = {best.fork} if best is not None and not everything else set()
    gone, changed, errors = [], [], list[UsageError]()
    attempts = {attempt.fork: attempt for attempt in record.attempts}
    for name in (*_left_by_a_kill(session, record), *forks_of(session, record)):
        if name in kept:
            continue
        try:
            session.forks.discard(name, _reviewed(session, attempts.get(name)))
            gone.append(name)
        except ForkMoved:
            changed.append(name)
        except UsageError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    if changed:
        raise UsageError(
            f"these forks stay, for they have changed since they were judged: {', '.join(changed)}",
            f"mudroom discard {changed[0]}, or mudroom fork rename {changed[0]} NEW-NAME",
        )
    # A refused attempt's fork is gone; its question is filed under a fork name that no later try uses.
    names = {f"{record.name}-{attempt.number}" for attempt in record.attempts} - kept
    session.vault.approvals.withdraw(names, "its try is discarded")
    if everything:
        records.remove(session.vault.path, record.name)
    return gone


def _reviewed(session: Session, attempt: AttemptRecord | None) -> str | None:
    """Return the fingerprint that an attempt's fork must have to be discarded. None: any, or the fork is damaged."""
    if attempt is None or not attempt.reviewed:
        return None
    try:
        changeset = session.changes.of(attempt.fork)
        now = fingerprint(changeset)
        if now == attempt.reviewed:
            return now
        digest = result_digest(session.vault, session.vault.fork(attempt.fork), changeset.changes)
    except UNREADABLE as error:
        if isinstance(error, (ForkMoved, UsageError)):
            raise
        return None
    # a fork whose layer was copied has a new fingerprint but the same result
    return now if digest == attempt.fingerprint else attempt.reviewed


def _left_by_a_kill(session: Session, record: TryRecord) -> list[str]:
    """Return forks left behind when mudroom was killed: those of judges and unions."""
    recorded = {attempt.fork for attempt in record.attempts if attempt.fork}
    stems = (STEM, f"{record.name}-union")
    rows = [(fork.state_or_none, fork.name) for fork in session.vault.forks() if fork.name.startswith(stems)]
    left: list[str] = []
    for state, name in sorted(((state, name) for state, name in rows if state), key=lambda row: row[0].created):
        is_of_try = state.parent in recorded or state.parent in left
        if is_of_try and not state.named and name not in recorded:
            left.append(name)
    return left


def forks_of(session: Session, record: TryRecord) -> list[str]:
    """Return a try's forks that still exist."""
    names = dict.fromkeys(attempt.fork for attempt in record.attempts if attempt.fork)
    return [name for name in names if session.vault.find(name) is not None]
