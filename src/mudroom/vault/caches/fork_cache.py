"""A fork's part of the package managers' caches: its writable layer, and the pool that receives its new entries.

On disk (``core/confinement/cache_place.py`` has the rules):

    cache/<variant>/<pool>/<name>/   a pool's entries; read-only for commands
    forks/<fork>/caches/pool         the pool that receives the fork's new entries
    forks/<fork>/caches/upper/       its writable layer over the pools
    forks/<fork>/caches/work/<hex>/  work directories for its overlay mounts
    forks/<fork>/caches/plain/       its caches where no overlay is mounted

A container may write to all of ``forks/<fork>/caches``, so it is opened as ``stage/safe_open.py`` says.
"""

from __future__ import annotations

import os
import stat
from contextlib import closing, suppress

from mudroom.core.confinement.cache_place import NAMES, NOWHERE, CacheShare, CacheView, pool_written, pools_read
from mudroom.core.system.closing import Descriptor
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import O_PATH, handle
from mudroom.stage.views.work_directory import new_work_directory, open_work_directories, remove_old_work_directories
from mudroom.typing import NamedTuple
from mudroom.vault.store.fork import Fork, write_small
from mudroom.vault.store.store import Vault


class CacheUse(NamedTuple):
    """The caches that a command uses."""

    variant: bytes
    """The system that fills the caches: ``host``, or a variant for each container image."""
    agent: str | None
    """None: the user."""
    share: CacheShare
    owner: tuple[int, int] | None = None
    """User and group that run the commands, if they differ from this process's."""


class ForkCache:
    """Caches for one command in a fork. Only for the holder of the fork's lock. Call ``view`` first."""

    def __init__(self, vault: Vault, fork: Fork, use: CacheUse) -> None:
        self._use, self._fork = use, fork
        self._place = fork.path + b"/caches"
        self._pools = vault.cache + b"/" + use.variant
        self._work = b""
        self._is_plain = self._is_first = False
        """Whether the caches are mounted without an overlay, and whether this is their first mount."""

    def view(
        self, places: tuple[tuple[bytes, bytes], ...], *, overlay: bool, seed: int, work: bytes = b""
    ) -> CacheView:
        """Create missing directories, and return the caches as a plan mounts them.

        ``seed``: maximum bytes copied from the pools where no overlay is mounted. ``work``: the work directory's name
        if the overlay is already mounted; then nothing is created. Raise MudroomError if a container has replaced a
        directory.
        """
        if not places:
            return CacheView(())
        if work:
            note_pool(self._fork, self._use)
            self._work = work
            pools = tuple(self._pools + b"/" + name for name in pools_read(self._use.agent, self._use.share))
            return CacheView(places, pools, self._place + b"/upper", self._place + b"/work/" + work)
        os.close(safe_open.make_directory(self._place))
        note_pool(self._fork, self._use)
        lowers = tuple(self._pool(name) for name in pools_read(self._use.agent, self._use.share))
        self._is_plain = not overlay
        if not overlay:
            return CacheView(places, upper=self._plain(lowers, seed))
        with Descriptor(safe_open.make_directory(self._place + b"/upper")) as upper:
            self._work, self._is_first = new_work_directory(self._place + b"/work")
            if not self._is_first:
                _open_up(upper)
        return CacheView(places, lowers, self._place + b"/upper", self._place + b"/work/" + self._work)

    @property
    def works(self) -> tuple[tuple[bytes, bytes], ...]:
        """The mount's work directory as (parent, name); empty if there is none."""
        return ((self._place + b"/work", self._work),) if self._work else ()

    @property
    def stamps(self) -> tuple[tuple[int, int] | None, ...]:
        """The pools' stamps; each publication changes them."""
        pools = (self._pools + b"/" + name for name in pools_read(self._use.agent, self._use.share))
        return tuple(_stamp(pool + b".size") for pool in pools)

    @property
    def has_new(self) -> bool:
        """Whether the fork's layer over the pools has entries."""
        return bool(self._work) and not is_empty(self._place + b"/upper")

    def tidy(self) -> None:
        """Remove the work directories left by earlier mounts."""
        if self._work and not self._is_first:
            remove_old_work_directories(self._place + b"/work", self._work)

    def give_back(self, limit: int, *, cleared: bool = False) -> list[str]:
        """Publish new entries to the fork's pool, and return notes. No process may be alive in the fork. ``cleared``:
        the caller removes the work directory."""
        if not cleared:
            open_work_directories(self._place + b"/work")
        pool = recorded_pool(self._fork)
        if pool in (b"", NOWHERE) or self._use.owner is not None:
            return []
        layer = self._place + (b"/plain" if self._is_plain else b"/upper")
        if not self._is_plain and (not self._work or is_empty(layer)):
            return []
        from mudroom.vault.caches.pool import SharedCache
        from mudroom.vault.caches.publication import publish

        return publish(layer, SharedCache(self._pools, pool), limit, keep=self._is_plain)

    def _plain(self, lowers: tuple[bytes, ...], seed: int) -> bytes:
        """Return the fork's own cache directory. A new directory starts as a copy of the pools, if they are small
        enough and belong to this user."""
        is_new = not os.path.lexists(self._place + b"/plain")
        with Descriptor(safe_open.make_directory(self._place + b"/plain")) as plain:
            if is_new and self._use.owner is None:
                _copy_pools(lowers, plain, seed)
            for name in NAMES:
                try:
                    disk.mkdir(plain, name, 0o700)
                    if self._use.owner is not None:
                        disk.set_owner(plain, name, *self._use.owner)
                except FileExistsError:
                    os.close(safe_open.open_directory(self._place + b"/plain/" + name))  # check that it is not a link
            _open_up(plain)
        return self._place + b"/plain"

    def _pool(self, name: bytes) -> bytes:
        """Return a pool's directory, with a subdirectory for each cache: an overlay's layers must exist."""
        pool = self._pools + b"/" + name
        if not os.path.isdir(pool + b"/" + NAMES[-1]):
            for cache in NAMES:
                os.makedirs(pool + b"/" + cache, mode=0o700, exist_ok=True)
        return pool


