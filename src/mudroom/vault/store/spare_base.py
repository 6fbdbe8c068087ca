"""Snapshots that no fork needs. They go to the trash, or the last is kept for the next fork that takes a snapshot.

    bases/.spare    a complete project snapshot from some time, which no fork's state can name

Where every command works in a copy of the project (a mount inside it, no user namespaces), its fork is discarded with
its changes, and the next command needs nearly the same copy again. Garbage collection removes the spare: once a day by
itself, and when the user asks for it.

A snapshot from an archive is never a spare: it may be hostile, and hold files that its manifest does not name.
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
"""An empty file that marks a snapshot from an archive."""


class StatedFork(Protocol):
    @property
    def state_or_none(self) -> ForkState | None: ...


class BaseStore(Protocol):
    """The vault's methods that are needed here."""

    path: bytes

    def base(self, name: str) -> bytes: ...
    def forks(self) -> Sequence[StatedFork]: ...
    def throw_away(self, path: bytes) -> bool: ...


def throw_away_base(vault: BaseStore, name: str, *, spares: bool = False) -> None:
    """Throw away a snapshot that no fork needs. ``spares``: keep it as the spare instead, on Linux.

    A new fork may arrive on it meanwhile; such a fork looks for its snapshot once it has its name. Therefore the
    snapshot is moved, then the forks are read again, and it is moved back if a fork needs it.
    """
    aside = vault.path + b"/bases/." + os.urandom(8).hex().encode()
    try:
        disk.rename_path(vault.base(name), aside)
    except FileNotFoundError:
        return
    # read after the move, so that a fork which has arrived meanwhile is among them
    states = [fork.state_or_none for fork in vault.forks()]
    if any(state is None or state.base == name for state in states):
        disk.rename_path(aside, vault.base(name))
    elif not (spares and sys.platform == "linux" and _keep(vault, aside)):
        vault.throw_away(aside)


def _keep(vault: BaseStore, aside: bytes) -> bool:
    """Make a snapshot the spare, and throw away the previous spare. Return False if the snapshot is from an archive, or
    if another process has just made a spare."""
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
    """Rename the spare to the snapshot ``name``, which only one caller can do. Return whether there was a spare."""
    try:
        disk.rename_path(vault.base(SPARE), vault.base(name))
    except FileNotFoundError:
        return False
    return True
