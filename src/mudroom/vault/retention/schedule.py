"""Automatic retention: when it is due. A check that finds it is not due costs one stat(2)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.vault.retention.prune import PruneResult

MARKER = b"/tidied"
"""Below the vault. Its mtime is when ``tidy`` last examined everything."""
_DAY = 86400 * 10**9


def tidy(vault: Vault, settings: Settings, now: int, *, applied: bool = False) -> PruneResult | None:
    """Run retention automatically: everything once a day, only the applies after each apply.

    Return None if nothing was due, which costs one stat(2). Hold the vault's lock. An error becomes a remark, so that
    the user's command does not fail.
    """
    due = _is_due(vault, now)
    if not due and not applied:
        return None
    from mudroom.core.retention import kept_by
    from mudroom.vault.retention.expiry import sweep_applies
    from mudroom.vault.retention.prune import PruneResult, collect_garbage

    try:
        if not due:
            return PruneResult(applies=tuple(sweep_applies(vault, kept_by(settings), now)))
        swept = collect_garbage(vault, kept_by(settings), now)
        with open(vault.path + MARKER, "wb") as stream:
            os.utime(stream.fileno(), ns=(now, now))
        return swept
    except (MudroomError, OSError) as error:
        return PruneResult(remarks=(f"old applies and layers could not be removed: {error}",))


def _is_due(vault: Vault, now: int) -> bool:
    try:
        return not 0 <= now - os.stat(vault.path + MARKER).st_mtime_ns < _DAY
    except FileNotFoundError:
        return True
