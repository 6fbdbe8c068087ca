"""Secrets in a fork's layers that the next commands may not read.

A command that was shown a secret may copy it up. Then a layer holds it, above the mask. So:

1. When a command ends, the secrets that it was shown leave its writable layer (``keep_apart``). At a secret's path the
   stack's layers hold only files from commands that saw it empty; each layer lists these paths.
2. Before a fork is used, its layers are searched for secrets that were not masked for all its writers (``hide``):
   because of a crash, an earlier version, or a policy that has changed since. A copy found in the writable layer is
   moved to the shown secrets; a copy in a sealed layer is copied there, and an empty file over it hides it.
3. A command that is shown a secret never writes to a layer in which other commands wrote at the secret's path, and sees
   the project's file there, not theirs (``begin``).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Changeset, Remark
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import LIVE
from mudroom.errors import UsageError
from mudroom.stage import safe_open
from mudroom.stage.beneath import open_layer
from mudroom.stage.layers.layer import LayerWriter, open_staged
from mudroom.stage.layers.shown import HELD, PATHS, TREE, add_copy, add_own_paths, find_in, own_paths, read_paths, take
from mudroom.stage.originals.collection import MASKED, MASKED_BESIDE
from mudroom.stage.source import OpenSource, Source
from mudroom.stage.views.secret import files_at, make_mask
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.masked_secrets import MaskedSecrets, masked_of, note_masked
from mudroom.vault.store.store import Vault


def begin(vault: Vault, fork: Fork) -> None:
    """Prepare a fork for a writer with the mask of ``vault``. Hold the fork's lock; it must not be mounted anywhere."""
    former = hide(vault, fork)
    mask = vault.mask
    shown = (
        mask.shown | {path for path in read_paths(fork.shown + PATHS) if mask.allows(path)}
        if fork.shown
        else mask.shown
    )
    if shown and not fork.has_copy:
        upper = fork.layer(fork.state.upper)
        if find_in(upper, shown) or not shown.isdisjoint(own_paths(upper)):
            vault.seal(fork)
    if mask.shown:
        _show_project(vault, fork)
    if mask.paths or shown or mask.known:
        note_masked(fork.path, fork.state, mask.paths, former)


def _show_project(vault: Vault, fork: Fork) -> None:
    """Show the next command the project's files where commands that saw them empty have written. Otherwise it would
    continue with those commands' versions, and an apply would empty the project's file."""
    state = fork.state
    own = frozenset[bytes]().union(*(own_paths(fork.layer(name)) for name in (*state.layers, state.upper)))
    if not (own := own & vault.mask.shown):
        return
    own -= read_paths(fork.shown + PATHS) if fork.shown else frozenset()
    upper = fork.layer(fork.state.upper)
    with OpenFork(vault, fork) as opened:
        for path in sorted(own):
            entry = opened.base.look(path)
            if entry is not None and entry.kind == "file":
                _make_tree(upper, opened.lower)
                with Descriptor(opened.base.open(path)) as file:
                    add_copy(upper, path, file, fork.shown, opened.base)


def _make_tree(upper: bytes, below: Source) -> None:
    """Make the tree for a writable layer, if it has none: a sealed layer always has one."""
    os.close(safe_open.make_directory(upper + TREE))
    top = below.look(b"")
    if top is not None and not os.listdir(upper + TREE):
        os.chmod(upper + TREE, top.mode)


def require_masked_base(vault: Vault, fork: Fork) -> None:
    """Raise UsageError if the fork's snapshot holds an unmasked secret that readers with the mask of ``vault`` may not
    read. This happens when the project, from which the mask is made, no longer has the secret."""
    if fork.state.base == LIVE:
        return
    held = read_paths(vault.base(fork.state.base) + HELD) - vault.mask.paths
    lost = sorted(path for path in held if not vault.mask.allows(path))
    if lost:
        raise UsageError(
            f"the snapshot of {fork.name} holds {show(lost[0])}, a secret that the project has no longer",
            f"--show {show(lost[0])} lets a command read it; a new fork has none",
        )


def not_in_snapshot(vault: Vault, fork: Fork) -> list[str]:
    """Return a note if the fork's snapshot lacks a secret that a command is shown: it was made for a command that was
    not."""
    base = fork.state.base
    if base == LIVE:
        return []
    place = vault.base(base) + b"/source/"
    missing = [path for path in sorted(vault.mask.shown) if not os.path.lexists(place + path)]
    if not missing:
        return []
    return [f"{show(missing[0])} is not in the snapshot of {fork.name}, so it cannot be shown: a new fork has it"]


def hide(vault: Vault, fork: Fork) -> MaskedSecrets:
    """Make sure that no command with the mask of ``vault`` reads a secret from the fork's layers or its copy. Return
    the fork's present ``MaskedSecrets``.

    Hold the fork's lock; no command may be running in it, and it must not be mounted.
    """
    mask, state = vault.mask, fork.state
    wanted = mask.paths
    if not wanted and not mask.has_secrets:
        return MaskedSecrets()
    former = masked_of(fork.path)
    covered = former.at(state)
    if fork.has_copy and (wanted - covered or covered & mask.shown):
        _leave_copy(_with_mask(vault, covered), fork, wanted | mask.shown)
        state = fork.state
    if not wanted - covered:
        return former
    if state.layers or os.path.isdir(fork.upper):
        _search(vault, fork, sorted(wanted))
    note_masked(fork.path, fork.state, wanted | covered, former, searched=not covered)
    return masked_of(fork.path)


