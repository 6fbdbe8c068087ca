"""The end of a try: its forks go, and its record if the user wants."""

from __future__ import annotations

from mudroom.core.attempt import TryRecord
from mudroom.errors import UsageError
from mudroom.session.session import Session
from mudroom.vault.attempts import record as records


def discard(session: Session, record: TryRecord, *, everything: bool) -> list[str]:
    """Discard the forks of a try but the best, and return their names. ``everything``: the best too, and the record.
    Forks that are gone are passed over. Raise UsageError if the try runs, or a fork is in use; the others are discarded
    all the same."""
    if records.is_running(session.vault.path, record.name):
        raise UsageError(f"the try {record.name} is running", "end it first: Ctrl-C where it was started")
    best = record.attempt(record.best)
    kept = {best.fork} if best is not None and not everything else set()
    gone, errors = [], list[UsageError]()
    for name in forks_of(session, record):
        if name in kept:
            continue
        try:
            session.forks.discard(name)
            gone.append(name)
        except UsageError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    if everything:
        records.remove(session.vault.path, record.name)
    return gone


def forks_of(session: Session, record: TryRecord) -> list[str]:
    """Return the forks of a try that are still there."""
    names = dict.fromkeys(attempt.fork for attempt in record.attempts if attempt.fork)
    return [name for name in names if session.vault.find(name) is not None]
