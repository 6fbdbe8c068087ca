"""Checkpoints, rollbacks and child forks, as new lists of layers. No project file is read.

The caller holds the fork's lock.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree import stack
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import Checkpoint
from mudroom.errors import ForkExists, MudroomError, UsageError
from mudroom.stage import disk, safe_open
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.ties import ROOTS, Tie, require_single, tie, ties_of
from mudroom.vault.moment import present
from mudroom.vault.store.fork import Fork, fork_directory, is_plain, mount_note
from mudroom.vault.store.masked_secrets import keep_masked, masked_of
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_directory


def upper_is_empty(fork: Fork) -> bool:
    """Whether nothing was changed since the last seal: the writable layer is empty."""
    if fork.has_copy:
        return False  # seal_copy finds the changes
    return tree_is_empty(fork) and not fork.shown_at((fork.state.upper,))


def tree_is_empty(fork: Fork) -> bool:
    """Whether the writable layer is empty, except for secrets that commands were shown."""
    try:
        upper = safe_open.open_directory(fork.upper)
    except FileNotFoundError:
        return True
    with Descriptor(upper):
        if sys.platform == "win32":  # Windows cannot scan a descriptor
            return not disk.names(upper)
        with os.scandir(upper) as scan:
            return next(scan, None) is None


def is_unchanged(vault: Vault, fork: Fork) -> bool:
    """Return whether nothing was changed since the last seal. A copy is compared with its source under the mask of
    ``vault``."""
    if not fork.has_copy:
        return upper_is_empty(fork)
    from mudroom.vault.forks.copy_layer import copy_view

    with OpenFork(vault, fork) as opened:
        return next(iter(copy_view(fork, opened.lower).differences(opened.lower)), None) is None


def seal_upper(vault: Vault, fork: Fork, *, durable: bool = False) -> None:
    """Seal the upper layer, and give the fork a new one. Costs three small files. ``durable``: see ``Vault.seal``.

    For a copy view, the copy's changes are first written into the upper layer (``seal_copy``).
    """
    if upper_is_empty(fork):
        return
    if fork.has_copy:
        from mudroom.vault.forks.copy_layer import seal_copy

        seal_copy(vault, fork)
        return
    vault.seal(fork, durable=durable)


def checkpoint(vault: Vault, fork: Fork, name: str, time: int, *, automatic: bool = False) -> Checkpoint:
    """Freeze the fork's contents under a name. Raise UsageError if the name is taken or not allowed."""
    require_free(fork, name)
    seal_upper(vault, fork, durable=not automatic)
    state = stack.with_checkpoint(fork.state, name, time, automatic=automatic)
    fork.save(state)
    return state.checkpoints[-1]


def require_free(fork: Fork, name: str) -> None:
    """Raise UsageError if no checkpoint in the fork can have this name."""
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
        names = ", ".join(checkpoint.name for checkpoint in fork.state.checkpoints[-8:])
        hint = (
            f"the last ones: {names}" if names else f"it has none; mudroom checkpoint NAME --fork {fork.name} makes one"
        )
        raise UsageError(f"{fork.name} has no checkpoint named {name}", hint)
    return point


def last_checkpoint(fork: Fork, parts: Sequence[Fork] = ()) -> Checkpoint:
    """Return the newest checkpoint to which a rollback of the fork and its ``parts`` would drop changes.

    Checkpoints left by rollbacks are skipped. Raise UsageError if there is none.
    """
    for point in reversed(fork.state.checkpoints):
        is_left = point.automatic and point.name.startswith("rollback-")
        if not is_left and not all(is_standing_on(one, find_checkpoint(one, point.name)) for one in (fork, *parts)):
            return point
    raise UsageError(
        f"{fork.name} has no checkpoint from which it differs", f"mudroom checkpoint --fork {fork.name} lists them"
    )


def is_standing_on(fork: Fork, point: Checkpoint) -> bool:
    """Whether the fork's content equals this checkpoint, as far as its layers tell."""
    return fork.state.layers == point.layers and upper_is_empty(fork)


def timeline(fork: Fork) -> list[tuple[Checkpoint, bool]]:
    """Return the checkpoints, oldest first, each with whether the fork stands on it. There may be hundreds."""
    state, clean = fork.state, upper_is_empty(fork)
    return [(point, clean and point.layers == state.layers) for point in state.checkpoints]


