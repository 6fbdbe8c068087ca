"""Mark in the vault: a fork has, or had, a grant to reach another fork (``ext/agents/links/fork_grants.py``)."""

from __future__ import annotations

import os

from mudroom.stage import disk

_MARK = b"/fork-grants"


def has_grants(vault: bytes) -> bool:
    return os.path.lexists(vault + _MARK)


def mark_grants(vault: bytes) -> None:
    """Make the mark. Raise OSError if that fails."""
    os.close(disk.open_path(vault + _MARK, os.O_WRONLY | os.O_CREAT | disk.O_CLOEXEC | disk.O_NOFOLLOW, 0o600))
