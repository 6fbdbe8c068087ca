"""A checkpoint of a fork whose upper is mounted: a mounted layer cannot be sealed, so what it holds is copied. What a
staged copy has changed is written into a layer, as it is to seal it, but the copy does not stand on that.

Every process that could write to the layer is stopped by whoever calls this. The fork itself stays as it is: its upper
goes on, and the checkpoint has a layer of its own.
"""

from __future__ import annotations

import os

from mudroom.core import stack
from mudroom.core.retention import surplus_checkpoints
from mudroom.core.stack import Checkpoint
from mudroom.stage.flatten import flatten
from mudroom.stage.staged import CopyView
from mudroom.vault.copied import as_in_layer
from mudroom.vault.deep import merge_originals
from mudroom.vault.fork import Fork
from mudroom.vault.opened import OpenFork
from mudroom.vault.record import save
from mudroom.vault.stacking import require_free, upper_is_empty
from mudroom.vault.store import Vault


def copied_checkpoint(vault: Vault, fork: Fork, name: str, time: int, keep: int | None) -> Checkpoint:
    """``keep``: it is one of mudroom's own, of which so many stay; None: somebody gave it its name.

    Raises UsageError if the name is taken or no name."""
    require_free(fork, name)
    layers = fork.state.layers
    if not upper_is_empty(fork):
        layers = (*layers, _copied(vault, fork))
    state = stack.with_checkpoint(fork.state, name, time, automatic=keep is not None)
    point = state.checkpoints[-1]._replace(layers=layers)
    state = state._replace(checkpoints=(*state.checkpoints[:-1], point))
    for old in surplus_checkpoints(state, keep) if keep is not None else ():
        state = stack.without_checkpoint(state, old)
    fork.save(state)
    return point


def _copied(vault: Vault, fork: Fork) -> str:
    name = vault.new_layer()
    place, upper = vault.layer(name), vault.layer(fork.state.upper)
    os.mkdir(place + b"/tree", 0o700)
    if fork.has_copy:
        with OpenFork(vault, fork) as opened:
            CopyView(fork.copy_place, opened.lower).bring_into(place + b"/tree", opened.lower)
    else:
        flatten([fork.upper], place + b"/tree", copying=True)
    merge_originals([upper], place)
    record = fork.record
    if record is not None:
        save(place + b"/record", as_in_layer(record, place + b"/tree"), durable=True)
    return name
