"""What else gives one a private tree to try things in and to go back in: each with the same few operations.

``fork`` makes the tree, ``change`` writes a file in it, ``checkpoint`` freezes it, ``branch`` makes another tree of
what is frozen, ``rollback`` returns to it, ``discard`` removes the branch. ``clear`` is never timed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

from bench.measure import command
from bench.place import Place, have
from mudroom.session import Session
from mudroom.stage.layers.layer import remove_tree

CHANGED = b"d0000/changed"
_IMAGE = 8 << 30
_SNAPSHOT, _CREATE, _DESTROY = 0x50009401, 0x5000940E, 0x5000940F
"""BTRFS_IOC_SNAP_CREATE, _SUBVOL_CREATE and _SNAP_DESTROY of linux/btrfs.h."""


class Rival(Protocol):
    name: str

    def fork(self) -> object: ...
    def change(self, content: bytes) -> object: ...
    def checkpoint(self) -> object: ...
    def branch(self) -> object: ...
    def rollback(self) -> object: ...
    def discard(self) -> object: ...
    def clear(self) -> object: ...


class Mudroom:
    name = "mudroom"

    def __init__(self, session: Session) -> None:
        self._session = session

    def fork(self) -> None:
        self._session.forks.new("bench")

    def write(self, content: bytes) -> None:
        """As a file tool does: it is in memory until something needs it on disk."""
        self._session.forks.files("bench").write(CHANGED, content)

    def change(self, content: bytes) -> None:
        self.write(content)
        self._session.forks.flush("bench")

    def checkpoint(self, name: str = "point") -> None:
        self._session.forks.checkpoint("bench", name)

    def branch(self) -> None:
        self._session.forks.new("child", parent="bench")

    def rollback(self) -> None:
        self._session.forks.rollback("bench", "point")

    def discard(self) -> None:
        self._session.forks.discard("child")

    def clear(self) -> None:
        self._session.forks.discard("bench")


class Copies:
    """``cp`` shares the blocks where the file system can, which ext4 cannot."""

    name = "cp -a --reflink=auto"

    def __init__(self, place: Place) -> None:
        self._project = place.project
        self._root = place.root
        self._fork, self._point, self._child = (place.root + b"/" + name for name in (b"fork", b"point", b"child"))

    def _copy(self, old: bytes, new: bytes) -> None:
        command(["cp", "-a", "--reflink=auto", old, new])

    def fork(self) -> None:
        self._copy(self._project, self._fork)

    def change(self, content: bytes) -> None:
        _write(self._fork, content)

    def checkpoint(self) -> None:
        self._copy(self._fork, self._point)

    def branch(self) -> None:
        self._copy(self._point, self._child)

    def rollback(self) -> None:
        command(["rm", "-rf", self._fork])
        self._copy(self._point, self._fork)

    def discard(self) -> None:
        command(["rm", "-rf", self._child])

    def clear(self) -> None:
        for path in (self._fork, self._point, self._child):
            if os.path.isdir(path):
                remove_tree(path)
        command(["sync", "-f", self._root])  # what is left to write is not to be paid by whoever comes next


class Worktrees:
    """A checkpoint is a commit, a rollback a ``git reset``."""

    name = "git worktree"

    def __init__(self, place: Place) -> None:
        self._place = place
        self._fork, self._child = place.root + b"/fork", place.root + b"/child"

    def _git(self, where: bytes, *argv: str | bytes) -> None:
        who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        command(["git", "-C", where, *who, *argv], env=self._place.environ)

    def fork(self) -> None:
        self._git(self._place.project, "worktree", "add", "-q", "--detach", self._fork)

    def change(self, content: bytes) -> None:
        _write(self._fork, content)

    def checkpoint(self) -> None:
        self._git(self._fork, "add", "-A")
        self._git(self._fork, "commit", "-q", "-m", "point")

    def branch(self) -> None:
        self._git(self._fork, "worktree", "add", "-q", "--detach", self._child)

    def rollback(self) -> None:
        self._git(self._fork, "reset", "-q", "--hard")
        self._git(self._fork, "clean", "-q", "-f", "-d")

    def discard(self) -> None:
        self._git(self._place.project, "worktree", "remove", "--force", self._child)

    def clear(self) -> None:
        for path in (self._fork, self._child):
            if os.path.isdir(path):
                self._git(self._place.project, "worktree", "remove", "--force", path)
        command(["sync", "-f", self._place.root])


class Snapshots:
    """Of btrfs, by its ioctls: ``btrfs subvolume`` would add the start of a program to each."""

    name = "btrfs snapshot"

    def __init__(self, mounted: bytes) -> None:
        self._mounted = mounted

    def fork(self) -> None:
        self._snapshot(b"tree", b"fork")

    def change(self, content: bytes) -> None:
        _write(self._mounted + b"/fork", content)

    def checkpoint(self) -> None:
        self._snapshot(b"fork", b"point")

    def branch(self) -> None:
        self._snapshot(b"point", b"child")

    def rollback(self) -> None:
        self._ioctl(_DESTROY, 0, b"fork")
        self._snapshot(b"point", b"fork")

    def discard(self) -> None:
        self._ioctl(_DESTROY, 0, b"child")

    def clear(self) -> None:
        for name in (b"fork", b"point", b"child"):
            if os.path.isdir(self._mounted + b"/" + name):
                self._ioctl(_DESTROY, 0, name)

    def make_tree(self) -> bytes:
        """An empty subvolume, to be filled."""
        self._ioctl(_CREATE, 0, b"tree")
        return self._mounted + b"/tree"

    def _snapshot(self, old: bytes, new: bytes) -> None:
        source = os.open(self._mounted + b"/" + old, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._ioctl(_SNAPSHOT, source, new)
        finally:
            os.close(source)

    def _ioctl(self, what: int, source: int, name: bytes) -> None:
        top = os.open(self._mounted, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(top, what, bytearray(struct.pack("q4088s", source, name)))
        finally:
            os.close(top)


class Sandfs:
    """The package from PyPI: all in the memory of this process, and gone with it. It has no rollback of its own; one
    forks the workspace that was kept."""

    name = "sandfs"

    def __init__(self, module: ModuleType, place: Place) -> None:
        self._base: Any = module.Workspace()
        self._base.mount("/p", module.DirSource(os.fsdecode(place.project)))
        self._fork: Any = None
        self._point: Any = None
        self._child: Any = None

    def fork(self) -> None:
        self._fork = self._base.fork()

    def change(self, content: bytes) -> None:
        self._fork.write("/p/" + CHANGED.decode(), content)

    def checkpoint(self) -> None:
        self._point = self._fork.fork()

    def branch(self) -> None:
        self._child = self._point.fork()

    def rollback(self) -> None:
        self._fork = self._point.fork()

    def discard(self) -> None:
        self._child = None

    def clear(self) -> None:
        self._fork = self._point = None


def sandfs() -> ModuleType | None:
    """The package, if it is installed."""
    try:
        return import_module("sandfs")
    except ImportError:
        return None


@contextmanager
def snapshots(place: Place, fill: Callable[[bytes], None]) -> Iterator[Snapshots]:
    """On a loop mount of its own, which is gone afterwards."""
    image, mounted = place.root + b"/btrfs.img", place.root + b"/btrfs"
    os.mkdir(mounted)
    with open(image, "wb") as stream:
        os.truncate(stream.fileno(), _IMAGE)
    try:
        command(["mkfs.btrfs", "-q", image])
        command(["mount", "-o", "loop", image, mounted])
        try:
            rival = Snapshots(mounted)
            fill(rival.make_tree())
            command(["sync", "-f", mounted])
            yield rival
        finally:
            command(["umount", mounted])
    finally:
        os.unlink(image)


def absent() -> Iterator[tuple[str, str]]:
    """Rivals that cannot be measured here, each with the reason."""
    if not have("git"):
        yield Worktrees.name, "git is not installed"
    why = _no_snapshots()
    if why:
        yield Snapshots.name, why
    if sandfs() is None:
        yield Sandfs.name, "not installed (pip install sandfs)"


def can_snapshot() -> bool:
    return not _no_snapshots()


def _no_snapshots() -> str:
    if shutil.which("mkfs.btrfs") is None:
        return "mkfs.btrfs is not installed"
    if os.geteuid():
        return "only root may make a loop mount"
    with open("/proc/filesystems") as stream:
        known = any(line.split()[-1:] == ["btrfs"] for line in stream)
    return "" if known else "this kernel has no btrfs"


def _write(tree: bytes, content: bytes) -> None:
    with open(tree + b"/" + CHANGED, "wb") as stream:
        stream.write(content)
