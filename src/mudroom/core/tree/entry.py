"""One name in a tree, as ``lstat`` and ``readlink`` see it.

Entries are compared in two ways, and the difference matters:

* ``same_stamp``: is this still *the very file* that was looked at? Cheap, by identity and times. Used before a file
  is replaced or removed, so that an edit made meanwhile is never lost.
* ``same_shape``: kind, permission bits and link target; with equal content, two entries of the same shape are the
  same thing to a reader.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

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


class StatResult(NamedTuple):
    """The fields of ``os.stat_result`` that are used here; ``os.stat_result`` itself fits as well."""

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
    """Permission bits, set-id and sticky bits included; 0 for a symbolic link, which has none of its own."""
    size: int
    """Bytes; 0 for anything but a file."""
    target: bytes
    """Of a symbolic link, as readlink gives it."""
    device: int
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
    """Whether both are absent, or of one kind with the same permissions and link target. Says nothing of content."""
    if a is None or b is None:
        return a is b
    return (a.kind, a.mode, a.target) == (b.kind, b.mode, b.target)


def same_stamp(a: Entry | None, b: Entry | None) -> bool:
    """Whether ``b`` is the unchanged file ``a``. For a directory its times do not count: they change with its names.

    ctime is left out: renaming a file, which is how apply moves it, changes the ctime of that file. What a change of
    content or mode does to mtime, size and mode is compared.
    """
    if a is None or b is None:
        return a is b
    if (a.kind, a.mode, a.device, a.inode) != (b.kind, b.mode, b.device, b.inode):
        return False
    return a.kind == "directory" or (a.size, a.target, a.mtime) == (b.size, b.target, b.mtime)