def note_pool(fork: Fork, use: CacheUse) -> None:
    """Record a command with ``use`` before it starts, so that its new cache entries go to no other pool. Do nothing if
    the fork has no caches."""
    recorded = recorded_pool(fork)
    pool = pool_written(use.agent, use.share, recorded)
    if pool == recorded or not os.path.isdir(fork.path + b"/caches"):
        return
    if not recorded:
        with suppress(FileExistsError):  # a container may have put something else there
            write_small(fork.path + b"/caches/pool", pool, os.O_EXCL)
            return
    safe_open.replace(fork.path + b"/caches/pool", pool, durable=False)


def recorded_pool(fork: Fork) -> bytes:
    """Return the name of the pool that receives the fork's new entries; empty if no command has used its caches."""
    try:
        return safe_open.read(fork.path + b"/caches/pool")
    except FileNotFoundError:
        return b""


def _stamp(path: bytes) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None  # no publication yet
    return info.st_ino, info.st_mtime_ns


def is_empty(path: bytes) -> bool:
    with os.scandir(path) as scan:
        return next(scan, None) is None


def _open_up(directory: int) -> None:
    """Give the owner access to each cache again: a command may have closed it for the fork's later commands."""
    for name in os.listdir(directory):
        status = disk.stat_at(directory, name)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with Descriptor(disk.open_at(directory, name, O_PATH | disk.O_NOFOLLOW | disk.O_CLOEXEC)) as opened:
                disk.set_mode_by(handle(opened), 0o700)


def _copy_pools(pools: tuple[bytes, ...], target: int, limit: int) -> None:
    """Copy the pools' entries, topmost first, into an empty directory; copy nothing if they exceed ``limit`` bytes.
    Uses reflinks where the file system has them."""
    from mudroom.stage.copy import clone, listed
    from mudroom.stage.layers.union import staged_source
    from mudroom.vault.caches.pool import SharedCache

    places = [place.rpartition(b"/") for place in pools]
    if sum(SharedCache(above, name).size for above, _slash, name in places) > limit:
        return
    with closing(staged_source(pools)) as source:
        clone(source, target, listed(source))
