"""Retention: remove expired and unneeded data, so that a vault does not grow without bound (``core/retention.py``
decides).

The caller holds the vault's lock. Agents may be running in their forks meanwhile, so this module never waits for a
fork: a busy fork is left as it is until the next time.

A layer that is just being made must not be lost. A layer (or snapshot) is made first and named in a fork's state
afterwards; in between no state refers to it. So ``_sweep_layers`` works in this order:

1. List the layers. Layers made from now on are not on the list.
2. Try every fork's lock. A process that made a listed layer while holding a lock has either released it, and then the
   state that names the layer is written; or still holds it, and then the layer is younger than the lock
   (``core/retention.py:deletion_horizon``; the kernel stamps both). The same holds for the locks of processes that
   unpack forks (``vault/arriving.py``).
3. Read every state, and list the forks again until there are no new ones: when a fork is forked, the new state is
   written while the parent still names the same layers.

A sweep first notes the wall clock (``vault/moment.py``), and treats data as old only if its stamp is older than every
time the clock has shown meanwhile. A fork that is just being made holds no lock yet; its layer is younger than
``retention.YOUNG``. A layer that a fork has needed until now is not just being made, so its age does not matter. If a
state cannot be read, no layer is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from mudroom.core.clock import NEVER, VaultClock, horizon
from mudroom.core.retention import (
    DAY,
    YOUNG,
    Expired,
    RetentionLimits,
    deletion_horizon,
    expired_checkpoints,
    unreferenced,
)
from mudroom.core.tree import stack
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import ForkState
from mudroom.errors import ForkGone, MudroomError
from mudroom.stage.layers.layer import remove_tree
from mudroom.typing import NamedTuple
from mudroom.vault.arriving import begun
from mudroom.vault.caches.pool import shared_caches
from mudroom.vault.disk_usage import measure
from mudroom.vault.forks.ties import first_of, ties_of
from mudroom.vault.lock import Lock
from mudroom.vault.moment import clock_of, note
from mudroom.vault.retention.expiry import sweep_applies
from mudroom.vault.retention.leftover import (
    dropped_files,
    fork_leftovers,
    is_incomplete,
    unused_git_layers,
    vault_leftovers,
)
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.spare_base import SPARE, throw_away_base
from mudroom.vault.store.store import HELD, Vault
from mudroom.vault.sync import sync_directory

_ALL = 1 << 63
"""A time in nanoseconds after that of any file."""


class PruneResult(NamedTuple):
    """The removed data, or with a dry run the data to remove."""

    applies: tuple[Expired, ...] = ()
    checkpoints: tuple[str, ...] = ()
    """``FORK@CHECKPOINT``."""
    forks: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    leftovers: int = 0
    """Files and directories that a killed mudroom left, those in the trash, and stores of caches."""
    size: int = 0
    """Bytes on disk. Less is freed if a remaining directory links to the same file."""
    remarks: tuple[str, ...] = ()
    """Forks and files that could not be examined this time, with the reason."""

    def __bool__(self) -> bool:
        return bool(self.applies or self.checkpoints or self.forks or self.layers or self.snapshots or self.leftovers)


def collect_garbage(
    vault: Vault,
    kept: RetentionLimits,
    now: int,
    *,
    forks_older: int | None = None,
    dry_run: bool = False,
    is_asked: bool = False,
    caches: bool = False,
) -> PruneResult:
    """Remove data that exceeds the limits or is not needed. Hold the vault's lock. Raise OSError on a disk error.

    ``now``: the wall clock time, in nanoseconds. ``forks_older``: remove unnamed forks that were not used for this many
    nanoseconds, with their changes. ``dry_run``: report without changing anything. ``is_asked``: the user has asked,
    and wants to free the spare snapshot even if it is young. ``caches``: remove the caches of package managers, too.
    """
    if vault.has_unfinished():
        return PruneResult(remarks=("an apply was cut off: mudroom run, apply or undo settles it first",))
    clock = clock_of(vault.path, now) if dry_run else note(vault.path, now)
    return _Sweep(vault, kept, clock, now, forks_older, dry_run, is_asked, caches).run()


def old_forks(vault: Vault, older: int, now: int) -> list[str]:
    """Return the names of readable, idle, unnamed forks that were not used for ``older`` nanoseconds."""
    before = horizon(clock_of(vault.path, now), older)
    return [fork.name for fork in vault.forks() if _is_old(fork, fork.state_or_none, before)]


def _is_old(fork: Fork, state: ForkState | None, before: int) -> bool:
    is_tied = ties_of(fork) or first_of(fork) is not None  # a part must not go without the others
    is_used = os.path.exists(fork.path + b"/mount") or fork.interrupted is not None
    if state is None or state.named or is_tied or is_used:
        return False
    stamps = [_touched(fork.path + name) for name in (b"/state", b"/record")]
    return max(state.created, *stamps) < before


class _Sweep:
    def __init__(
        self,
        vault: Vault,
        kept: RetentionLimits,
        clock: VaultClock,
        now: int,
        forks_older: int | None,
        dry_run: bool,
        is_asked: bool,
        caches: bool,
    ) -> None:
        self._vault, self._kept, self._clock, self._now = vault, kept, clock, now
        self._forks_older = None if forks_older is None else horizon(clock, forks_older)
        self._young, self._day = horizon(clock, YOUNG), horizon(clock, DAY)
        self._dry_run, self._is_asked, self._caches = dry_run, is_asked, caches
        self._held: list[int] = []
        self._states: list[ForkState] = []
        self._released: set[str] = set()
        """Layers and snapshots that a removed fork or checkpoint needed: they are not just being made."""
        self._unreadable: list[str] = []
        self._checkpoints: list[str] = []
        self._forks: list[str] = []
        self._leftovers = 0
        self._size = 0
        self._remarks: list[str] = []

    def run(self) -> PruneResult:
        self._empty_trash(counted=True)  # first: on a full disk this frees space for the rest
        applies = sweep_applies(self._vault, self._kept, self._clock, self._now, dry_run=self._dry_run)
        self._size += sum(apply.size for apply in applies)
        self._remove(vault_leftovers(self._vault, self._young))
        self._remove(dropped_files(self._vault, self._day))
        layers, bases = self._sweep_layers()
        if not self._held and not any(os.path.exists(fork.path + b"/mount") for fork in self._vault.forks()):
            self._remove(unused_git_layers(self._vault, self._day))
        self._expire_caches()
        self._empty_trash(counted=False)
        self._archive_events()
        return PruneResult(
            tuple(applies),
            tuple(self._checkpoints),
            tuple(self._forks),
            tuple(layers),
            tuple(bases),
            self._leftovers,
            self._size,
            tuple(self._remarks),
        )

    def _archive_events(self) -> None:
        """Archive old events, which then need less space. No event is lost."""
        if self._dry_run or not os.path.exists(self._vault.path + b"/journal.db"):
            return
        try:
            self._vault.journal.keep_within(self._kept.journal, self._kept.journal_age, self._clock)
        except (MudroomError, OSError) as error:
            self._remarks.append(f"older events of the journal could not be archived: {error}")

    def _sweep_layers(self) -> tuple[list[str], list[str]]:
        vault = self._vault
        # before any lock is tried: a layer made from now on is not on the list
        layers = dict(_listed(vault.path + b"/layers"))
        bases = {name: time for name, time in _listed(vault.path + b"/bases") if self._is_whole(name, time)}
        self._held += begun(vault.path)
        self._visit_forks()
        if self._unreadable:
            names = ", ".join(self._unreadable)
            self._remarks.append(f"no layers are removed: the state of {names} cannot be read (mudroom vault check)")
            return [], []
        layers.update(dict.fromkeys(self._released & layers.keys(), 0))
        bases.update(dict.fromkeys(self._released & bases.keys(), 0))
        if SPARE in bases:
            bases[SPARE] = NEVER - 1 if self._is_asked else 0  # it is never in the making
        gone, bases_gone = unreferenced(layers, bases, self._states, deletion_horizon(self._clock, self._held))
        if (gone or bases_gone) and not self._dry_run:
            self._sync_forks()
        self._remove([vault.layer(name) for name in gone], counted=False)
        self._size += sum(measure(vault.base(name)) for name in bases_gone)
        for name in () if self._dry_run else bases_gone:
            throw_away_base(vault, name)
        return gone, bases_gone

    def _sync_forks(self) -> None:
        """Make forks' removals and states durable, before layers go.

        A state that came back after a power loss would need layers that are gone. States are written with their content
        synced, and then renamed, so syncing the directories is enough.
        """
        self._vault.sync_trash()
        for fork in self._vault.forks():
            try:
                sync_directory(fork.path)
            except FileNotFoundError:
                continue  # discarded or renamed meanwhile, and not by this sweep

    def _is_whole(self, base: str, time: int) -> bool:
        """Whether the snapshot is complete or abandoned. Without a manifest it is still being made, which may take
        long, or mudroom was killed while making it."""
        return os.path.exists(self._vault.base(base) + b"/manifest") or time < self._day

    def _visit_forks(self) -> None:
        seen: set[str] = set()
        while new := [fork for fork in self._vault.forks() if fork.name not in seen]:
            for fork in new:
                seen.add(fork.name)
                with suppress(ForkGone):  # a renamed fork is visited under its new name
                    try:
                        self._visit_fork(fork)
                    except FileNotFoundError:
                        if os.path.isdir(fork.path):
                            raise

    def _visit_fork(self, fork: Fork) -> None:
        with fork.lock_if_free("mudroom vault gc") as free:
            if not free:
                self._held.append(os.stat(fork.path + b"/lock").st_mtime_ns)
                self._add_state(fork, fork.state_or_none)
                return
            if is_incomplete(fork.path, self._young):
                self._remove([fork.path])
                return
            state = fork.state_or_none
            if state is not None and self._has_expired(fork, state):
                self._forks.append(fork.name)
                self._released |= {*state.references, state.base}
                self._remove([fork.path], counted=False)
                return
            self._add_state(fork, self._expire(fork, state) if state is not None else None)
            if not os.path.exists(fork.path + b"/mount"):
                self._remove(fork_leftovers(fork.path, self._young))

    def _has_expired(self, fork: Fork, state: ForkState) -> bool:
        return self._forks_older is not None and _is_old(fork, state, self._forks_older)

    def _add_state(self, fork: Fork, state: ForkState | None) -> None:
        if state is None:
            self._unreadable.append(fork.name)
        else:
            self._states.append(state)

    def _expire(self, fork: Fork, state: ForkState) -> ForkState:
        names = expired_checkpoints(state, self._kept, horizon(self._clock, self._kept.age))
        self._released |= state.references if names else set()
        for name in names:
            state = stack.without_checkpoint(state, name)
        if names and not self._dry_run:
            fork.save(state)
        self._checkpoints += [f"{fork.name}@{name}" for name in names]
        return state

    def _remove(self, paths: Iterable[bytes], *, counted: bool = True) -> None:
        for path in paths:
            self._size += measure(path)
            self._leftovers += counted
            if self._dry_run:
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                self._vault.throw_away(path)
            else:
                os.unlink(path)

    def _expire_caches(self) -> None:
        """Remove caches without a publication for as long as applies are kept, or all if that is asked for."""
        if self._caches and self._held:
            self._remarks.append("the caches stay while commands run: mudroom ps")
        removes_all = self._caches and not self._held
        before = _ALL if removes_all else horizon(self._clock, self._kept.age)
        for pool in shared_caches(self._vault.cache):
            if self._dry_run:
                size = pool.expired_size(before)
            else:
                with Lock(pool.path + b".lock", "removing old cache entries"):
                    size = pool.expire(before)
            self._size += size
            self._leftovers += size > 0

    def _empty_trash(self, *, counted: bool) -> None:
        trash = self._vault.path + b"/trash"
        names = os.listdir(trash)
        if names and not self._dry_run:
            self._vault.sync_trash()  # a directory that came back after a power loss would be half empty
        for name in names:
            place = trash + b"/" + name
            if counted:
                self._leftovers += 1
                self._size += measure(place)
            if not self._dry_run:
                self._delete(place)

    def _delete(self, place: bytes) -> None:
        try:
            remove_tree(place)
        except FileNotFoundError:
            if os.path.lexists(place):  # another process is emptying it, too
                self._remarks.append(f"{show(place)} is being removed by another mudroom")
        except OSError as error:
            if error.errno not in HELD:
                raise
            self._remarks.append(f"{show(place)} cannot be removed yet: a file in it is open")


def _listed(place: bytes) -> Iterator[tuple[str, int]]:
    for name in os.listdir(place):
        yield os.fsdecode(name), _touched(place + b"/" + name)


def _touched(path: bytes) -> int:
    """Return when the file was last written, renamed or linked; 0 if it is absent."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return 0
    return max(info.st_mtime_ns, info.st_ctime_ns)
