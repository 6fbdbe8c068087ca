"""Snapshots that no fork needs: they go to the trash, or the last one is kept for the next fork that takes a snapshot.

    bases/.spare    a complete snapshot of the project at some time, which no fork's state can name

Where every command works in a copy of the project (a mount inside it, no user namespaces), its fork is discarded with
its changes, and the next command needs nearly the same copy again. Garbage collection removes the spare: once a day by
itself, and when the user asks for it.

A snapshot of an archive is never a spare: it may be hostile, and hold files that its manifest does not name.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from mudroom.core.tree.stack import ForkState
from mudroom.stage import disk
from mudroom.typing import Protocol

SPARE = ".spare"
BROUGHT = b"/brought"
"""An empty file in a snapshot that an archive has brought."""


class StatedFork(Protocol):
    @property
    def state_or_none(self) -> ForkState | None: ...


class BaseStore(Protocol):
    """What is needed of a vault here."""

    path: bytes

    def base(self, name: str) -> bytes: ...
    def forks(self) -> Sequence[StatedFork]: ...
    def throw_away(self, path: bytes) -> bool: ...


def throw_away_base(vault: BaseStore, name: str, *, spares: bool = False) -> None:
    """Throw away a snapshot that no fork needs. A fork may arrive on it meanwhile, which looks for it once it has its
    name: so it is moved, then the forks are looked at again, and it is moved back if one needs it. ``spares``: keep it
    as the spare instead, on Linux."""
    aside = vault.path + b"/bases/." + os.urandom(8).hex().encode()
    try:
        disk.rename_path(vault.base(name), aside)
    except FileNotFoundError:
        return
    states = [fork.state_or_none for fork in vault.forks()]
    if any(state is None or state.base == name for state in states):
        disk.rename_path(aside, vault.base(name))
    elif not (spares and sys.platform == "linux" and _keep(vault, aside)):
        vault.throw_away(aside)


def _keep(vault: BaseStore, aside: bytes) -> bool:
    """Make a snapshot the spare, and throw away the one before. Return False if an archive has brought it, or another
    process has just made one."""
    if os.path.lexists(aside + BROUGHT):
        return False
    vault.throw_away(vault.base(SPARE))
    try:
        disk.rename_path(aside, vault.base(SPARE))
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return False
    return True


def take_spare(vault: BaseStore, name: str) -> bool:
    """Make the spare the snapshot ``name``, for this caller alone. Return whether there was one."""
    try:
        disk.rename_path(vault.base(SPARE), vault.base(name))
    except FileNotFoundError:
        return False
    return True
