"""Bases that this vault knows by their id: what an archive may name instead of carrying it.

    known-bases/<64 hexadecimal digits>     ``live``, or the id of a snapshot of this vault

The id is the digest of a base as it was sent to a worker (BLAKE2b-256). Knowing one says only "a fork that stands on it
belongs to this project": its changes are computed again against the project, or the snapshot, as it is here.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mudroom.core.tree.stack import LIVE
from mudroom.errors import UsageError
from mudroom.ext.transfer.vault.bundle import BASE_ID
from mudroom.stage import disk
from mudroom.vault.store.fork import is_plain, read_small
from mudroom.vault.store.store import Vault

KNOWN = b"/known-bases"
MOST = 1000
"""Number of bases that are kept; the oldest are forgotten first."""

KnownBase = Callable[[bytes], str | None]
"""Returns what the id of a base stands for: ``live``, the id of a snapshot, or None if it is not known."""


def remember_base(vault: Vault, base: bytes, stands_for: str = LIVE) -> None:
    """Note that archives may name this base. ``stands_for``: the project, or the id of a snapshot in this vault. Raise
    UsageError if the id has another length, or there is no such snapshot."""
    if len(base) != BASE_ID:
        raise UsageError(f"the id of a base has {BASE_ID} bytes, this has {len(base)}")
    if not _is_here(vault, stands_for):
        raise UsageError(f"there is no snapshot {stands_for} in this vault", "mudroom fork new NAME --snapshot")
    place = vault.path + KNOWN
    os.makedirs(place, mode=0o700, exist_ok=True)
    beside = place + b"/." + os.urandom(8).hex().encode()
    with open(beside, "xb") as stream:
        stream.write(stands_for.encode())
    disk.rename_path(beside, place + b"/" + base.hex().encode())
    _forget_oldest(place)


def known_base(vault: Vault, base: bytes) -> str | None:
    """Return what the base stands for here; None if it is not known, or its snapshot is gone."""
    try:
        stands_for = read_small(vault.path + KNOWN + b"/" + base.hex().encode()).decode("ascii", "replace")
    except FileNotFoundError:
        return None
    return stands_for if _is_here(vault, stands_for) else None


def _is_here(vault: Vault, stands_for: str) -> bool:
    return stands_for == LIVE or (is_plain(stands_for) and os.path.exists(vault.base(stands_for) + b"/manifest"))


def _forget_oldest(place: bytes) -> None:
    with os.scandir(place) as scan:
        names = [item.name for item in scan]
    if len(names) <= MOST:
        return
    rows = []
    for name in names:
        try:
            rows.append((os.lstat(place + b"/" + name).st_mtime_ns, name))
        except FileNotFoundError:
            continue  # another process forgets, too
    for _time, name in sorted(rows)[:-MOST]:
        try:
            os.unlink(place + b"/" + name)
        except FileNotFoundError:
            continue
