"""Automatic retention, due by the vault's own clock. A check that finds it is not due reads one file."""

from __future__ import annotations

from mudroom.core.clock import VaultClock
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.moment import clock_of, note, save
from mudroom.vault.store.store import Vault, spread_layers

if TYPE_CHECKING:
    from mudroom.vault.retention.prune import PruneResult

_DAY = 86400 * 10**9


def tidy(vault: Vault, settings: Settings, now: int, *, applied: bool = False) -> PruneResult | None:
    """Run retention automatically: everything once a day, only the applies after each apply.

    Return None if nothing was due. Hold the vault's lock. ``now``: the wall clock time. An error becomes a remark, so
    that the user's command does not fail.
    """
    try:
        clock = note(vault.path, now)
        due = _is_due(clock)
        return _tidy(vault, settings, clock, now, due=due) if due or applied else None
    except (MudroomError, OSError) as error:
        from mudroom.vault.retention.prune import PruneResult

        return PruneResult(remarks=(f"old applies and layers could not be removed: {error}",))


def is_due(vault: Vault) -> bool:
    """Return whether everything is due. The clock is not written."""
    return _is_due(clock_of(vault.path))


def _tidy(vault: Vault, settings: Settings, clock: VaultClock, now: int, *, due: bool) -> PruneResult:
    from mudroom.core.retention import retention_limits
    from mudroom.vault.retention.expiry import sweep_applies
    from mudroom.vault.retention.prune import PruneResult, collect_garbage

    if not due:
        return PruneResult(applies=tuple(sweep_applies(vault, retention_limits(settings), clock, now)))
    spread_layers(vault)  # for a vault that an earlier version made, or that was copied
    swept = collect_garbage(vault, retention_limits(settings), now)
    save(vault.path, clock._replace(swept=clock.age))
    return swept


def _is_due(clock: VaultClock) -> bool:
    return clock.swept < 0 or clock.age - clock.swept >= _DAY