def rollback(vault: Vault, fork: Fork, name: str, time: int) -> Checkpoint | None:
    """Drop the changes since a checkpoint. Return the checkpoint that keeps the dropped changes, or None if there were
    none."""
    point = find_checkpoint(fork, name)
    before = None
    if not upper_is_empty(fork) or fork.state.layers != point.layers:
        seal_upper(vault, fork, durable=True)
        if fork.state.layers != point.layers:
            same = next(
                (candidate for candidate in fork.state.checkpoints if candidate.layers == fork.state.layers), None
            )
            before = same or checkpoint(vault, fork, stack.free_name(fork.state, "rollback"), time, automatic=True)
    state = fork.state
    upper = vault.new_layer()
    make_tree(vault, upper, point.layers)
    for made in (vault.layer(upper), vault.path + b"/layers"):
        sync_directory(made)  # without the layer and its tree nothing would be collected after a power loss
    # If cut off from here on, the changes are collected again, because the record may not match the layers. Without a
    # boot no command counts as cut off by a crash of the machine.
    fork.begin(present()._replace(boot=0), durable=True)
    if fork.is_copy:
        vault.throw_away(fork.copy_place + b"/manifest")  # the next command makes the copy again; the layers hold all
        sync_directory(fork.copy_place)
    sync_directory(fork.path)
    fork.save(stack.rolled_back(state, point, upper))
    _keep_masked(fork, fork, is_same=False)
    restore_record(vault, fork)
    sync_directory(fork.path)  # before the dropped layer goes
    fork.end()
    sync_directory(fork.path)  # otherwise the next boot finds a command that was cut off
    vault.throw_away(vault.layer(state.upper))
    vault.empty_trash()
    return before


def _keep_masked(parent: Fork, child: Fork, *, is_same: bool) -> None:
    """Record in ``child`` which secrets were masked for its commands. ``is_same``: it has the parent's layers;
    otherwise the layers will be searched again."""
    known = masked_of(parent.path)
    keep_masked(child.path, known if is_same else known.unsearched, known if parent is child else None)


def make_tree(vault: Vault, layer: str, sealed: Sequence[str]) -> None:
    """Make the tree for a new layer above sealed layers: changes are only collected from a layer with a tree."""
    tree = vault.layer(layer) + b"/tree"
    os.makedirs(vault.layer(layer), 0o700, exist_ok=True)
    below = vault.layer(sealed[-1]) + b"/tree" if sealed else vault.source
    os.mkdir(tree, 0o700)
    os.chmod(tree, stat.S_IMODE(os.stat(below).st_mode))


def restore_record(vault: Vault, fork: Fork) -> None:
    """Make the top sealed layer's record the fork's own."""
    layers = fork.state.layers
    kept = vault.layer(layers[-1]) + b"/record" if layers else b""
    # Not record.new: that name is written to, which would change the layer's own record.
    beside = fork.path + b"/record.link"
    if kept and os.path.lexists(kept):
        os.close(safe_open.open_regular(kept))  # fails if it is a symlink
        if os.path.exists(beside):  # left by a crash
            os.unlink(beside)
        os.link(kept, beside)
        disk.rename_path(beside, fork.record_path)
        if os.path.exists(beside):  # rename(2) does nothing if both names are the same file
            os.unlink(beside)
    elif os.path.exists(fork.record_path):
        os.unlink(fork.record_path)


def fork_of(
    vault: Vault,
    parent: Fork,
    name: str,
    time: int,
    at: str | tuple[str, ...] | None = None,
    *,
    named: bool = True,
    ties: Sequence[Tie] = (),
    carry: Callable[[Fork], None] = lambda _child: None,
) -> Fork:
    """Make a new fork from ``parent`` as it is now, or at a checkpoint. Neither sees later changes by the other.
    ``at``: the checkpoint's name, or layers with a copy of what ``parent`` has now: then it stays as it is. ``ties``:
    the new fork's parts in other projects. ``carry`` adds to the new fork before it has its name. Raise UsageError if
    ``parent`` has other parts."""
    if len(ties) != len(ties_of(parent)):
        require_single(parent, "fork new --live")
    if at is None:
        seal_upper(vault, parent)
    layers = find_checkpoint(parent, at).layers if isinstance(at, str) else at
    if parent.name == name:
        raise ForkExists(name)

    def complete(child: Fork) -> None:
        restore_record(vault, child)
        child.note_credentials(parent.credentials)
        _keep_masked(parent, child, is_same=at is None)
        if ties:
            tie(child.path + ROOTS, ties)
        landed = parent.path + b"/landed"
        if os.path.exists(landed):
            # safe: the file is replaced when it changes, never written in place
            os.link(landed, child.path + b"/landed")
        carry(child)

    state = stack.forked(parent.state, parent.name, vault.new_layer(), time, layers, named=named)
    return vault.add_fork(name, state, complete)


def rename(vault: Vault, fork: Fork, name: str) -> Fork:
    """Rename a fork. Raise UsageError if the name is taken or not allowed."""
    target = vault.path + b"/forks/" + fork_directory(name)
    if os.path.lexists(target):
        raise ForkExists(name)
    fork.save(fork.state._replace(named=True))  # before it has the name; a damaged fork keeps its own
    try:
        disk.rename_path(fork.path, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):  # another process was quicker
            raise ForkExists(name) from None
        raise
    return vault.fork(name)


def require_idle(fork: Fork) -> None:
    """Raise MudroomError if the fork is mounted: then the mounted directory is the only truth about the fork."""
    note = mount_note(fork)
    if note is not None:
        raise MudroomError(f"the fork {fork.name} is mounted at {show(note.place)}", f"mudroom unmount {fork.name}")
