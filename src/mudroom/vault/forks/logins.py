"""Logins that an agent's commands have left in a fork with a home (``Fork.has_home``). The satellite ``agents`` brings
them to the host."""

from __future__ import annotations

from mudroom.core.registry import part, part_or_none


def has_logins(fork_path: bytes) -> bool:
    """Return whether a fork has a login that could not be kept, or may have a login that this installation cannot
    examine."""
    logins = part_or_none("agents", "logins")
    return logins is None or bool(logins.has_logins(fork_path))


def settle_logins(fork_path: bytes, *, is_discarded: bool = False) -> list[str]:
    """Bring a fork's logins to the host if a killed mudroom has left any. Return notes.

    Hold the fork's lock; no process may be alive in the fork. ``is_discarded``: the fork will be removed; raise
    NotInstalled if its logins cannot be examined.
    """
    logins = part_or_none("agents", "logins")
    if logins is None and is_discarded:
        part("agents", "logins", "the logins of an agent in this fork")
    notes: list[str] = logins.settle_logins(fork_path, is_discarded=is_discarded) if logins is not None else []
    return notes
