"""A digest for a fork's result: equal for two forks whose changes have the same paths and results."""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Iterable

from mudroom.core.tree.change import Change, Changeset
from mudroom.errors import ForkMoved
from mudroom.stage.source import SourceContent
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

_CHUNK = 1 << 20


def result_digest(vault: Vault, fork: Fork, changes: Iterable[Change] | None = None) -> str:
    """Return 40 hexadecimal digits over the changed paths with their kinds, permissions, link targets and contents.

    Times, owners and inodes are left out, because they differ between a try's attempts. ``changes``: used instead of
    the record's. Raise ForkMoved if a changed file is missing.
    """
    if changes is None:
        record = fork.record
        changes = (record.changeset if record is not None else Changeset()).changes
    digest = blake2b(digest_size=20, person=b"mudroom-result")
    with OpenFork(vault, fork) as opened:
        staged = opened.staged()
        for change in changes:
            digest.update(b"%d %b" % (len(change.path), change.path))
            digest.update(_entry(change, staged))
    return digest.hexdigest()


def _entry(change: Change, staged: SourceContent) -> bytes:
    entry = change.staged
    if entry is None:
        return b"gone\n"
    content = _content(change.path, staged) if entry.kind == "file" else b""
    return b"%b %o %d %b %b\n" % (entry.kind.encode(), entry.mode, len(entry.target), entry.target, content)


def _content(path: bytes, staged: SourceContent) -> bytes:
    digest = blake2b(digest_size=32)
    try:
        with os.fdopen(staged.open(path), "rb", buffering=0) as stream:
            while data := stream.read(_CHUNK):
                digest.update(data)
    except FileNotFoundError:
        raise ForkMoved(path, os.fsdecode(path)) from None
    return digest.digest()
