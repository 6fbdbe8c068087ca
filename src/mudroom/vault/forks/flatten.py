"""Deep stacks: many sealed layers of a fork replaced by one, so that no mount and no read has to go through them all.

A checkpoint keeps the layers it was made of; they cost next to nothing, since the merged layer links to their files.
"""

from __future__ import annotations

import os

from mudroom.core.tree import stack
from mudroom.stage.layers.flatten import flatten
from mudroom.stage.originals.original import Originals
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

DEEP = 24
"""So many sealed layers are let grow before the lower ones are merged."""
KEPT = 8
"""So many are left as they are: what was sealed last is what a rollback goes to."""


def is_deep(fork: Fork) -> bool:
    return len(fork.state.layers) > DEEP


def merge_lowest(vault: Vault, fork: Fork) -> str:
    """Make one layer of the lowest. Returns its id; nobody stands on it yet. May go on while a command runs."""
    lowest = fork.state.layers[:-KEPT]
    name = vault.new_layer()
    place = vault.layer(name)
    os.mkdir(place + b"/tree", 0o700)
    flatten([vault.layer(layer) + b"/tree" for layer in reversed(lowest)], place + b"/tree")
    merge_originals([vault.layer(layer) for layer in lowest], place)
    record = vault.layer(lowest[-1]) + b"/record"
    if os.path.exists(record):
        os.link(record, place + b"/record")
    return name


def stand_on(fork: Fork, merged: str) -> None:
    """From the next command on. Hold the fork's lock since ``merge_lowest``."""
    state = fork.state
    fork.save(stack.flattened(state, len(state.layers) - KEPT, merged))


def merge_originals(layers: list[bytes], target: bytes) -> None:
    known, merged = Originals(layers), Originals([target])
    for path in known.paths():
        original = known.get(path)
        content = known.content(path)
        if original is None:
            continue
        if content is None or original.entry is None:
            merged.keep(path, original.entry)
            continue
        try:
            merged.keep_file(path, original.entry, content)
        finally:
            os.close(content)
    merged.save()
