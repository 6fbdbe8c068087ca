"""Deep stacks: a fork's many sealed layers are replaced by one, so that mounts and reads need not go through all of
them.

A checkpoint keeps the layers from which it was made. They cost little, because the merged layer links to their files.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree import stack
from mudroom.stage.layers.flatten import flatten
from mudroom.stage.layers.shown import carry
from mudroom.stage.originals.original import Originals
from mudroom.vault.forks.copy_layer import as_in_layer
from mudroom.vault.moment import present
from mudroom.vault.record import save
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_all, sync_directory

DEEP = 24
"""With more sealed layers than this, the lower ones are merged."""
KEPT = 8
"""Sealed layers that are not merged: rollbacks go to the most recent ones."""


def is_deep(fork: Fork) -> bool:
    return len(fork.state.layers) > DEEP


def merge_lowest(vault: Vault, fork: Fork) -> str:
    """Merge the lowest layers into one. Return its id; the fork does not use it yet. A command may be running."""
    lowest = fork.state.layers[:-KEPT]
    name = vault.new_layer()
    place = vault.layer(name)
    os.mkdir(place + b"/tree", 0o700)
    flatten([vault.layer(layer) + b"/tree" for layer in reversed(lowest)], place + b"/tree")
    merge_originals([vault.layer(layer) for layer in lowest], place)
    carry([vault.layer(layer) for layer in reversed(lowest)], place)
    record = vault.layer(lowest[-1]) + b"/record"
    if os.path.exists(record):
        os.link(record, place + b"/record")
    return name


def use_merged_layer(fork: Fork, merged: str) -> None:
    """Let the fork use the merged layer, from the next command on. Hold the fork's lock since ``merge_lowest``."""
    state = fork.state
    fork.save(stack.flattened(state, len(state.layers) - KEPT, merged))


def merge_if_deep(vault: Vault, fork: Fork) -> None:
    """Merge the lowest layers if there are many. Hold the fork's lock; no command may be running in it.

    A fork that file tools change and checkpoints freeze gets layers without a command that would merge them.
    """
    if is_deep(fork):
        use_merged_layer(fork, merge_lowest(vault, fork))


def unstack(vault: Vault, fork: Fork) -> None:
    """Let a fork at rest have one writable layer with all its changes, and no sealed ones. Hold its lock.

    A lower directory of an overlay must not lie in another one (ELOOP: ovl_check_layer, fs/overlayfs/super.c), as the
    layers lie in the user's home. The writable one may.
    """
    state, name = fork.state, vault.new_layer()
    place, layers = vault.layer(name), [vault.layer(layer) for layer in (*state.layers, state.upper)]
    try:
        os.mkdir(place + b"/tree", 0o700)
        trees = [layer + b"/tree" for layer in reversed(layers) if os.path.lexists(layer + b"/tree")]
        flatten(trees, place + b"/tree", copying=True)
        merge_originals(layers, place)
        carry(layers[::-1], place)
        sync_all(vault.path)
    except BaseException:
        vault.throw_away(place)
        raise
    # If cut off from here on, the changes are collected again. Without a boot no command counts as cut off by a crash.
    fork.begin(present()._replace(boot=0), durable=True)
    if (record := fork.record) is not None:
        save(fork.record_path, as_in_layer(record, place + b"/tree", fork.shown), durable=True)
    fork.save(state._replace(upper=name, layers=()))
    fork.end()
    sync_directory(fork.path)
    vault.throw_away(layers[-1])


def merge_originals(
    layers: list[bytes], target: bytes, *, leave_out: Callable[[bytes], bool] = lambda _path: False
) -> None:
    originals, merged = Originals(layers), Originals([target])
    for path in originals.paths():
        original = originals.get(path)
        content = originals.content(path)
        if original is None or leave_out(path):
            continue
        if content is None or original.entry is None:
            merged.keep(path, original.entry)
            continue
        with Descriptor(content):
            merged.keep_file(path, original.entry, content)
    merged.save()
