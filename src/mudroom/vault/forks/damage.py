"""Why a fork cannot be read, for lists of forks: one fork must not spoil the list of all.

A fork can be half-made or incomplete after a full disk or a kill, damaged, closed to its owner, or discarded by another
process while it is looked at.
"""

from __future__ import annotations

import os

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.vault.store.fork import Fork

UNREADABLE = (MudroomError, OSError, ValueError)
"""What reading a fork raises."""


def damage_of(fork: Fork, error: Exception) -> str | None:
    """Return why the fork cannot be read, or None if it is gone."""
    return reason_of(error) if os.path.lexists(fork.path) else None


def reason_of(error: Exception) -> str:
    """Return the reason of an error in one line, with the path of an OSError if it has one."""
    if isinstance(error, MudroomError):
        return error.message
    if not isinstance(error, OSError):
        return "a file in it is malformed"
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{show(os.fsencode(error.filename))}: {reason}"
