"""The view for a fork that is mounted for the user's own tools: its commands work in the mounted directory.

A command's sandbox binds that directory to the project's path, so the user, commands and file tools use one file
system, with one cache and one inotify(7). The upper layer below it is live: it is read, never tidied or converted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from mudroom.core.confinement.spec import Copy
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage.source import OpenSource, Source
from mudroom.stage.view import RawDifference
from mudroom.stage.views.overlay import layer_differences
from mudroom.stage.views.real_directory import PlainTree
from mudroom.typing import Any

Identity = tuple[int, int]
"""Device and inode."""


def open_mounted(place: bytes, identity: Identity) -> int:
    """Return a descriptor for a mounted directory. Raise MudroomError if another directory is there."""
    try:
        opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _ended(place, error.strerror or "") from None
    info = os.fstat(opened)
    if (info.st_dev, info.st_ino) != identity:
        os.close(opened)
        raise _ended(place, "another directory is there")
    return opened


def _ended(place: bytes, why: str) -> MudroomError:
    return MudroomError(f"the mount at {show(place)} has ended: {why}", "try again: the next call goes on without it")


class MountedView:
    """Owner: the caller, in one thread."""

    kind = "overlay"

    def __init__(self, place: bytes, identity: Identity, upper: bytes, *, by_fuse: bool) -> None:
        """``upper``: the mount's writable layer. ``by_fuse``: it has fuse-overlayfs marks, and until a file is closed
        its newest content may be only in the kernel."""
        self._place, self._identity, self._upper, self._by_fuse = place, identity, upper, by_fuse

    @property
    def staged(self) -> tuple[bytes, ...]:
        return (self._upper,)

    def prepare(self) -> None:
        """Do nothing: it is mounted."""

    def mount(self) -> Copy:
        return Copy(self._place, self._identity)

    def differences(self, lower: Source) -> Iterator[RawDifference]:
        os.close(open_mounted(self._place, self._identity))
        if not self._by_fuse:
            yield from layer_differences(self._upper, lower)
            return
        with OpenSource(self._place) as shown:
            for difference in layer_differences(self._upper, lower, by_fuse=True):
                if difference.staged is not None:
                    difference = difference._replace(staged=shown.look(difference.path))
                yield difference
        os.close(open_mounted(self._place, self._identity))  # raises if another directory was examined


class MountedTree:
    """A ``Tree`` on a mounted directory, which is opened for each call: an open directory could not be unmounted."""

    def __init__(self, place: bytes, identity: Identity) -> None:
        self._place, self._identity = place, identity

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with Descriptor(open_mounted(self._place, self._identity)) as root:
                return getattr(PlainTree(root), name)(*arguments, **named)

        return call
