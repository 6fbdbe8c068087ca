"""Layers that nobody but mudroom can reach, before their files are reviewed, sealed for others, or land.

A file of a layer was visible to the sandboxes in which the layer was mounted. A process that has got a descriptor or a
mapping of such a file keeps it when the sandbox has ended, and could change the file after the review, or when it is
the project's: an apply moves files. Stores to a mapped page change neither mtime nor ctime, so stamps do not show them.

1. ``released/<layer>`` says that the layer's mounts were gone when it was looked at, with everything that led into them
   (``stage/views/released.py``). A command that begins removes it (``Fork.begin``).
2. A layer with such a mark has the content that its files have now, until the next command: stamps can be trusted.
3. While a process of the fork's sandbox lives, the fork is refused, with the process.
4. If no process of the sandbox lives and something still leads into a layer, or that cannot be found out, the layer's
   files are replaced by copies, which no sandbox has seen. Directories are new as well.

Hold the fork's lock.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mudroom.errors import FULL, MudroomError
from mudroom.stage.layers.flatten import flatten
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.views.released import processes_in, released
from mudroom.vault.forks.copy_layer import as_in_layer
from mudroom.vault.record import ForkRecord, load, save
from mudroom.vault.store.fork import RELEASED, Fork
from mudroom.vault.store.store import Vault

_COPY = b"/apart"
"""A layer's copy until it takes the place of its tree."""


def set_apart(vault: Vault, fork: Fork) -> bool | None:
    """Make sure that nobody else can change the files of a fork. Return None if that was known, else whether files were
    replaced by copies: the fork's record has to be collected again then.

    Raise MudroomError if a process of its sandbox is alive.
    """
    names = _unproven(vault, fork)
    if not names:
        return None
    trees = [vault.layer(name) + b"/tree" for name in names]
    answers = released(trees, vault.path + b"/probe-" + vault.new_id().encode())
    held = [name for name, is_released in zip(names, answers, strict=True) if not is_released]
    for name in held:
        _require_no_process(vault, fork, name)
    for name in held:
        _replace(vault, name)
    _note(vault, names)
    return bool(held)


def _unproven(vault: Vault, fork: Fork) -> list[str]:
    """Return the fork's layers that hold files and have no mark."""
    state, names = fork.state, list[str]()
    for name in (*state.layers, state.upper):
        place = vault.layer(name)
        if os.path.exists(vault.path + RELEASED + b"/" + name.encode()):
            continue
        if os.path.isdir(place + _COPY) and not os.path.isdir(place + b"/tree"):
            os.rename(place + _COPY, place + b"/tree")  # interrupted in between
        try:
            with os.scandir(place + b"/tree") as scan:
                if next(scan, None) is not None:
                    names.append(name)
        except FileNotFoundError:
            continue
    return names


def _require_no_process(vault: Vault, fork: Fork, name: str) -> None:
    alive = processes_in(vault.layer(name) + b"/tree", vault.project)
    if alive:
        rows = ", ".join(f"{process.pid} ({process.command})" for process in alive[:3])
        raise MudroomError(
            f"a process of a command in the fork {fork.name} is still alive: {rows}",
            f"wait for its end, or end it: kill -9 {alive[0].pid}",
        )


def _replace(vault: Vault, name: str) -> None:
    """Replace the files of a layer by copies."""
    place = vault.layer(name)
    tree, copy = place + b"/tree", place + _COPY
    if os.path.isdir(copy):
        remove_tree(copy)  # an earlier try was interrupted
    os.mkdir(copy, 0o700)
    flatten([tree], copy, copying=True)
    vault.throw_away(tree)
    os.rename(copy, tree)
    for path in _records(vault, name):
        record = load(path, ForkRecord)
        save(path, as_in_layer(record, tree), durable=False)
    vault.empty_trash()


def _records(vault: Vault, name: str) -> Sequence[bytes]:
    """Return the records with entries of a layer: of the forks that stand on it, and of the layers above it."""
    paths = set[bytes]()
    for fork in vault.forks():
        state = fork.state_or_none
        if state is not None and name in state.references:
            paths.add(fork.record_path)
            paths |= {vault.layer(other) + b"/record" for other in state.references}
    return [path for path in sorted(paths) if os.path.lexists(path)]


def _note(vault: Vault, names: Sequence[str]) -> None:
    os.makedirs(vault.path + RELEASED, 0o700, exist_ok=True)
    for name in names:
        try:
            with open(vault.path + RELEASED + b"/" + name.encode(), "wb"):
                pass
        except OSError as error:
            if error.errno not in FULL:
                raise
            return  # a full disk: it is looked at again the next time
