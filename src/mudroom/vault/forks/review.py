"""Looks at a fork's changes, and the last look, kept until the next apply.

Rules of this file:

1. A look is a *review* only if the fork was set apart for it (``apart.py``), so that only mudroom could reach its
   files. Contents shown while a command or a mount holds the fork can differ from the contents that land, with equal
   stamps: a store to a page that is already dirty changes no time until the kernel writes the page back.
2. Each look has a fingerprint. An apply accepts only a review's; any other look's fingerprint is derived from it in one
   direction (``of_look``), so that none can be taken for a review.
3. An apply is refused if its changes differ from the last look, or if that look was not a review.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from contextlib import suppress

from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry
from mudroom.errors import FULL, ForkChanged, NotReviewed
from mudroom.stage import safe_open
from mudroom.typing import TYPE_CHECKING, NamedTuple
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.vault.record import ForkRecord

REVIEWED = b"/reviewed"
"""File below the fork's directory with the last look's fingerprint."""
LOOK = "look-"
"""Fingerprint prefix for a look that was not a review."""


class ForkLook(NamedTuple):
    record: ForkRecord | None
    """None if no command has ended in the fork."""
    in_use: str = ""
    """Why the fork could not be set apart, to follow its name: "is running (npm run dev)". Empty: this is a review."""

    @property
    def changeset(self) -> Changeset:
        return self.record.changeset if self.record is not None else Changeset()

    @property
    def fingerprint(self) -> str:
        return self.sign(fingerprint(self.changeset))

    def sign(self, digest: str) -> str:
        """Return the fingerprint of this look. ``digest``: ``fingerprint`` of its changes."""
        return of_look(digest) if self.in_use else digest


def fingerprint(changeset: Changeset) -> str:
    """Return 40 hexadecimal digits that identify the changes: every changed path, its base, and the fork's entry there
    (the exact file, by inode and times). After a partial apply the rest has another fingerprint."""
    from msgspec import msgpack  # imported late: records import this module, and changes come from records

    shown = [
        (change.path, change.verb, _without_device(change.base), _without_device(change.staged))
        for change in changeset.changes
    ]
    return blake2b(msgpack.encode(shown), digest_size=20).hexdigest()


def _without_device(entry: Entry | None) -> Entry | None:
    """Return the entry as it is after the file system is mounted again."""
    return entry._replace(device=0) if entry is not None else None


def of_look(digest: str) -> str:
    """Return the fingerprint of a look at these changes that is not a review."""
    return LOOK + blake2b(digest.encode(), digest_size=20, person=b"look").hexdigest()


def not_reviewed(fork: str, in_use: str) -> str:
    """Return the sentence that says that a look is not a review."""
    return f"{fork} {in_use}: this is a look, not a review"


def remember(fork: Fork, look: ForkLook) -> bool:
    """Record a look's fingerprint. Return False on a full disk: then it was not recorded, and the previous fingerprint
    stays."""
    try:
        safe_open.replace(fork.path + REVIEWED, look.fingerprint.encode("ascii"), durable=False)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return False
    return True


def reviewed(fork: Fork) -> str | None:
    """Return the last look's fingerprint; None if there was none since the last apply."""
    try:
        with open(fork.path + REVIEWED, encoding="ascii") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def require(fork: Fork, changeset: Changeset, expected: str, *, mounted: bool = False) -> None:
    """Raise ForkMoved if the expected fingerprint is not from a review of these changes. Hold the fork's lock; the fork
    is set apart. ``mounted``: it was mounted until now."""
    if expected.startswith(LOOK):
        raise NotReviewed(fork.name, mounted=mounted)
    if fingerprint(changeset) != expected:
        raise ForkChanged(fork.name)


def require_seen(fork: Fork, changeset: Changeset, expected: str, what: str) -> None:
    """Raise ForkChanged if the expected fingerprint is from a look at other changes; the look need not be a review.

    For operations that land nothing. ``what``: the operation.
    """
    digest = fingerprint(changeset)
    if expected not in (digest, of_look(digest)):
        raise ForkChanged(fork.name, what)


def forget(fork: Fork) -> None:
    with suppress(FileNotFoundError):
        os.unlink(fork.path + REVIEWED)
