"""Enforce retention of a vault's data, after applies and beside commands."""

from __future__ import annotations

from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.session.forks import Forks
from mudroom.vault.moment import note

_JOURNAL_EVERY = 64
"""Number of a session's commands between two checks of the journal's size."""


def keep_journal(forks: Forks, settings: Settings) -> list[str]:
    """Note the clock, and archive older events if the journal is large, at every ``_JOURNAL_EVERY``-th command. Return
    notes."""
    if next(forks.commands) % _JOURNAL_EVERY:
        return []
    try:
        clock = note(forks.vault.path, forks.clock())
        forks.vault.journal.keep_within(settings.keep_journal, settings.keep_journal_age, clock)
    except (MudroomError, OSError) as error:
        return [f"older events of the journal could not be archived: {error}"]
    return []


def tidy(forks: Forks, *, applied: bool = False) -> None:
    """Remove data beyond retention (``keep:`` in the policy), if a run is due. Hold the vault's lock.

    A failed removal is no error, only a note in the next result.
    """
    from mudroom.vault.retention import schedule as by_itself

    swept = by_itself.tidy(forks.vault, forks.settings, forks.clock(), applied=applied)
    if swept is None:
        return
    forks.remarks.extend(swept.remarks)
    if swept.size:
        data = {"applies": [apply.name for apply in swept.applies], "layers": len(swept.layers), "bytes": swept.size}
        forks.journal("gc", "", data)