def _with_mask(vault: Vault, paths: frozenset[bytes]) -> Vault:
    """Return the vault with exactly these secrets masked."""
    own = vault.mask
    with OpenSource(vault.source) as source:
        mask = make_mask(source, vault.path + b"/masks", files_at(source, sorted(paths)), own.complete)
    kept = own._replace(paths=mask.paths, layer=mask.layer, complete=mask.complete, shown=mask.shown)
    return vault.masked(kept)


def _leave_copy(vault: Vault, fork: Fork, secrets: frozenset[bytes]) -> None:
    """Discard the fork's copy, so that the next command makes another: this copy was made with another mask.

    ``vault`` has the mask with which it was made: a file that its commands saw empty does not count as emptied by them.
    ``secrets``: the project's secrets.
    """
    from mudroom.vault.forks.copy_layer import seal_copy

    seal_copy(vault, fork, secrets=secrets)
    with OpenFork(vault, fork) as opened:
        _make_tree(fork.layer(fork.state.upper), opened.lower)  # without a tree the fork's files would count as missing
    vault.throw_away(fork.copy_place + b"/manifest")


def _search(vault: Vault, fork: Fork, paths: Iterable[bytes]) -> None:
    state = fork.state
    upper, former = fork.layer(state.upper), masked_of(fork.path)
    is_known = former.top is not None or not former.names
    theirs = former.paths | own_paths(upper)
    """Paths at which commands that saw them empty may have written. Used only if that is known."""
    moved = [
        path
        for path, entry in find_in(upper, paths).items()
        if (is_known and path not in theirs) or _may_tell(upper, path, entry)
    ]
    with OpenFork(vault, fork) as opened:
        if moved:
            take(upper, moved, fork.shown, opened.lower)
    held = dict[bytes, bytes]()
    """The topmost layer that holds each secret."""
    left = set(paths)
    for layer in (upper, *(fork.layer(name) for name in reversed(state.layers))):
        found = find_in(layer, sorted(left))
        left -= found.keys()
        held |= {path: layer for path, entry in found.items() if _may_tell(layer, path, entry)}
    if held:
        _cover(vault, fork, upper, held)


def _may_tell(layer: bytes, path: bytes, entry: object) -> bool:
    """Return whether a layer's entry at a secret's path may be the secret."""
    is_file = isinstance(entry, Entry) and entry.kind == "file" and entry.size > 0
    return is_file and path not in own_paths(layer)


def _cover(vault: Vault, fork: Fork, upper: bytes, held: dict[bytes, bytes]) -> None:
    """Hide secrets in sealed layers by empty files in the writable layer, and keep copies as shown secrets."""
    with OpenFork(vault, fork) as opened:
        below = opened.lower
        _make_tree(upper, below)
        with Descriptor(open_layer(upper + TREE)) as root:
            writer = LayerWriter(root, below)
            for path, layer in held.items():
                entry = below.look(path)
                mode = stat.S_IMODE(entry.mode) if entry is not None else 0o600
                _keep_copy(fork, upper, layer, path, below)
                writer.data(path, b"", mode=mode)
            writer.finish()


def _keep_copy(fork: Fork, upper: bytes, layer: bytes, path: bytes, lower: Source) -> None:
    shown = fork.shown
    if shown and find_in(shown, [path]):
        return  # a later command has changed it
    with Descriptor(open_layer(layer + TREE)) as root:
        opened = open_staged(root, path)
    with Descriptor(opened):
        add_copy(upper, path, opened, shown, lower)


def keep_apart(fork: Fork, opened: OpenFork) -> bool:
    """Move secrets that the last command was shown from the fork's writable layer to the shown secrets. Return whether
    there were any. Hold the fork's lock; it must not be mounted anywhere."""
    paths, state = touched(fork, opened), fork.state
    if not (paths and take(fork.layer(state.upper), paths, fork.shown, opened.visible)):
        return False
    former = masked_of(fork.path)
    told = [
        path
        for layer in map(fork.layer, state.layers)
        for path, entry in find_in(layer, opened.shown_paths).items()
        if _may_tell(layer, path, entry)
    ]
    clean = former.at(state) | opened.shown_paths.difference(told)
    note_masked(fork.path, state, clean, former)  # from now on a directory in the layer that hides them is no change
    return True


def touched(fork: Fork, opened: OpenFork) -> frozenset[bytes]:
    """Return the secrets in the fork's writable layer that its last command was shown."""
    shown = opened.shown_paths
    if not shown:
        return frozenset()
    upper = fork.layer(fork.state.upper)
    found = find_in(upper, sorted(shown))
    return frozenset(found) - own_paths(upper) if found else frozenset()


def note_own(fork: Fork, changeset: Changeset, masked: Collection[bytes]) -> None:
    """Note the masked paths at which the fork's writable layer has entries from commands that saw these files empty."""
    new = {remark.path for remark in changeset.remarks if _is_own(remark)}.intersection(masked)
    if new and (new := new & masked_of(fork.path).at(fork.state)):
        add_own_paths(fork.layer(fork.state.upper), frozenset(new))


def _is_own(remark: Remark) -> bool:
    return remark.text in (MASKED, MASKED_BESIDE)
