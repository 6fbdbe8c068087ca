"""Layers that only mudroom can reach, before their files are reviewed, sealed for others, or land.

A layer's files were visible to the sandboxes in which the layer was mounted. A process that holds a descriptor or a
mapping of such a file keeps it after the sandbox has ended. It could change the file after the review, or even in the
project, because an apply moves files. Stores to a mapped page change neither mtime nor ctime, so stamps do not show
them.

1. ``released/<layer>`` says that at some time the layer's mounts were gone, with everything that led into them
   (``stage/views/released.py``). A command that begins removes it (``Fork.begin``).
2. The files in a layer with such a mark stay as they are until the next command: stamps can be trusted.
3. While a process in the fork's sandbox is alive, the fork is refused, and the error names the process.
4. If no process in the sandbox is alive but something still leads into a layer, or that cannot be found out, the
   layer's files are replaced by copies, which no sandbox has seen. Directories are new as well.
5. A copy view is not a mount. Its changed files that are open or mapped anywhere are replaced by copies
  ; a later write through a path changes the times, and the apply is refused. A copy lands.

Hold the fork's lock. A layer can belong to several forks. Only one of them at a time checks it (``released.lock``), so
that no record names files that another thread or process is replacing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from mudroom.core.system.closing import Descriptor
from mudroom.errors import FULL, SandboxAlive
from mudroom.stage import disk
from mudroom.stage.beneath import open_root
from mudroom.stage.copy import copy_open_file
from mudroom.stage.layers.closed_directory import entered, look_through
from mudroom.stage.layers.flatten import flatten
from mudroom.stage.layers.layer import open_staged, remove_tree
from mudroom.stage.layers.shown import shown_place
from mudroom.stage.views.released import processes_in, released
from mudroom.vault.forks.copy_layer import as_in_layer
from mudroom.vault.lock import Lock
from mudroom.vault.record import ForkRecord, load, save
from mudroom.vault.store.fork import APART, RELEASED, Fork
from mudroom.vault.store.store import Vault

# --- Test whether a regular file is open or mapped elsewhere ---


def is_open_elsewhere(descriptor: int) -> bool:
    """Return whether another open file description, or a mapping, refers to the descriptor's file; True also if the
    file system cannot tell. The descriptor must be the caller's only one for that file, opened for reading.

    F_SETLEASE with F_WRLCK fails with EAGAIN if the file is open anywhere else, even through a mapping whose descriptor
    is closed (fcntl(2); check_conflicting_open in fs/locks.c). O_PATH descriptors do not count: they have to be opened
    again before a write, and the write changes the times.

    False on Windows: the command's job has ended with all its processes, and scanners that hold a new file for a moment
    do not change it.
    """
    if sys.platform == "win32":
        return False
    if sys.platform != "linux":
        return True
    import fcntl

    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False


def set_apart(vault: Vault, fork: Fork) -> bool | None:
    """Make sure that only mudroom can change the fork's files. Raise SandboxAlive if a process in its sandbox is alive.

    Return None if that was already known, else whether files were replaced by copies: then the fork's record must be
    collected again.
    """
    replaced = None
    if fork.has_copy and not os.path.exists(_mark(vault, fork.state.upper)):
        replaced = _replace_open_files(fork)
        _note(vault, [fork.state.upper])
    if not _unproven(vault, fork):  # checked before the lock, too: files replaced later would differ from the review
        return replaced
    with Lock(vault.path + RELEASED + b".lock", "looking at what is left"):
        names = _unproven(vault, fork)  # again: another fork with this layer may have been first
        return _prove(vault, fork, names) or bool(replaced) if names else replaced


def _prove(vault: Vault, fork: Fork, names: Sequence[str]) -> bool:
    """Mark the layers, and replace the files in layers that are still reachable. Return whether any were replaced."""
    trees = [vault.layer(name) + b"/tree" for name in names]
    answers = released(trees, vault.path + b"/probe-" + vault.new_id().encode())
    held = [name for name, is_released in zip(names, answers, strict=True) if not is_released]
    for name in held:
        _require_no_process(vault, fork, name)
    for name in held:
        _replace(vault, name)
    _note(vault, names)
    return bool(held)


def _mark(vault: Vault, name: str) -> bytes:
    return vault.path + RELEASED + b"/" + name.encode()


def _replace_open_files(fork: Fork) -> bool:
    """Replace a copy view's changed files that are open elsewhere. Return whether there were any."""
    record, replaced = fork.record, False
    if record is None:
        return False
    root, place = open_root(fork.contents[0]), open_root(fork.copy_place)
    with Descriptor(place), Descriptor(root):
        for change in record.changeset.changes:
            if change.staged is not None and change.staged.kind == "file":
                replaced |= _replace_if_open(root, place, change.path)
    return replaced


