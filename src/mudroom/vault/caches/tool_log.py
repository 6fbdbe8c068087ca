"""The log that a tool wrote into the caches. npm prints its path below the sandbox's home, which the host has not: the
file comes to the pool of the commands, like every new entry of the caches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from mudroom.core.text.regex import regex

LOGS = (b"npm/_logs",)
"""Directories in a pool (``core/confinement/cache_place.py``). pnpm and yarn write theirs into the project."""
_PROGRAMS = frozenset((b"npm", b"npx"))
"""Programs that write such a log."""
_WORDS = regex(rb"[\w.-]+")
_SLACK = 2.0
"""Seconds: a file's time is not exact."""


def newest_log(cache: bytes, since: float, argv: Sequence[bytes]) -> bytes | None:
    """Return the path of the newest log in the pools of a vault that the command ``argv``, which began at ``since``
    (seconds since 1970), has written, or None. ``cache``: the directory of the pools. A command that does not name the
    tool may run it all the same (make): its log is then not older than the command, by the file's time as it is."""
    slack = _SLACK if _names_tool(argv) else 0.0
    found = [entry for entry in _logs(cache) if entry[0] >= since - slack]
    return max(found)[1] if found else None


def _names_tool(argv: Sequence[bytes]) -> bool:
    return any(not _PROGRAMS.isdisjoint(_WORDS.findall(word)) for word in argv)


def _logs(cache: bytes) -> Iterator[tuple[float, bytes]]:
    for pool in _directories(cache):
        for logs in LOGS:
            for entry in _entries(pool + b"/" + logs):
                if entry.is_file(follow_symlinks=False):
                    yield entry.stat(follow_symlinks=False).st_mtime, entry.path


def _directories(cache: bytes) -> list[bytes]:
    variants = [entry.path for entry in _entries(cache) if entry.is_dir(follow_symlinks=False)]
    return [pool.path for variant in variants for pool in _entries(variant) if pool.is_dir(follow_symlinks=False)]


def _entries(path: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []  # no pool has logs of that tool
