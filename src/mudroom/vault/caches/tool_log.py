"""A tool's log in the caches.

npm prints a path below the sandbox's home, which does not exist on the host: like every new cache entry, the file
reaches the commands' pool.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from mudroom.core.text.regex import regex

LOGS = (b"npm/_logs",)
"""Log directories in a pool (``core/confinement/cache_place.py``). pnpm and yarn write their logs into the project."""
_PROGRAMS = frozenset((b"npm", b"npx"))
"""Programs that write such a log."""
_WORDS = regex(rb"[\w.-]+")
_SLACK = 2.0
"""Tolerance in seconds: a file's time is not exact."""


def newest_log(cache: bytes, since: float, argv: Sequence[bytes]) -> bytes | None:
    """Return the path to the newest log that the command ``argv`` wrote into a vault's pools, or None.

    ``since``: when the command began, in seconds since 1970. ``cache``: the pools' directory. A command that does not
    name the tool may still run it (make): then the log must not be older than the command, without tolerance.
    """
    slack = _SLACK if any(not _PROGRAMS.isdisjoint(_WORDS.findall(word)) for word in argv) else 0.0
    found = [entry for entry in _logs(cache) if entry[0] >= since - slack]
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
        return []  # no pool has that tool's logs