def _replace_if_open(root: int, place: int, path: bytes) -> bool:
    try:
        opened = open_staged(root, path)
    except OSError:
        return False  # gone since, or another kind: the apply compares and refuses
    try:
        entry, name = look_through(root, path), APART[1:]
        if entry is None or not is_open_elsewhere(opened):
            return False
        with suppress(FileNotFoundError):
            disk.unlink(place, name)  # left by a crash
        copy_open_file(opened, place, name, entry)
    finally:
        os.close(opened)  # before the rename: Windows does not replace an open file
    with entered(root, path.rpartition(b"/")[0]) as above:
        disk.rename(place, name, above, path.rpartition(b"/")[2])
    return True


def _unproven(vault: Vault, fork: Fork) -> list[str]:
    """Return the fork's layers without a mark that hold files, or whose shown secrets are files."""
    state = fork.state
    names = (name for name in (*state.layers, state.upper) if not os.path.exists(_mark(vault, name)))
    return [name for name in names if any(_holds_files(*trees) for trees in _trees(vault, name))]


def _trees(vault: Vault, name: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return the directories with files that a command saw in this layer, each with the path for its copy.

    A secret that the command was shown is moved out of the layer at its end (``hidden.py``), and may still be mapped.
    """
    place = vault.layer(name)
    return tuple((above + b"/tree", above + APART) for above in (place, shown_place(place)))


def _holds_files(tree: bytes, copy: bytes) -> bool:
    if os.path.isdir(copy) and not os.path.isdir(tree):
        disk.rename_path(copy, tree)  # interrupted between the two steps of ``_replace``
    try:
        with os.scandir(tree) as scan:
            return next(scan, None) is not None
    except FileNotFoundError:
        return False
    except PermissionError:  # a command that was cut off has closed it
        return True


def _require_no_process(vault: Vault, fork: Fork, name: str) -> None:
    alive = processes_in(vault.layer(name) + b"/tree", vault.project)
    if alive:
        rows = ", ".join(f"{process.pid} ({process.command})" for process in alive[:3])
        raise SandboxAlive(
            f"a process of a command in the fork {fork.name} is still alive: {rows}",
            f"wait for its end, or end it: kill -9 {alive[0].pid}",
        )


def _replace(vault: Vault, name: str) -> None:
    """Replace a layer's files by copies."""
    (tree, _copy), (shown, _beside) = trees = _trees(vault, name)
    for each, copy in trees:
        if not os.path.isdir(each):
            continue
        if os.path.isdir(copy):
            remove_tree(copy)  # an earlier attempt was interrupted
        os.mkdir(copy, 0o700)
        # copies, not links: a process may hold the old inodes
        flatten([each], copy, copying=True)
        vault.throw_away(each)
        disk.rename_path(copy, each)
    for path in _records(vault, name):
        record = load(path, ForkRecord)
        above = os.path.dirname(shown) if os.path.isdir(shown) else b""
        save(path, as_in_layer(record, tree, above), durable=False)
    vault.empty_trash()


def _records(vault: Vault, name: str) -> Sequence[bytes]:
    """Return the records with entries from a layer: from forks that stand on it, and from layers above it."""
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
            with open(_mark(vault, name), "wb"):
                pass
        except OSError as error:
            if error.errno not in FULL:
                raise
            return  # a full disk: the layer is checked again the next time
