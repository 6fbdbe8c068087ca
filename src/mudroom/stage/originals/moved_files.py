"""Ctimes of the files that undos and redos have put back into the project.

A rename changes the ctime, by which forks and applies recognise a file whose content they have not kept. A vault's
``applies/moved`` has by inode the ctimes of such a file before and after each rename, oldest first, for as long as it
has not changed otherwise.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping

from mudroom.core.tree.entry import Entry
from mudroom.stage import safe_open
from mudroom.typing import NamedTuple

_NAME = b"/moved"
_SECOND = 1_000_000_000

Ctimes = Mapping[int, tuple[int, ...]]


class Moved(NamedTuple):
    """A file that an operation has put into the project."""

    inode: int
    before: int
    """Its ctime when it was planned, nanoseconds."""
    after: int
    """Its ctime in the project."""


def ctimes_of(known: Ctimes, entry: Entry) -> tuple[int, ...]:
    """Return the ctimes that a file has had since its last change, its present one included."""
    ctimes = known.get(entry.inode, ())
    return ctimes if entry.ctime in ctimes[-1:] else (entry.ctime,)


def read(applies: bytes) -> Ctimes:
    """Return the ctimes by inode; none if they cannot be read: such a file is then in doubt."""
    import msgspec

    try:
        return msgspec.msgpack.decode(safe_open.read(applies + _NAME), type=dict[int, tuple[int, ...]])
    except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
        return {}


def add(applies: bytes, moved: Iterable[Moved]) -> None:
    """Note files that were put back. A ctime in whole seconds is left out: an edit just after it could have it, too."""
    known = dict(read(applies))
    for inode, before, after in moved:
        ctimes = known.get(inode, ())
        if after % _SECOND and after not in ctimes[-1:]:
            known[inode] = (*(ctimes if before in ctimes[-1:] else (before,)), after)
    _write(applies, known)


def forget(applies: bytes, oldest: int) -> None:
    """Forget what nothing recorded since ``oldest``, in nanoseconds, can refer to."""
    known = read(applies)
    left = {inode: ctimes[max(bisect_right(ctimes, oldest) - 1, 0) :] for inode, ctimes in known.items()}
    left = {inode: ctimes for inode, ctimes in left.items() if len(ctimes) > 1}
    if left != known:
        _write(applies, left)


def _write(applies: bytes, known: Ctimes) -> None:
    import msgspec

    if known or os.path.exists(applies + _NAME):
        safe_open.replace(applies + _NAME, msgspec.msgpack.encode(known))
