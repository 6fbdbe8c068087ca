"""Checkpoints, rollbacks and forks of forks: new lists of layers. Nothing here looks at the files of the project.

The caller holds the fork's lock.
"""

from __future__ import annotations

import os

from mudroom.core.tree import stack
from mudroom.core.tree.stack import Checkpoint
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import safe_open
from mudroom.vault.store.fork import Fork, fork_directory, is_plain
from mudroom.vault.store.store import Vault


def upper_is_empty(fork: Fork) -> bool:
    """Whether nothing was changed since the last seal: no record, and nothing in the writable layer."""
    if fork.has_copy:
        return False  # seal_copy finds out
    try:
        upper = safe_open.open_directory(fork.upper)
    except FileNotFoundError:
        return True
    try:
        with os.scandir(upper) as scan:
            return next(scan, None) is None
    finally:
        os.close(upper)


def seal_upper(vault: Vault, fork: Fork) -> None:
    """Nothing is written to the upper any more; a new one takes its place. No cost but that of three small files.

    Of a copy view: what the copy has changed is written into the upper first, which costs what was changed.
    """
    if upper_is_empty(fork):
        return
    if fork.has_copy:
        from mudroom.vault.forks.copy_layer import seal_copy

        seal_copy(vault, fork)
        return
    vault.seal(fork)


def checkpoint(vault: Vault, fork: Fork, name: str, time: int, *, automatic: bool = False) -> Checkpoint:
    """Freeze what the fork holds under a name. Raises UsageError if the name is taken or no name."""
    require_free(fork, name)
    seal_upper(vault, fork)
    state = stack.with_checkpoint(fork.state, name, time, automatic=automatic)
    fork.save(state)
    return state.checkpoints[-1]


def require_free(fork: Fork, name: str) -> None:
    """Raises UsageError if a checkpoint of the fork cannot have this name."""
    if not is_plain(name):
        raise UsageError(
            f"{name!r} cannot be the name of a checkpoint",
            "use up to 64 letters, digits, '-', '_' and '.', starting with a letter or digit",
        )
    if fork.state.checkpoint(name) is not None:
        raise UsageError(f"{fork.name} has a checkpoint named {name} already", "choose another name")


def find_checkpoint(fork: Fork, name: str) -> Checkpoint:
    point = fork.state.checkpoint(name)
    if point is None:
        known = ", ".join(one.name for one in fork.state.checkpoints[-8:]) or "none"
        raise UsageError(f"{fork.name} has no checkpoint named {name}", f"the last ones: {known}")
    return point


def last_checkpoint(fork: Fork) -> Checkpoint:
    """The newest that no rollback has left and that the fork does not stand on as it is: to roll back to it drops
    something. Raises UsageError if there is none."""
    state, clean = fork.state, upper_is_empty(fork)
    for point in reversed(state.checkpoints):
        if not is_left_by_rollback(point) and not (clean and point.layers == state.layers):
            return point
    raise UsageError(
        f"{fork.name} has no checkpoint from which it differs", f"mudroom checkpoint --fork {fork.name} lists them"
    )


def is_standing_on(fork: Fork, point: Checkpoint) -> bool:
    """Whether the fork holds what it held at this checkpoint, as far as its layers tell."""
    return fork.state.layers == point.layers and upper_is_empty(fork)


def timeline(fork: Fork) -> list[tuple[Checkpoint, bool]]:
    """The checkpoints, oldest first, each with whether the fork is standing on it. They may be hundreds."""
    state, clean = fork.state, upper_is_empty(fork)
    return [(point, clean and point.layers == state.layers) for point in state.checkpoints]


def is_left_by_rollback(point: Checkpoint) -> bool:
    return point.automatic and point.name.startswith("rollback-")


def rollback(vault: Vault, fork: Fork, name: str, time: int) -> Checkpoint | None:
    """Drop what came after a checkpoint. Returns the checkpoint that was made of it first, by which it can be had
    back; None if there was nothing to drop."""
    point = find_checkpoint(fork, name)
    before = None
    if not upper_is_empty(fork) or fork.state.layers != point.layers:
        seal_upper(vault, fork)
        if fork.state.layers != point.layers:
            same = next((one for one in fork.state.checkpoints if one.layers == fork.state.layers), None)
            before = same or checkpoint(vault, fork, stack.free_name(fork.state, "rollback"), time, automatic=True)
    state = fork.state
    fork.save(stack.rolled_back(state, point, vault.new_layer()))
    vault.throw_away(vault.layer(state.upper))
    if fork.is_copy:
        vault.throw_away(fork.copy_place + b"/manifest")  # the next command makes the copy anew
    restore_record(vault, fork)
    vault.empty_trash()
    return before


def restore_record(vault: Vault, fork: Fork) -> None:
    """The record of what the sealed layers come to, as the fork's own."""
    layers = fork.state.layers
    kept = vault.layer(layers[-1]) + b"/record" if layers else b""
    beside = fork.path + b"/record.link"  # not record.new: that is written to, which would go into the layer's own
    if kept and os.path.lexists(kept):
        os.close(safe_open.open_regular(kept))  # no link, that is
        if os.path.exists(beside):  # a crash left it
            os.unlink(beside)
        os.link(kept, beside)
        os.rename(beside, fork.record_path)
        if os.path.exists(beside):  # rename(2) of two names of one file does nothing
            os.unlink(beside)
    elif os.path.exists(fork.record_path):
        os.unlink(fork.record_path)


def fork_of(vault: Vault, parent: Fork, name: str, time: int, at: str | None = None) -> Fork:
    """A new fork that starts with what ``parent`` holds now, or held at a checkpoint. Neither sees what the other
    does later."""
    if at is None:
        seal_upper(vault, parent)
        layers = None
    else:
        layers = find_checkpoint(parent, at).layers
    if parent.name == name:
        raise UsageError(f"there is a fork named {name} already", "choose another name")
    child = vault.add_fork(name, stack.forked(parent.state, parent.name, vault.new_layer(), time, layers))
    restore_record(vault, child)
    child.note_credentials(parent.credentials)
    landed = parent.path + b"/landed"
    if os.path.exists(landed):
        os.link(landed, child.path + b"/landed")  # replaced when it changes, never written to
    return child


def rename(vault: Vault, fork: Fork, name: str) -> Fork:
    """Another name for a fork. Raises UsageError if it is taken."""
    target = vault.path + b"/forks/" + fork_directory(name)
    if os.path.lexists(target):
        raise UsageError(f"there is a fork named {name} already", "choose another name")
    state = fork.state._replace(named=True)  # read first: a damaged fork keeps its name
    os.rename(fork.path, target)
    renamed = vault.fork(name)
    renamed.save(state)
    return renamed


def drop_checkpoint(vault: Vault, fork: Fork, name: str) -> None:
    """Forget a checkpoint. Its layers go when nobody else needs them (``gc``)."""
    find_checkpoint(fork, name)
    fork.save(stack.without_checkpoint(fork.state, name))
    del vault


def require_idle(fork: Fork) -> None:
    """Raises MudroomError if the fork is mounted somewhere: it would be a second truth."""
    if os.path.exists(fork.path + b"/mount"):
        raise MudroomError(f"the fork {fork.name} is mounted", f"mudroom unmount {fork.name}")
