"""The log that a tool wrote into the caches. npm prints its path below the sandbox's home, which the host has not: the
file comes to the pool of the commands, like every new entry of the caches."""

from __future__ import annotations

import os
from collections.abc import Iterator

LOGS = (b"npm/_logs",)
"""Directories in a pool (``core/confinement/cache_place.py``). pnpm and yarn write theirs into the project."""
_SLACK = 2.0
"""Seconds: a file's time is not exact."""


def newest_log(cache: bytes, since: float) -> bytes | None:
    """Return the path of the newest log in the pools of a vault that was written since a time (seconds since 1970), or
    None. ``cache``: the directory of the pools."""
    found = [entry for entry in _logs(cache) if entry[0] >= since - _SLACK]
    return max(found)[1] if found else None


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
