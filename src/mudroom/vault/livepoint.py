"""A checkpoint of a fork whose upper is mounted: a mounted layer cannot be sealed, so what it holds is copied.

Every process that could write to the layer is stopped by whoever calls this. The fork itself stays as it is: its upper
goes on, and the checkpoint has a layer of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from mudroom.core import stack
from mudroom.core.change import Change
from mudroom.core.retention import surplus_checkpoints
from mudroom.core.stack import Checkpoint
from mudroom.errors import UsageError
from mudroom.stage.beneath import look_beneath, open_root
from mudroom.stage.closed import through
from mudroom.stage.flatten import flatten
from mudroom.vault.deep import merge_originals
from mudroom.vault.fork import Fork
from mudroom.vault.record import save
from mudroom.vault.stacking import require_free, upper_is_empty
from mudroom.vault.store import Vault


def copied_checkpoint(vault: Vault, fork: Fork, name: str, time: int, keep: int | None) -> Checkpoint:
    """``keep``: it is one of mudroom's own, of which so many stay; None: somebody gave it its name.

    Raises UsageError if the name is taken or no name, or if the fork is a copy."""
    require_free(fork, name)
    layers = fork.state.layers
    if fork.has_copy:
        raise UsageError(
            f"{fork.name} is a staged copy with commands in its background: it cannot be frozen while they run",
            "mudroom ps --end ID ends one, mudroom ps --end --all all of them",
        )
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
    flatten([fork.upper], place + b"/tree", copying=True)
    merge_originals([upper], place)
    record = fork.record
    if record is not None:
        changes = tuple(_as_copied(place + b"/tree", record.changeset.changes))
        save(place + b"/record", record._replace(changeset=record.changeset._replace(changes=changes)), durable=True)
    return name


def _as_copied(tree: bytes, changes: Sequence[Change]) -> Iterator[Change]:
    """What was collected of the upper, as it is in the copy: an apply is held to the very files that were looked at."""
    root = open_root(tree)
    try:
        for change in changes:
            found = through(root, change.path, look_beneath) if change.staged is not None else None
            yield change if found is None else change._replace(staged=found)
    finally:
        os.close(root)
