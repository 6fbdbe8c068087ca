"""Checks before a project is staged: can the directory be a project, and can an overlay be mounted over it?"""

from __future__ import annotations

import _thread
import errno
import os
import select
import stat
import sys
from collections.abc import Iterator, Sequence

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.stage import disk
from mudroom.stage.beneath import entries, open_root
from mudroom.typing import NamedTuple

MARKERS = (b".mudroom", b".git")
_POLICIES = (b"policy.yaml", b"local/policy.yaml", b"local/rules.yaml", b"local/permissions.yaml")
LOCAL = frozenset(["ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "ramfs", "overlay", "f2fs", "zfs", "bcachefs"])
"""File system types that only this machine changes. A network file system, or one served by a user process (NFS, SMB,
9p, virtiofs, FUSE), may change without an event, and may have any size."""
_LOOK_AT, _CROWD = 512, 64
"""Maximum number of entries that the check for foreign owners visits, independent of the project's size. A directory
below the top with more than ``_CROWD`` entries (``node_modules``) counts as that many, and is not searched below."""


class MountPoint(NamedTuple):
    path: bytes
    kind: str
    """The file system type: ext4, nfs4, overlay …"""
    number: int
    parent: int
    """Number of the mount that contains this one's mount point. For the root mount it is not in the table, or is its
    own number."""


def find_project(start: bytes, home: bytes) -> bytes:
    """Return the project that contains the directory ``start`` (a real path): the nearest directory at or above it with
    a ``.mudroom`` or a ``.git``, else ``start`` itself. The home directory and ``/`` are never a project."""
    for marker in MARKERS:
        current = start
        while current not in (b"/", home, above := os.path.dirname(current)):
            if os.path.lexists(current + b"/" + marker):
                return current
            current = above
    return start


def policy_above(project: bytes, home: bytes) -> bytes | None:
    """Return the nearest directory above ``project`` (a real path) with a policy, which does not apply to the project;
    None if there is none."""
    current = os.path.dirname(project)
    while current not in (b"/", home, above := os.path.dirname(current)):
        if any(os.path.lexists(current + b"/.mudroom/" + name) for name in _POLICIES):
            return current
        current = above
    return None


def check_project(project: bytes, home: bytes, state: bytes) -> None:
    """Raise UsageError if ``project`` (a real path) cannot be staged."""
    name = show(project)
    if project == os.path.dirname(project):  # / or C:/
        raise UsageError(
            f"the project cannot be {name}", "change to the directory of a project, or name one with --project"
        )
    store = _store_at(project[len(home) + 1 :]) if is_below(project, home) else ""
    if store or is_below(home, project):
        raise UsageError(
            f"the project cannot be {name}: {store or 'your home directory is in it'}",
            "change to the directory of a project, or name one with --project",
        )
    if not os.path.isdir(project):
        raise UsageError(f"{name} is not a directory" if os.path.lexists(project) else f"{name} does not exist")
    if not os.access(project, os.R_OK | os.X_OK):
        raise UsageError(f"{name} cannot be read", "its owner has to permit it")
    if is_below(state, project):
        raise UsageError(
            f"mudroom's own state ({show(state)}) lies in the project {name}", "set MUDROOM_STATE to another directory"
        )


def _store_at(project: bytes) -> str:
    """Return why a directory in the home cannot be a project: it is, holds, or is part of a credential store. Empty: it
    can be. Agents make work trees in their stores."""
    if not project.startswith((b".", b"Library")):
        return ""
    from mudroom.core.tree.credential_stores import AGENTS, STORES

    for name, store in STORES.items():
        above = () if name in AGENTS else store.directories
        if any(is_below(place, project) for place in (*store.directories, *store.files)) or any(
            is_below(project, place) for place in above
        ):
            return f"credentials are kept there ({store.about})"
    return ""


def parse_mounts(mountinfo: bytes) -> list[MountPoint]:
    """Return every mount in /proc/self/mountinfo, in the file's order: proc_pid_mountinfo(5)."""
    table = []
    for line in mountinfo.splitlines():
        before, _dash, after = line.partition(b" - ")
        number, parent, _device, _root, path = before.split(b" ", 5)[:5]
        for code, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
            path = path.replace(code, character)
        kind = after.split(b" ", 1)[0].decode("ascii", "replace")
        table.append(MountPoint(path, kind, int(number), int(parent)))
    return table


def mounts() -> list[MountPoint]:
    try:
        with open("/proc/self/mountinfo", "rb") as stream:
            return parse_mounts(stream.read())
    except FileNotFoundError:
        return []


class MountTable:
    """This process's mounts, read again only when the kernel reports a change: poll(2) then marks the file with POLLPRI
    and POLLERR, once (proc_pid_mounts(5)). Thread-safe: threads share the mark and the file position."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._found: list[MountPoint] = []
        self._poller: select.poll | None = None
        """Created with the descriptor: Windows has neither."""
        self._lock = _thread.allocate_lock()

    def mounts(self) -> list[MountPoint]:
        with self._lock:
            return self._read()

    def _read(self) -> list[MountPoint]:
        if self._descriptor < 0 or self._poller is None:
            try:
                self._descriptor = disk.open_path("/proc/self/mountinfo", os.O_RDONLY | disk.O_CLOEXEC)
            except FileNotFoundError:
                return []
            self._poller = select.poll()
            self._poller.register(self._descriptor, select.POLLPRI)
        elif not self._poller.poll(0):
            return self._found
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._found = parse_mounts(b"".join(iter(lambda: os.read(self._descriptor, 1 << 16), b"")))
        return self._found

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def crossed(path: bytes, table: Sequence[MountPoint]) -> list[MountPoint]:
    """Return the mounts that a path's lookup passes through, from the first to the one that has its file.

    A lookup enters the first mount point on its way that lies on the current mount. Any other mount on the current
    mount, further down the path, is hidden: it was mounted earlier (path_resolution(7), proc_pid_mountinfo(5)).
    """
    numbers = {mount.number for mount in table}
    above = [mount for mount in table if is_below(path, mount.path)]
    way: list[MountPoint] = []
    on_it = [mount for mount in above if mount.parent == mount.number or mount.parent not in numbers]
    while on_it:
        way.append(min(on_it, key=lambda mount: len(mount.path)))
        on_it = [mount for mount in above if mount.parent == way[-1].number and mount not in way]
    return way


def is_in_memory(path: bytes) -> bool:
    """Return whether a path's files are on tmpfs(5) or a similar file system; True also if this cannot be determined.

    A store to a mapped page may leave all times unchanged there: the first read of a shared, writable mapping makes the
    page writable, since these file systems have no ``page_mkwrite`` (vma_wants_writenotify in mm/mmap.c).
    """
    if sys.platform != "linux" or os.stat(path).st_dev & 0xFFF00:  # a disk's major number, makedev(3)
        return False
    way = crossed(os.path.realpath(path), mounts())
    return not way or way[-1].kind in ("tmpfs", "ramfs", "devtmpfs", "rootfs")


def submounts(project: bytes, table: Sequence[MountPoint]) -> list[MountPoint]:
    """Return the mounts inside the project that no other mount hides. The kernel refuses an overlay over them."""
    inside = [mount for mount in table if mount.path != project and is_below(mount.path, project)]
    return [mount for mount in inside if crossed(mount.path, table)[-1:] == [mount]]


def spanned(project: bytes, table: Sequence[MountPoint]) -> str:
    """Return why an overlay cannot show the project: a mount inside; empty if there is none.

    An overlay does not show mounts in its lower directory. The kernel also refuses an overlay over a directory with
    mounts from outside the user namespace, because it would reveal the files that they hide (clone_private_mount in
    fs/namespace.c, has_locked_children). A snapshot has no such mounts.
    """
    inside = submounts(project, table)
    return f"{show(inside[0].path)} is mounted inside the project, which no overlay can span" if inside else ""


def volumes(project: bytes, table: Sequence[MountPoint]) -> tuple[frozenset[int], list[bytes]]:
    """Return the devices of this machine's other file systems mounted inside the project, whose files belong in a copy;
    and the mount points of all other file systems."""
    own, devices, strange = os.stat(project).st_dev, set(), []
    for mount in submounts(project, table):
        try:
            info = os.stat(mount.path, follow_symlinks=False)
        except OSError:
            continue  # below a directory that this user may not enter, or unmounted meanwhile
        if info.st_dev != own and mount.kind in LOCAL:
            devices.add(info.st_dev)
        elif info.st_dev != own and stat.S_ISDIR(info.st_mode):
            strange.append(mount.path[len(project) + 1 :])
    return frozenset(devices), strange


def filesystem(path: bytes, table: Sequence[MountPoint]) -> str:
    """Return the file system type at ``path``; empty if unknown."""
    way = crossed(path, table)
    return way[-1].kind if way else ""


def no_overlay(project: bytes) -> str:
    """Return why this user cannot mount any overlay for a project; empty if there is no such reason (for mounts inside
    see ``spanned``)."""
    if sys.platform != "linux" or not disk.user():
        return ""
    others = [group for group in os.getgroups() if group != disk.group()]
    if not others:
        return ""
    # A user namespace maps only one of the user's groups (user_namespaces(7)). What has another group is not copied up:
    # EOVERFLOW, ovl_copy_up_one in fs/overlayfs/copy_up.c.
    group = os.stat(project).st_gid
    if group in others:
        return f"the project is shared by the group {group}, for which an overlay has no id"
    inside = _shared_directory(project, others)
    return f"{show(inside[0])} is shared by the group {inside[1]}, for which an overlay has no id" if inside else ""


def _shared_directory(project: bytes, groups: Sequence[int]) -> tuple[bytes, int] | None:
    """Return the first directory near the top that has one of ``groups`` and that this user may write to, with the
    group."""
    for path, entry in _near_the_top(project):
        is_writable = entry.mode & 0o020 or (entry.mode & 0o200 and entry.uid == disk.user())
        if entry.kind == "directory" and entry.gid in groups and is_writable:
            return path, entry.gid
    return None


def keeps_marks(directory: bytes) -> bool:
    """Return whether a directory's file system supports ``user.`` xattrs, with which an overlay marks directories that
    hide those below. Without them (ramfs, tmpfs before Linux 6.6, FUSE) an overlay can be mounted, but removing such a
    directory fails with EIO. getxattr(2): ENOTSUP if unsupported, ENODATA if only the attribute is missing."""
    try:
        os.getxattr(directory, b"user.overlay.opaque")
    except OSError as error:
        return error.errno != errno.ENOTSUP
    return True


def foreign(project: bytes, uid: int, gids: Sequence[int]) -> Iterator[bytes]:
    """Yield entries near the top that belong to other users: an ordinary user's overlay cannot change them
    (EOVERFLOW)."""
    for path, entry in _near_the_top(project):
        if entry.uid != uid or entry.gid not in gids:
            yield path


def _near_the_top(project: bytes) -> Iterator[tuple[bytes, Entry]]:
    """Yield the first few hundred entries, breadth first."""
    pending, looked = [b""], 0
    while pending and looked < _LOOK_AT:
        path = pending.pop(0)
        try:
            opened = open_root(project + b"/" + path if path else project)
        except OSError:
            continue
        with Descriptor(opened):
            by_name = entries(opened)
        looked += min(len(by_name), _CROWD)
        for name, entry in by_name.items():
            at = path + b"/" + name if path else name
            yield at, entry
            if entry.kind == "directory" and (not path or len(by_name) <= _CROWD):
                pending.append(at)
