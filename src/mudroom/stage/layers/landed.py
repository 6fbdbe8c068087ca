"""A fork's paths that were applied while other changes stayed: the project's entry afterwards, and the fork's entry.

While the fork's entry is still the one that landed, the path has no change. Once a command changes it again, the change
is compared with the entry that the project got. If the project's content differs from the fork's (a merge, or a partial
apply), the content common to both from then on is kept in a file: it is the new original.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.stage import disk, safe_open
from mudroom.stage.copy import copy_content
from mudroom.typing import NamedTuple

LANDED = b"/landed"
"""The file with these rows, below the fork's directory."""
KEPT = b"/kept"
"""The directory with kept originals, beside it."""


class LandedPaths(NamedTuple):
    project: Entry | None
    """The project's entry after the apply. With a kept original, that file's entry without inode, so that it equals no
    other file."""
    staged: Entry | None
    """The fork's entry at the apply; after a partial apply, an entry that the fork never has."""
    original: str = ""
    """The kept original's file name; empty if the original is the content that the project got."""


def elsewhere(entry: Entry) -> Entry:
    """Return the entry for a file that is in no project: without inode, so that it equals no other entry."""
    return entry._replace(device=0, inode=0)


def keep_original(fork: bytes, source: int) -> str:
    """Keep an open file's content, read from its beginning. Return the copy's name."""
    os.makedirs(fork + KEPT, mode=0o700, exist_ok=True)
    name = os.urandom(6).hex()
    path = fork + KEPT + b"/" + name.encode()
    with Descriptor(disk.open_path(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600)) as descriptor:
        copy_content(source, descriptor, os.fstat(source).st_size)
        disk.sync(descriptor)
    return name


def open_kept(fork: bytes, name: str) -> int:
    """Return a descriptor for a kept original. Raise OSError."""
    return disk.open_path(fork + KEPT + b"/" + os.fsencode(name), os.O_RDONLY | disk.O_CLOEXEC | disk.O_NOFOLLOW)


def add_landed(path: bytes, rows: Mapping[bytes, LandedPaths]) -> None:
    import msgspec

    landed = load_landed(path)
    replaced = [landed[row].original for row in rows if row in landed and landed[row].original]
    landed.update(rows)
    safe_open.replace(path, msgspec.msgpack.encode(landed))
    for name in replaced:
        os.unlink(os.path.dirname(path) + KEPT + b"/" + os.fsencode(name))


def load_landed(path: bytes) -> dict[bytes, LandedPaths]:
    """Return the rows by path; empty if the file is missing. Raise MudroomError if it is damaged."""
    return safe_open.read_rows(path, dict[bytes, LandedPaths], "other forks are not affected")
