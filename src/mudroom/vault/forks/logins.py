"""Logins that commands of an agent have left in a fork that has a home (``Fork.has_home``). The satellite ``agents``
brings them to the host."""

from __future__ import annotations

from mudroom.core.registry import part, part_or_none


def has_logins(fork_path: bytes) -> bool:
    """Return whether a fork has a login that could not be kept, or may have one that nothing here can look at."""
    logins = part_or_none("agents", "logins")
    return logins is None or bool(logins.has_logins(fork_path))


def settle_logins(fork_path: bytes, *, is_discarded: bool = False) -> list[str]:
    """Bring the logins that a command of a fork has left because mudroom was killed. Return notes. Hold the fork's
    lock; no process of the fork may live. ``is_discarded``: the fork goes; raise NotInstalled if its logins cannot be
    looked at."""
    logins = part_or_none("agents", "logins")
    if logins is None and is_discarded:
        part("agents", "logins", "the logins of an agent in this fork")
    notes: list[str] = logins.settle_logins(fork_path, is_discarded=is_discarded) if logins is not None else []
    return notes
