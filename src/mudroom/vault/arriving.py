"""Locks held by processes that unpack forks, so that retention leaves their layers alone.

    arriving/<16 hexadecimal digits>    flock(2), from before the first layer until the forks have their names

A layer is made first and named in a fork's state afterwards (``vault/retention/prune.py``). An archive may arrive
slowly, so the time between the two is not bounded, and no fork's lock is held meanwhile. When the process has ended,
its file is no longer locked, and the next sweep removes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.vault.lock import Lock

ARRIVING = b"/arriving"


@contextmanager
def unpacking(vault: bytes) -> Iterator[None]:
    """Keep layers that are made during the block, however old they are. ``vault``: its path."""
    os.makedirs(vault + ARRIVING, mode=0o700, exist_ok=True)
    lock = _taken(vault)
    try:
        yield
    finally:
        lock.unlink()
        lock.release()


def _taken(vault: bytes) -> Lock:
    while True:
        lock = Lock(vault + ARRIVING + b"/" + os.urandom(8).hex().encode(), "unpacking forks")
        lock.acquire("unpacking forks")
        if lock.is_at_its_path:  # a sweep may have removed the file before it was locked
            return lock
        lock.release()


def begun(vault: bytes) -> list[int]:
    """Return the times at which the running processes in ``unpacking`` took their locks, in nanoseconds since 1970.
    Remove the files whose processes have ended."""
    try:
        names = os.listdir(vault + ARRIVING)
    except FileNotFoundError:
        return []
    times = []
    for name in names:
        path = vault + ARRIVING + b"/" + name
        lock = Lock(path, "mudroom vault gc")
        try:
            taken = os.stat(path).st_mtime_ns
            if not lock.acquire_now():
                times.append(taken)
                continue
        except FileNotFoundError:
            continue
        lock.unlink()
        lock.release()
    return times
