"""Paths of a fork that have been applied while others stayed: what the project was made into, and from what.

As long as the fork's own entry is still the one that landed, it changes nothing. Once a command changes it again, the
entry that the project got is what that change is judged against. If the project got something else than the fork
has (a merge, a part of the changes), what both have in common from then on is kept as a file: that is the original.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from mudroom.core.tree.entry import Entry
from mudroom.errors import MudroomError
from mudroom.stage.copy import copy_content

LANDED = b"/landed"
"""The file, below the directory of the fork."""
KEPT = b"/kept"
"""The directory of originals, beside it."""


class LandedPaths(NamedTuple):
    project: Entry | None
    """What is there now; with a kept original, that, which has no inode: nothing is ever the same file as it."""
    staged: Entry | None
    """What the fork had; of a part, nothing that it will ever have."""
    original: str = ""
    """The name of the file of the kept original; empty if it is what the project got."""


def elsewhere(entry: Entry) -> Entry:
    """The entry of a file that is in no project: it has no inode, so nothing is ever the same as it."""
    return entry._replace(device=0, inode=0)


def keep_original(fork: bytes, source: int) -> str:
    """Keep the content of an open file, read from its beginning. Returns its name."""
    os.makedirs(fork + KEPT, mode=0o700, exist_ok=True)
    name = os.urandom(6).hex()
    path = fork + KEPT + b"/" + name.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        copy_content(source, descriptor, os.fstat(source).st_size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return name


def open_kept(fork: bytes, name: str) -> int:
    """A descriptor. Raises OSError."""
    return os.open(fork + KEPT + b"/" + os.fsencode(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def add_landed(path: bytes, rows: Mapping[bytes, LandedPaths]) -> None:
    import msgspec

    known = load_landed(path)
    replaced = [known[row].original for row in rows if row in known and known[row].original]
    known.update(rows)
    with open(path + b".new", "wb") as stream:
        stream.write(msgspec.msgpack.encode(known))
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(path + b".new", path)
    for name in replaced:
        os.unlink(os.path.dirname(path) + KEPT + b"/" + os.fsencode(name))


def load_landed(path: bytes) -> dict[bytes, LandedPaths]:
    """Empty if there is none. Raises MudroomError if it is damaged."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        return {}
    import msgspec

    try:
        return msgspec.msgpack.decode(data, type=dict[bytes, LandedPaths])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise MudroomError(f"{os.fsdecode(path)} is damaged: {error}", "other forks are not affected") from error
