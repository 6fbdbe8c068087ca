"""One spelling for each fork, on file systems that ignore case in names."""

from __future__ import annotations

import os

from mudroom.errors import UsageError


def require_spelling(forks: bytes, name: str) -> None:
    """Raise UsageError if the fork's directory is spelled differently: records, rules and running commands would know
    the fork under two names. Windows also drops dots at the end."""
    names = [os.fsdecode(other) for other in os.listdir(forks)]
    other = next((other for other in names if other.lower() == name.lower().rstrip(".")), name)
    if name not in names and other != name:
        raise UsageError(
            f"the file system takes the name {name} for that of the fork {other}",
            f"write {other}, or a name that differs in more than upper and lower case",
        )
