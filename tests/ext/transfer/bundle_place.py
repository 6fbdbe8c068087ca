"""Exports and imports of forks."""

from __future__ import annotations

import io
import os
from pathlib import Path

from conftest import Place
from mudroom.core.tree.change import Changeset
from mudroom.ext.transfer.vault.arrival import Arrival, Arrived, arrive
from mudroom.ext.transfer.vault.bundle import export_fork
from mudroom.ext.transfer.vault.import_fork import LIMIT
from mudroom.session import Session
from mudroom.vault.store.store import Vault

NOW = 1_700_000_000 * 10**9
SCRIPT = (
    b"echo more >> edited; rm -r gone removed; mkdir -p new/sub; echo n > new/sub/f; chmod +x mode; rm kind;"
    b"mkdir kind; echo k > kind/k; ln -s edited link; ln new/sub/f new/hard; mkfifo pipe; mv moved there;"
    b"rm -r again; mkdir again; echo again > again/only; mkdir -m 555 closed; truncate -s 3M new/sparse;"
    b"printf x > \"$(printf 'odd\\377\\nname')\""
)


def project(place: Place) -> None:
    for name in ("edited", "gone/a", "gone/b/c", "removed", "mode", "kind", "moved", "again/1", "again/2", "still"):
        place.write(name, f"{name}\n")


def export(session: Session, name: str, path: Path) -> bytes:
    with session.forks.at_rest(name) as fork:
        export_fork(session.vault, fork, os.fsencode(path), NOW)
    return path.read_bytes()


def take_in(vault: Vault, data: bytes, name: str | None = None, limit: int = LIMIT) -> Arrived:
    arrived = arrive(vault, [Arrival(io.BytesIO(data), name)], NOW, limit=limit, is_exact=True)[0]
    if arrived.error is not None:
        raise arrived.error
    return arrived


def shown(changeset: Changeset) -> list[tuple[object, ...]]:
    return [
        (c.path, c.verb, c.source, c.moved_to, c.link_to, c.flags, c.binary, c.lines_added, c.lines_removed)
        for c in changeset.changes
    ]
