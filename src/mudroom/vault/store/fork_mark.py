"""Mark in the vault: some fork has, or had, a grant to reach another (``vault/forks/fork_grants.py``)."""

from __future__ import annotations

import os

_MARK = b"/fork-grants"


def has_grants(vault: bytes) -> bool:
    return os.path.lexists(vault + _MARK)


def mark_grants(vault: bytes) -> None:
    """Raise OSError if the mark cannot be made."""
    os.close(os.open(vault + _MARK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
