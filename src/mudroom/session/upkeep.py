"""Vault maintenance: list, check, prune, remove.

Apart from ``session.py``, only this file opens vaults for a front door. A session needs an existing project; a vault
can be maintained after its project is gone.
"""

from __future__ import annotations

import os
import time
from contextlib import closing

from mudroom.core.clock import SECOND
from mudroom.core.retention import RetentionLimits, retention_limits
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.session.session import Session
from mudroom.stage import disk
from mudroom.stage.file_cache import FileCache
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.private_directory import make_private
from mudroom.vault.apply.transaction import Recovery
from mudroom.vault.approvals.approver import HostApprover, QueueApprover, failed, host_answer, host_question
from mudroom.vault.approvals.queue import Queue, Ticket
from mudroom.vault.caches.pool import shared_caches
from mudroom.vault.forks.fork_summary import ForkSummaries, ForkSummary
from mudroom.vault.retention.check import VaultProblem, check
from mudroom.vault.retention.prune import PruneResult, collect_garbage, old_forks
from mudroom.vault.retention.usage import (
    VaultTotal,
    VaultUsage,
    is_unused,
    usage,
    vault_named,
    vault_total,
    vaults,
    why_unusable,
)
from mudroom.vault.store.fork import mount_note
from mudroom.vault.store.store import Vault, vault_path

__all__ = [
    "FileCache",
    "ForkSummaries",
    "ForkSummary",
    "HostApprover",
    "PruneResult",
    "Queue",
    "QueueApprover",
    "Recovery",
    "RetentionLimits",
    "Ticket",
    "Vault",
    "VaultProblem",
    "VaultTotal",
    "VaultUsage",
    "failed",
    "host_answer",
    "host_question",
    "is_unused",
    "retention_limits",
    "vault_named",
    "vault_total",
    "vaults_of",
    "why_unusable",
]


def holdings(state: bytes, now: int | None = None) -> tuple[list[VaultTotal], int]:
    """Return the totals for every vault in a state directory, by name, and how many are left out. ``now``: leave out
    those that are unused by then (``is_unused``)."""
    totals, left_out = [], 0
    for vault in vaults(state):
        with closing(vault):
            if now is not None and is_unused(vault, now):
                left_out += 1
            else:
                totals.append(vault_total(vault))
    return totals, left_out


def vaults_of(state: bytes) -> list[Vault]:
    """Return every vault in a state directory, usable or not (``why_unusable``). The caller closes them."""
    return vaults(state)


def others(state: bytes, vault: Vault) -> list[Vault]:
    """Return every other usable vault in a state directory. The caller closes them."""
    return [other for other in vaults(state) if other.path != vault.path and not why_unusable(other)]


def vault_at(project: bytes, state: bytes) -> Vault:
    """Return the vault at a project's path, also if it belongs to another directory. Raise UsageError if there is none,
    or it is unusable."""
    vault = Vault(vault_path(state, project), project)
    if unusable := why_unusable(vault):
        what = (
            f"the vault of {show(project)} {unusable}" if os.path.isdir(vault.path) else f"{show(project)} has no vault"
        )
        raise UsageError(what, "mudroom vault ls --all shows those that there are")
    return vault


def archive(vault: Vault, now: time.struct_time) -> bytes:
    """Move a vault out of the way and return its new path. Hold its lock. Raise UsageError if it is in use."""
    used = [fork.name for fork in vault.forks() if fork.interrupted is not None or mount_note(fork) is not None]
    if used:
        raise UsageError(f"{used[0]} is in use", f"mudroom discard --end {used[0]}")
    state, _vaults, name = vault.path.rsplit(b"/", 2)
    place = state + b"/archived/" + name + time.strftime(".%Y%m%d-%H%M%S", now).encode()
    make_private(os.path.dirname(place))
    disk.rename_path(vault.path, place)
    return place


def describe(session: Session) -> tuple[VaultTotal, VaultUsage]:
    return vault_total(session.vault), usage(session.vault)


def usage_of(session: Session) -> VaultUsage:
    """Return the usage of the session's vault. Walks the whole vault, and so does ``describe``."""
    return usage(session.vault)


def problems(session: Session) -> list[VaultProblem]:
    return check(session.vault)


def forks_unused(vault: Vault, seconds: float, now: int) -> list[str]:
    """Return the unnamed forks that have been unused for ``seconds``."""
    return old_forks(vault, int(seconds * SECOND), now)


def sweep(
    vault: Vault,
    kept: RetentionLimits,
    now: int,
    *,
    forks_older: float | None = None,
    dry_run: bool = False,
    caches: bool = False,
) -> PruneResult:
    """Run ``collect_garbage`` for the user and journal it. Hold the vault's lock. ``forks_older``: seconds."""
    older = None if forks_older is None else int(forks_older * SECOND)
    swept = collect_garbage(vault, kept, now, forks_older=older, dry_run=dry_run, is_asked=True, caches=caches)
    if swept and not dry_run:
        vault.journal.append("gc", "", told(swept), time=now)
    return swept


def kept_caches(vault: Vault) -> int:
    """Return the bytes of the caches that commands have left for the next ones."""
    return sum(pool.size for pool in shared_caches(vault.cache))


def told(swept: PruneResult) -> dict[str, object]:
    """Return a prune result as data for the journal and for JSON."""
    return {
        "applies": [apply.name for apply in swept.applies],
        "checkpoints": list(swept.checkpoints),
        "forks": list(swept.forks),
        "layers": len(swept.layers),
        "snapshots": len(swept.snapshots),
        "leftovers": swept.leftovers,
        "bytes": swept.size,
    }


def remove_vault(vault: Vault) -> None:
    """Remove a whole vault. Raise MudroomError if its project exists. Hold the vault's lock."""
    if os.path.isdir(vault.source):
        raise MudroomError(f"the project {show(vault.source)} is there: its vault stays")
    aside = vault.path + b".gone"
    if os.path.isdir(aside):  # left by a removal that was killed
        remove_tree(aside)
    disk.rename_path(vault.path, aside)
    remove_tree(aside)
