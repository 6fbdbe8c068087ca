"""Disk usage of a vault: for each kind, the number of items and their bytes on disk.

Bytes are allocated blocks, counted as ``vault/disk_usage.py`` says.
"""

from __future__ import annotations

import os

from mudroom.core.clock import SECOND
from mudroom.core.tree.change import summarise
from mudroom.errors import MudroomError
from mudroom.stage import disk
from mudroom.typing import NamedTuple
from mudroom.vault.disk_usage import Seen, measure
from mudroom.vault.forks.damage import UNREADABLE, damage_of
from mudroom.vault.store.store import Vault, other_format, project_of, source_of

_DAY = 86400 * SECOND


class KindUsage(NamedTuple):
    number: int = 0
    size: int = 0
    """Bytes on disk."""


class VaultUsage(NamedTuple):
    forks: KindUsage
    """Files that belong to one fork: state, record, work directories, staged copies. Layers are counted in
    ``layers``."""
    layers: KindUsage
    snapshots: KindUsage
    applies: KindUsage
    """Applies that can be undone, with slots that had to be kept in the project."""
    caches: KindUsage
    trash: KindUsage
    journal: KindUsage
    """``number`` is the number of events."""
    remarks: tuple[str, ...] = ()
    """Paths that could not be counted, with the reason."""

    @property
    def size(self) -> int:
        return sum(amount.size for amount in self._amounts)

    @property
    def _amounts(self) -> tuple[KindUsage, ...]:
        return (self.forks, self.layers, self.snapshots, self.applies, self.caches, self.trash, self.journal)


class VaultTotal(NamedTuple):
    """Summary of one vault in a state directory."""

    path: bytes
    project: bytes
    """Empty if it cannot be read."""
    exists: bool
    """Whether the project exists now. If not, it may only be unmounted."""
    forks: int
    unapplied: int
    """Changed files in all forks that were not applied yet."""
    size: int
    remarks: tuple[str, ...] = ()


def usage(vault: Vault) -> VaultUsage:
    """Return a vault's usage. Walks all its files, and writes nothing."""
    seen: Seen = set()
    remarks: list[str] = []

    def amount(name: bytes) -> KindUsage:
        place = vault.path + b"/" + name
        return KindUsage(len(_names(place)), measure(place, seen, remarks))

    # layers before applies, so that a file in both is counted with the layers
    usages = {name: amount(name) for name in (b"forks", b"layers", b"bases", b"applies", b"cache", b"trash")}
    applies = KindUsage(len(vault.applies()), usages[b"applies"].size + _slots_in_project(vault, seen, remarks))
    places = (b".db", b".db-wal", b".db-shm", b".head", b".lock", b"")
    size = sum(measure(vault.path + b"/journal" + end, seen, remarks) for end in places)
    journal = KindUsage(_events(vault, remarks), size)
    return VaultUsage(
        usages[b"forks"],
        usages[b"layers"],
        usages[b"bases"],
        applies,
        usages[b"cache"],
        usages[b"trash"],
        journal,
        tuple(remarks),
    )


def slots_in_project(vault: Vault, apply: bytes) -> bytes:
    """Return an apply's slot directory, used if the vault is on another file system than the project."""
    return vault.source + b"/.mudroom/apply/" + apply


def _slots_in_project(vault: Vault, seen: Seen, remarks: list[str]) -> int:
    own = [os.path.basename(path) for path in vault.applies() if not os.path.isdir(path + b"/slots")]
    return sum(measure(slots_in_project(vault, name), seen, remarks) for name in own)


def _events(vault: Vault, remarks: list[str]) -> int:
    if not os.path.exists(vault.path + b"/journal.db"):
        return 0
    try:
        return vault.journal.head().number
    except MudroomError as error:
        remarks.append(error.message)
        return 0


def _names(path: bytes) -> list[bytes]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


# --- all vaults in a state directory ---


def vaults(state: bytes) -> list[Vault]:
    """Return all vaults by name, readable or not. Close those whose journal was used."""
    paths = [state + b"/vaults/" + name for name in sorted(_names(state + b"/vaults"))]
    return [Vault(path, project_of(path), source=source_of(path)) for path in paths if os.path.isdir(path)]


def vault_named(state: bytes, name: bytes) -> Vault | None:
    """Return the vault whose directory has this name, or None."""
    path = state + b"/vaults/" + name
    return next((vault for vault in vaults(state) if vault.path == path), None)


def why_unusable(vault: Vault) -> str:
    """Return why this mudroom cannot use the vault; empty if it can."""
    try:
        with open(vault.path + b"/format", "rb") as stream:
            written = stream.read(64).strip()
    except FileNotFoundError:
        return "is not complete: mudroom was killed while making it"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if other := other_format(written):
        return other[0]
    return "" if disk.is_absolute(vault.project) else "does not name its project"


def is_unused(vault: Vault, now: int) -> bool:
    """Return whether the vault holds no fork and no apply, and was not used for a day. Such a vault is all that a
    refused or mistaken command leaves; lists of projects leave it out. ``now``: wall clock, nanoseconds."""
    if why_unusable(vault) or vault.forks() or vault.applies():
        return False
    places = (b"", b"/lock", b"/clock", b"/forks", b"/journal.db", b"/journal.db-wal")
    return all(now - _modified(vault.path + place) > _DAY for place in places)


def _modified(path: bytes) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def vault_total(vault: Vault) -> VaultTotal:
    """Return a vault's summary. Every problem is a remark."""
    remarks: list[str] = []
    size = measure(vault.path, set(), remarks)
    exists = bool(vault.project) and os.path.isdir(vault.source)
    problem = why_unusable(vault)
    if problem:
        return VaultTotal(vault.path, vault.project, exists, 0, 0, size, (problem, *remarks))
    forks = vault.forks()
    unapplied = 0
    for fork in forks:
        try:
            record = fork.record
        except UNREADABLE as error:
            damage = damage_of(fork, error)
            remarks += [damage] if damage is not None else []
            continue
        unapplied += summarise(record.changeset.changes).files if record is not None else 0
    return VaultTotal(vault.path, vault.project, exists, len(forks), unapplied, size, tuple(remarks))
