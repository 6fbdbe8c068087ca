"""One spelling for a fork, where the file system takes a name for another one that differs in case alone."""

from __future__ import annotations

import os

from mudroom.errors import UsageError


def require_spelling(forks: bytes, name: str) -> None:
    """Raise UsageError if a fork's directory is spelled in another way: records, rules and commands that run would know
    the fork under one of two names. Windows drops dots at the end, too."""
    names = [os.fsdecode(other) for other in os.listdir(forks)]
    other = next((other for other in names if other.lower() == name.lower().rstrip(".")), name)
    if name not in names and other != name:
        raise UsageError(
            f"the file system takes the name {name} for that of the fork {other}",
            f"write {other}, or a name that differs in more than upper and lower case",
        )
