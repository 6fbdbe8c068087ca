"""File system metadata for one path, as ``lstat`` and ``readlink`` return it.

Entries are compared in four ways:

* ``is_untouched``: the file has not been modified, replaced, renamed or linked since the entry was read. An entry for a
  user's file is trusted only on this test. If it fails, the content decides (docs/FORMAT.md has the table).
* ``same_stamp``: the same without the ctime, which a rename changes: for files that mudroom itself has moved, and that
  only it can write.
* ``in_copy``: the file in a copy of its tree, once, when a vault or a project was restored from a backup.
* ``same_shape``: kind, permission bits and link target are equal. Two entries with equal shape and equal content look
  the same to a reader.

The device number counts in none of them: btrfs, overlayfs, FUSE, NFS and ZFS get another one at each mount, and entries
are kept across reboots. It distinguishes files only among entries that were read at the same time.
"""

from __future__ import annotations

from mudroom.typing import Literal, NamedTuple

Kind = Literal["file", "directory", "symlink", "fifo", "socket", "device"]

_KINDS: dict[int, Kind] = {
    0o100000: "file",
    0o040000: "directory",
    0o120000: "symlink",
    0o010000: "fifo",
    0o140000: "socket",
    0o020000: "device",
    0o060000: "device",
}


HELD = "is held open by another program, or is a mount point"
"""Why a file that gives EBUSY is in conflict, as the end of a sentence."""


HELD_HINT = "end the program that holds it, and try again: mudroom ps lists those in the background"


class FileHeld(OSError):
    """EBUSY: another program holds the file open and does not share it, so it can be seen, but neither read nor
    replaced. Not a PermissionError: a file that cannot be read for a moment must not be taken for a missing file."""


class StatResult(NamedTuple):
    """The fields of ``os.stat_result`` that are used here. ``os.stat_result`` itself has this interface as well."""

    st_mode: int
    st_ino: int
    st_dev: int
    st_nlink: int
    st_uid: int
    st_gid: int
    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int


class Entry(NamedTuple):
    kind: Kind
    mode: int
    """Permission bits with set-id and sticky bits; 0 for a symbolic link, which has no mode of its own."""
    size: int
    """Bytes; 0 for every kind except ``file``."""
    target: bytes
    """A symbolic link's target, as readlink returns it; otherwise empty."""
    device: int
    """Valid until the file system is mounted again."""
    inode: int
    links: int
    uid: int
    gid: int
    mtime: int
    """Nanoseconds since 1970."""
    ctime: int
    """Nanoseconds since 1970."""

    @property
    def executable(self) -> bool:
        return self.kind == "file" and bool(self.mode & 0o111)


def from_stat(stat: StatResult, target: bytes = b"") -> Entry:
    kind = _KINDS[stat.st_mode & 0o170000]
    return Entry(
        kind,
        0 if kind == "symlink" else stat.st_mode & 0o7777,
        stat.st_size if kind == "file" else 0,
        target,
        stat.st_dev,
        stat.st_ino,
        stat.st_nlink,
        stat.st_uid,
        stat.st_gid,
        stat.st_mtime_ns,
        stat.st_ctime_ns,
    )


def same_shape(a: Entry | None, b: Entry | None) -> bool:
    """Return whether both are absent, or have the same kind, permissions and link target. Contents are not compared."""
    if a is None or b is None:
        return a is b
    return (a.kind, a.mode, a.target) == (b.kind, b.mode, b.target)


def is_untouched(a: Entry | None, b: Entry | None) -> bool:
    """Return whether ``b`` is the file ``a``, with every time unchanged. No program can set the ctime, which changes
    with content, mode, owner, links and times (inode(7)): so tools that restore size and mtime, as rsync and ``cp -p``,
    are noticed. Directory times are ignored: they change with the directory's names."""
    return same_stamp(a, b) and (a is None or b is None or a.kind == "directory" or a.ctime == b.ctime)


def same_stamp(a: Entry | None, b: Entry | None) -> bool:
    """Return whether ``b`` is the file ``a``, perhaps renamed or linked. Not for files that others can write: their
    size and mtime can be restored after an edit."""
    if a is None or b is None:
        return a is b
    if (a.kind, a.mode, a.inode) != (b.kind, b.mode, b.inode):
        return False
    return a.kind == "directory" or (a.size, a.target, a.mtime) == (b.size, b.target, b.mtime)


def in_copy(entry: Entry, found: Entry | None) -> Entry | None:
    """Return the entry of a file in a copy of its tree, where ``found`` is at its path; None if that is another file.

    For a tree that was copied with its times: GNU tar's usual format keeps whole seconds. An entry without inode is one
    that no file has."""
    if found is None or not entry.inode or (entry.kind, entry.mode) != (found.kind, found.mode):
        return None
    is_same_time = found.mtime in (entry.mtime, entry.mtime - entry.mtime % 1_000_000_000)
    if entry.kind == "directory" or ((entry.size, entry.target) == (found.size, found.target) and is_same_time):
        return entry if entry.inode == found.inode and entry.mtime == found.mtime else found
    return None


def difference_in_words(expected: Entry | None, actual: Entry | None) -> str:
    """Return why ``same_stamp`` does not hold for an entry, in two or three words."""
    if expected is None or actual is None:
        return "it is new" if actual is not None else "it is gone"
    fields = ("kind", "mode", "inode", "target", "size", "mtime")
    field = next((name for name in fields if getattr(expected, name) != getattr(actual, name)), "time")
    return {"inode": "another file", "mtime": "another time"}.get(field, f"another {field}")
