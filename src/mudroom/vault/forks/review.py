"""The fingerprint of the changes that a user has reviewed, kept until the next apply.

An apply of other changes than the reviewed ones is refused: between the review and the apply an agent may have
continued.
"""

from __future__ import annotations

import os
from _blake2 import blake2b

from mudroom.core.tree.change import Changeset
from mudroom.errors import FULL, ForkChanged
from mudroom.stage import disk
from mudroom.vault.store.fork import Fork

REVIEWED = b"/reviewed"
"""The file, below the fork's directory."""


def fingerprint(changeset: Changeset) -> str:
    """Return 40 hexadecimal digits that identify the changes: every changed path, its base, and the fork's entry there
    (the very file, by inode and times). After a part of a change has landed the rest has another fingerprint.
    """
    from msgspec import msgpack  # imported late: records import it, and changes come from records

    shown = [(change.path, change.verb, change.base, change.staged) for change in changeset.changes]
    return blake2b(msgpack.encode(shown), digest_size=20).hexdigest()


def remember(fork: Fork, changeset: Changeset) -> tuple[str, bool]:
    """Record that these changes are being reviewed. Return their fingerprint, and whether it was recorded: on a full
    disk it is not, and the fingerprint of an earlier review stays."""
    digest = fingerprint(changeset)
    beside = fork.path + REVIEWED + b".new"
    try:
        with open(beside, "w", encoding="ascii") as stream:
            stream.write(digest)
        disk.rename_path(beside, fork.path + REVIEWED)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return digest, False
    return digest, True


def reviewed(fork: Fork) -> str | None:
    """Return the fingerprint of the last review; None if there was none since the last apply."""
    try:
        with open(fork.path + REVIEWED, encoding="ascii") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def require(fork: Fork, changeset: Changeset, expected: str, what: str = "applied") -> None:
    """Raise ForkChanged if the changes do not have the expected fingerprint. ``what``: was to be done with them."""
    if fingerprint(changeset) != expected:
        raise ForkChanged(fork.name, what)


def forget(fork: Fork) -> None:
    try:
        os.unlink(fork.path + REVIEWED)
    except FileNotFoundError:
        pass
