"""Forks that are mounted for the user's own tools.

    forks/<name>/mount    kind, "rw" or "ro", when it was mounted (nanoseconds), and the directory

While that file exists, the mounted directory is the only truth about the fork: its layers are not read or changed.
"""

from __future__ import annotations

import os

from mudroom.core.clock import CommandStart
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import LIVE
from mudroom.errors import UsageError
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.views.copy_view import CopyView
from mudroom.stage.views.mount import (
    Kind,
    best_kind,
    convert_fuse_layer,
    is_mounted,
    mount_fuse,
    mount_overlay,
    unmount,
)
from mudroom.stage.views.overlay import OverlayView
from mudroom.typing import NamedTuple, cast
from mudroom.vault.forks.collection import CollectedCommand, gather, prepare_repository
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork, forget_release
from mudroom.vault.store.store import Vault


class MountedFork(NamedTuple):
    kind: Kind
    writable: bool
    since: CommandStart
    place: bytes


def mounted(fork: Fork) -> MountedFork | None:
    try:
        with open(fork.path + b"/mount", "rb") as stream:
            kind, mode, since, boot, place = stream.read().split(b" ", 4)
    except FileNotFoundError:
        return None
    return MountedFork(cast(Kind, kind.decode()), mode == b"rw", CommandStart(int(since), int(boot)), place)


def mount(
    vault: Vault, fork: Fork, place: bytes, *, writable: bool, now: CommandStart, kind: Kind | None = None
) -> MountedFork:
    """Show a fork at ``place``, an empty or absent directory. Hold the fork's lock.

    Raise UsageError if the directory is not empty, Unsupported if this kind of mount is not available here.
    """
    is_new = _make_place(place)
    prepare_repository(vault, fork)
    mounted_fork = MountedFork(kind or best_kind(), writable, now, os.path.realpath(place))
    try:
        if fork.has_copy and mounted_fork.kind != "copy":
            mounted_fork = mounted_fork._replace(kind="copy")
        with OpenFork(vault, fork) as opened:
            _show(vault, fork, opened, mounted_fork)
    except BaseException:
        if is_new:
            remove_tree(mounted_fork.place)
        raise
    _write_note(fork, mounted_fork)
    return mounted_fork


def _make_place(place: bytes) -> bool:
    try:
        os.makedirs(place, mode=0o700)
        return True
    except FileExistsError:
        if not os.path.isdir(place) or os.listdir(place):
            raise UsageError(
                f"{show(place)} is not an empty directory", "name an empty directory, or one that does not exist"
            ) from None
        return False


def _show(vault: Vault, fork: Fork, opened: OpenFork, mounted_fork: MountedFork) -> None:
    if mounted_fork.kind == "copy":
        view = _copy(fork, opened, mounted_fork)
        view.prepare()
        return
    state = fork.state
    base = vault.project if state.base == LIVE else vault.base(state.base) + b"/source"
    view_of_layers = OverlayView(base, (*fork.sealed, *vault.masking(state)), fork.upper, fork.path + b"/work")
    view_of_layers.prepare()
    forget_release(vault.path, state.upper)
    layers = view_of_layers.mount()
    attach = mount_overlay if mounted_fork.kind == "overlay" else mount_fuse
    if mounted_fork.writable:
        attach(layers.lowers[:-1], layers.lowers[-1], layers.upper, layers.work, mounted_fork.place)
    else:
        attach((layers.upper, *layers.lowers[:-1]), layers.lowers[-1], None, b"", mounted_fork.place)


def _copy(fork: Fork, opened: OpenFork, mounted_fork: MountedFork) -> CopyView:
    """Return a view whose copy is at the place itself; its manifest is kept in the fork."""
    return CopyView(fork.path + b"/mounted", opened.merged(), work=mounted_fork.place)


def _write_note(fork: Fork, mounted_fork: MountedFork) -> None:
    mode = b"rw" if mounted_fork.writable else b"ro"
    with open(fork.path + b"/mount.new", "wb") as stream:
        stream.write(b" ".join((mounted_fork.kind.encode(), mode, b"%d %d" % mounted_fork.since, mounted_fork.place)))
    os.rename(fork.path + b"/mount.new", fork.path + b"/mount")


def unmount_fork(vault: Vault, fork: Fork, now: int) -> Changeset:
    """Unmount a fork and collect its changes. Also works after a reboot, when only the note is left.

    Hold the fork's lock. Raise UsageError if the fork is not mounted, MudroomError if the mount is in use.
    """
    mounted_fork = mounted(fork)
    if mounted_fork is None:
        raise UsageError(f"{fork.name} is not mounted", "mudroom mount lists the mounted forks")
    if mounted_fork.kind != "copy" and is_mounted(mounted_fork.place):
        unmount(mounted_fork.kind, mounted_fork.place)
    with OpenFork(vault, fork) as opened:
        if mounted_fork.writable:
            _import_changes(fork, opened, mounted_fork)
    changeset = _collect(vault, fork, mounted_fork, now)
    if mounted_fork.kind == "copy":
        remove_tree(mounted_fork.place)
        remove_tree(fork.path + b"/mounted")
    else:
        os.rmdir(mounted_fork.place)
    os.unlink(fork.path + b"/mount")
    return changeset


def _import_changes(fork: Fork, opened: OpenFork, mounted_fork: MountedFork) -> None:
    if mounted_fork.kind == "fuse":
        convert_fuse_layer(fork.upper)
    if mounted_fork.kind != "copy":
        return
    upper = fork.contents[0] if fork.has_copy else fork.upper
    if not os.path.isdir(upper):
        os.mkdir(upper, 0o700)
    _copy(fork, opened, mounted_fork).bring_into(upper, opened.lower, plain=fork.has_copy)


def _collect(vault: Vault, fork: Fork, mounted_fork: MountedFork, now: int) -> Changeset:
    with OpenFork(vault, fork) as opened:
        if fork.has_copy:
            view: OverlayView | CopyView = CopyView(fork.copy_place, opened.lower)
        else:
            view = OverlayView(vault.project, fork.sealed, fork.upper, fork.path + b"/work")
        if not os.path.isdir(view.staged[0]):
            return Changeset()
        return gather(
            fork,
            opened,
            view,
            CollectedCommand((b"mudroom", b"mount", os.fsencode(fork.name)), 0, now),
            mounted_fork.since,
        )
