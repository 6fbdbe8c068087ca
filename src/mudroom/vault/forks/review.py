"""What of a fork somebody has looked at: a fingerprint of its changes, kept until the next apply.

An apply of something else than what was looked at is refused, whoever says yes to it: between the look and the yes an
agent may have gone on.
"""

from __future__ import annotations

import os
from _blake2 import blake2b

from mudroom.core.tree.change import Changeset
from mudroom.errors import ForkMoved
from mudroom.vault.store.fork import Fork

REVIEWED = b"/reviewed"
"""The file, below the directory of the fork."""


def fingerprint(changeset: Changeset) -> str:
    """40 hexadecimal digits: of every changed path, of what it is changed from, and of what the fork has there (the
    very file, by inode and times). After a part of a change has landed the rest is another one."""
    from msgspec import msgpack  # with records, which is where changes come from; not before

    shown = [(change.path, change.verb, change.base, change.staged) for change in changeset.changes]
    return blake2b(msgpack.encode(shown), digest_size=20).hexdigest()


def remember(fork: Fork, changeset: Changeset) -> str:
    """Somebody is looking at this now. Returns its fingerprint."""
    found = fingerprint(changeset)
    beside = fork.path + REVIEWED + b".new"
    with open(beside, "w", encoding="ascii") as stream:
        stream.write(found)
    os.rename(beside, fork.path + REVIEWED)
    return found


def reviewed(fork: Fork) -> str | None:
    """The fingerprint of what was looked at last; None if nobody has since the last apply."""
    try:
        with open(fork.path + REVIEWED, encoding="ascii") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def require(fork: Fork, changeset: Changeset, expected: str) -> None:
    """Raises ForkMoved if the fork holds something else."""
    if fingerprint(changeset) != expected:
        raise ForkMoved(b"", f"what {fork.name} holds now")


def forget(fork: Fork) -> None:
    try:
        os.unlink(fork.path + REVIEWED)
    except FileNotFoundError:
        pass
