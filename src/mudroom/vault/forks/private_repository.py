"""A fork's private repository (``vault/git/private_directory.py``): made, renewed, kept.

It is a layer between the base and the fork's own layers, named in the fork's state. Until the fork changes its
repository, it is remade whenever the user's HEAD, index, refs or settings have changed. From then on it is kept: the
fork's index and commits belong to the state with which they began. A refreshed index is not a change.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from mudroom.core.git.index import is_same_staging
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import LIVE, PrivateRepository
from mudroom.stage.beneath import directory
from mudroom.stage.layers.layer import read_directory, remove_at, remove_tree
from mudroom.stage.source import OpenSource, read_all
from mudroom.vault.git.private_directory import (
    PrivateGit,
    Survey,
    id_length,
    shown_directories,
    stamp,
    survey,
    write_private,
)
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

_TRIES = 3
"""Attempts to read the repository if it changes meanwhile."""
_UNSETTLED = "0"
_INDEX_LIMIT = 256 << 20


def renew(vault: Vault, fork: Fork) -> list[str]:
    """Give a fork its private repository, or remake it if the fork has not changed it. Return notes."""
    surveyed = survey(vault.source) if os.path.lexists(vault.source + b"/.git") else Survey()
    notes = [surveyed.note] if surveyed.note else []
    state = fork.state
    if state.base != LIVE and (state.repository is not None or fork.has_copy):
        return notes
    masked = vault.mask.paths
    now = stamp(vault.source, surveyed.gits, masked, time.time_ns()) if surveyed.gits else ""
    if state.repository is not None and now and state.repository.stamp == now:
        return notes
    if fork.has_copy or not _is_untouched(vault, fork, surveyed.gits):
        return notes
    if not surveyed.gits:
        _use(vault, fork, None)
        return notes
    try:
        _use(vault, fork, _made(vault, surveyed.gits))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return [f".git leads to {show(surveyed.gits[0].place.git)}, of which forks get no repository: {reason}"]
    return notes


def objects_outside(vault: Vault, fork: Fork) -> tuple[bytes, ...]:
    """Return the object directories that commands read in a fork with a private repository. They follow from the
    project's own ``.git``, never from the fork's files."""
    if fork.state.repository is None or vault.is_elsewhere:
        return ()
    return shown_directories(survey(vault.source).gits)


def _made(vault: Vault, gits: Sequence[PrivateGit]) -> PrivateRepository:
    """Make a layer. Raise OSError or ValueError if the repository cannot be read."""
    masked = vault.mask.paths
    for left in reversed(range(_TRIES)):
        name = vault.new_layer()
        try:
            before = stamp(vault.source, gits, masked, time.time_ns())
            place = vault.layer(name) + b"/tree"
            os.mkdir(place, 0o700)
            with OpenSource(vault.source) as live:
                write_private(vault.source, place, gits, masked, live)
            if before == stamp(vault.source, gits, masked, time.time_ns()) or not left:
                return PrivateRepository(name, before if left and before else _UNSETTLED)
        except BaseException:
            remove_tree(vault.layer(name))
            raise
        remove_tree(vault.layer(name))
    raise AssertionError


def _use(vault: Vault, fork: Fork, repository: PrivateRepository | None) -> None:
    """Replace the layer. The old layer is removed unless another fork needs it."""
    before = fork.state.repository
    fork.save(fork.state._replace(repository=repository))
    if before is None:
        return
    others = [other.state_or_none for other in vault.forks()]
    if all(other is not None and before.layer not in other.references for other in others):
        vault.throw_away(vault.layer(before.layer))
        vault.empty_trash()


def _is_untouched(vault: Vault, fork: Fork, gits: Sequence[PrivateGit]) -> bool:
    """Return whether the fork, in all its layers and checkpoints, has left the repositories unchanged. An index that
    was only refreshed is removed, because it belongs to the old layer."""
    state = fork.state
    paths = dict.fromkeys((b".git", *(git.path for git in gits)))
    refreshed = []
    for name in state.own_layers:
        tree = vault.layer(name) + b"/tree"
        if not os.path.isdir(tree):
            continue
        with OpenSource(tree, is_layer=True) as layer:
            changed = [path for path in paths if layer.look(path) is not None]
            if changed and name != state.upper:
                return False
            if not all(_is_refreshed(vault, fork, layer, path, gits) for path in changed):
                return False
            refreshed += changed
    if refreshed:
        with OpenSource(fork.upper, is_layer=True) as layer:
            for path in refreshed:
                above, _slash, last = path.rpartition(b"/")
                with directory(layer.root, above) as opened:
                    remove_at(opened, last)
    return True


def _is_refreshed(vault: Vault, fork: Fork, layer: OpenSource, path: bytes, gits: Sequence[PrivateGit]) -> bool:
    """Return whether a repository's only change is the index's stat data."""
    repository = fork.state.repository
    length = next((id_length(git.place) for git in gits if git.path == path), 0)
    listing = read_directory(layer.root, path)
    if repository is None or not length or listing is None or listing.opaque or listing.gone:
        return False
    if [(name, entry.kind) for name, entry in listing.entries.items()] != [(b"index", "file")]:
        return False
    with OpenSource(vault.layer(repository.layer) + b"/tree", is_layer=True) as private:
        try:
            before, after = (read_all(source, path + b"/index", _INDEX_LIMIT) for source in (private, layer))
        except OSError:
            return False
    return before is not None and after is not None and is_same_staging(before, after, length)
