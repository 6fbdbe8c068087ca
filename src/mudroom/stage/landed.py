"""Paths of a fork that have been applied while others stayed: what the project was made into, and from what.

As long as the fork's own entry is still the one that landed, it changes nothing. Once a command changes it again, the
entry that the project got is what that change is judged against.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from mudroom.core.entry import Entry
from mudroom.errors import MudroomError

LANDED = b"/landed"
"""The file, below the directory of the fork."""


class Landed(NamedTuple):
    project: Entry | None
    staged: Entry | None


def add_landed(path: bytes, rows: Mapping[bytes, Landed]) -> None:
    import msgspec

    known = load_landed(path)
    known.update(rows)
    with open(path + b".new", "wb") as stream:
        stream.write(msgspec.msgpack.encode(known))
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(path + b".new", path)


def load_landed(path: bytes) -> dict[bytes, Landed]:
    """Empty if there is none. Raises MudroomError if it is damaged."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        return {}
    import msgspec

    try:
        return msgspec.msgpack.decode(data, type=dict[bytes, Landed])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise MudroomError(f"{os.fsdecode(path)} is damaged: {error}", "other forks are not affected") from error
