"""What a killed mudroom leaves lying about: files that were to be renamed, work directories, half-made forks.

Nothing here is of any use to anybody once it is older than the moment it takes to make it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from mudroom.vault.store.store import Vault

_OF_A_FORK = (b"state.new", b"record.new", b"landed.new", b"copy/manifest.new")


def fork_leftovers(fork: bytes, before: int) -> Iterator[bytes]:
    """Of an idle fork (hold its lock) that is not mounted: files not renamed, and work directories of past mounts.

    ``before``: only what was last touched before that, in nanoseconds since 1970.
    """
    yield from _old((fork + b"/" + name for name in _OF_A_FORK), before)
    yield from _old(_below(fork + b"/work"), before)


def is_unborn(fork: bytes, before: int) -> bool:
    """Whether a fork was cut off while it was being made: it has no state, and nothing that only a fork that had one
    can have."""
    names = {os.path.basename(path) for path in _below(fork)}
    return names <= {b"lock", b"state.new"} and os.stat(fork).st_mtime_ns < before


def vault_leftovers(vault: Vault, before: int) -> Iterator[bytes]:
    """Of the vault itself, whose lock is held and in which no apply is unfinished."""
    applies = vault.applies()
    for apply in applies:
        names = {os.path.basename(path): path for path in _below(apply)}
        yield from _old((path for name, path in names.items() if name.endswith(b".new")), before)
        parts = [path for path in _below(apply + b"/slots") if path.endswith(b".part")]
        yield from _old(parts, before)
    for apply in applies[:-1]:  # the last one's number must not be used again
        names = {os.path.basename(path): path for path in _below(apply)}
        if not any(name.startswith(b"plan.") for name in names) and not list(_below(apply + b"/slots")):
            yield from _old([apply], before)
    yield from _old([vault.path + b"/applies/removed.new"], before)
    yield from _old(_below(vault.merged), before)
    for base in _below(vault.path + b"/bases"):
        yield from _old([base + b"/manifest.new"], before)


def _below(place: bytes) -> Iterator[bytes]:
    try:
        names = os.listdir(place)
    except FileNotFoundError:
        return
    for name in sorted(names):
        yield place + b"/" + name


def _old(paths: Iterator[bytes] | list[bytes], before: int) -> Iterator[bytes]:
    for path in paths:
        try:
            info = os.lstat(path)
        except FileNotFoundError:
            continue
        if max(info.st_mtime_ns, info.st_ctime_ns) < before:
            yield path
