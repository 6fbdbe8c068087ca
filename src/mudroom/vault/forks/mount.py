"""Forks that are mounted for the user's own tools, and how they come back.

    forks/<name>/mount    kind, "rw" or "ro", when it was mounted (nanoseconds), and the directory

While that file is there the directory is the one truth about the fork: nothing else reads or changes its layers.
"""

from __future__ import annotations

import os
from typing import NamedTuple, cast

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
from mudroom.vault.forks.collection import CollectedCommand, gather
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault


class MountedFork(NamedTuple):
    kind: Kind
    writable: bool
    since: int
    """Nanoseconds since 1970."""
    place: bytes


def mounted(fork: Fork) -> MountedFork | None:
    try:
        with open(fork.path + b"/mount", "rb") as stream:
            kind, mode, since, place = stream.read().split(b" ", 3)
    except FileNotFoundError:
        return None
    return MountedFork(cast(Kind, kind.decode()), mode == b"rw", int(since), place)


def mount(vault: Vault, fork: Fork, place: bytes, *, writable: bool, now: int, kind: Kind | None = None) -> MountedFork:
    """Show a fork at ``place``, an empty directory or none yet. Hold the fork's lock.

    Raises UsageError if the place is taken, Unsupported if this kind of mount cannot be had here.
    """
    made = _make_place(place)
    found = MountedFork(kind or best_kind(), writable, now, os.path.realpath(place))
    try:
        if fork.has_copy and found.kind != "copy":
            found = found._replace(kind="copy")
        with OpenFork(vault, fork) as opened:
            _show(vault, fork, opened, found)
    except BaseException:
        if made:
            remove_tree(found.place)
        raise
    _note(fork, found)
    return found


def _make_place(place: bytes) -> bool:
    try:
        os.makedirs(place, mode=0o700)
        return True
    except FileExistsError:
        if not os.path.isdir(place) or os.listdir(place):
            raise UsageError(
                f"{show(place)} is not an empty directory", "name one, or one that does not exist"
            ) from None
        return False


def _show(vault: Vault, fork: Fork, opened: OpenFork, found: MountedFork) -> None:
    if found.kind == "copy":
        view = _copy(fork, opened, found)
        view.prepare()
        return
    state = fork.state
    base = vault.project if state.base == LIVE else vault.base(state.base) + b"/source"
    masking = (vault.mask.layer,) if vault.mask.layer else ()
    view_of_layers = OverlayView(base, (*fork.sealed, *masking), fork.upper, fork.path + b"/work")
    view_of_layers.prepare()
    layers = view_of_layers.mount()
    attach = mount_overlay if found.kind == "overlay" else mount_fuse
    if found.writable:
        attach(layers.lowers[:-1], layers.lowers[-1], layers.upper, layers.work, found.place)
    else:
        attach((layers.upper, *layers.lowers[:-1]), layers.lowers[-1], None, b"", found.place)


def _copy(fork: Fork, opened: OpenFork, found: MountedFork) -> CopyView:
    """A copy at the place itself; what it was made of is noted in the fork."""
    return CopyView(fork.path + b"/mounted", opened.merged(), work=found.place)


def _note(fork: Fork, found: MountedFork) -> None:
    mode = b"rw" if found.writable else b"ro"
    with open(fork.path + b"/mount.new", "wb") as stream:
        stream.write(b" ".join((found.kind.encode(), mode, b"%d" % found.since, found.place)))
    os.rename(fork.path + b"/mount.new", fork.path + b"/mount")


def give_back(vault: Vault, fork: Fork, now: int) -> Changeset:
    """Take a mount away and collect what was done in it. Also after a reboot, when only the note is left.

    Hold the fork's lock. Raises UsageError if it is not mounted, MudroomError if it is in use.
    """
    found = mounted(fork)
    if found is None:
        raise UsageError(f"{fork.name} is not mounted", "mudroom mount shows what is")
    if found.kind != "copy" and is_mounted(found.place):
        unmount(found.kind, found.place)
    with OpenFork(vault, fork) as opened:
        if found.writable:
            _bring_in(fork, opened, found)
    changeset = _collected(vault, fork, found, now)
    if found.kind == "copy":
        remove_tree(found.place)
        remove_tree(fork.path + b"/mounted")
    else:
        os.rmdir(found.place)
    os.unlink(fork.path + b"/mount")
    return changeset


def _bring_in(fork: Fork, opened: OpenFork, found: MountedFork) -> None:
    if found.kind == "fuse":
        convert_fuse_layer(fork.upper)
    if found.kind != "copy":
        return
    upper = fork.contents[0] if fork.has_copy else fork.upper
    if not os.path.isdir(upper):
        os.mkdir(upper, 0o700)
    _copy(fork, opened, found).bring_into(upper, opened.lower, plain=fork.has_copy)


def _collected(vault: Vault, fork: Fork, found: MountedFork, now: int) -> Changeset:
    with OpenFork(vault, fork) as opened:
        if fork.has_copy:
            view: OverlayView | CopyView = CopyView(fork.copy_place, opened.lower)
        else:
            view = OverlayView(vault.project, fork.sealed, fork.upper, fork.path + b"/work")
        if not os.path.isdir(view.staged[0]):
            return Changeset()
        return gather(
            fork, opened, view, CollectedCommand((b"mudroom", b"mount", os.fsencode(fork.name)), 0, now), found.since
        )
