"""The user's consent to connections between forks, stored in each fork: ``net show`` and ``net reach``.

Rules of this file:
1. A grant belongs to its fork: it ends with that fork, and a new fork with the same name has none.
2. Commands cannot see the file, like the rest of the vault. A file that cannot be read grants nothing.
3. Writers wait for each other; a reader sees the file before or after a change.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from mudroom.core.network.fork_host import label_of, names_of
from mudroom.core.network.fork_rule import ForkIdentity
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.agents.core.fork_consent import MOST_GRANTS, ConsentSide, ForkGrants
from mudroom.stage import safe_open
from mudroom.stage.reader import ANEW, FileReader
from mudroom.vault.forks.endpoint import endpoint_of
from mudroom.vault.lock import Lock
from mudroom.vault.record import write
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.fork_mark import mark_grants
from mudroom.vault.store.store import Vault

_NAME, _LOCK = b"/consent", b"/consent.lock"
_decode = msgspec.json.Decoder(ForkGrants).decode


def grants_of(fork: Fork) -> ForkGrants:
    try:
        return _decode(safe_open.read(fork.path + _NAME))
    except (OSError, MudroomError, msgspec.DecodeError):
        return ForkGrants()


def edit_grants(vault: Vault, fork: Fork, edit: Callable[[ForkGrants], ForkGrants]) -> bool:
    """Change a fork's grants. Return whether that changed anything. Raise MudroomError if they are too many, or cannot
    be written."""
    try:
        with Lock(fork.path + _LOCK, "consent"):
            before = grants_of(fork)
            after = edit(before)
            if after == before:
                return False
            if max(map(len, after)) > MOST_GRANTS:
                raise MudroomError(f"the fork {fork.name} has {MOST_GRANTS} grants", "write them into network.forks")
            mark_grants(vault.path)
            write(fork.path + _NAME, msgspec.json.encode(after), durable=False)
            return True
    except OSError as error:
        raise MudroomError(f"the grants of the fork {fork.name} cannot be written: {error.strerror}") from error


class _ForkFiles(NamedTuple):
    """The parts of a fork's side that change with an entry in its directory."""

    identity: str
    grants: ForkGrants
    endpoint: int | None


def _files_of(path: bytes) -> _ForkFiles:
    fork = Fork(os.fsdecode(os.path.basename(path)), path, os.path.dirname(os.path.dirname(path)))
    try:
        inode = os.stat(path).st_ino
    except FileNotFoundError:
        raise MudroomError(f"there is no fork named {fork.name}") from None
    endpoint = endpoint_of(fork)
    # the creation time comes with an imported fork, and an inode number is used again: only both together are unique
    identity = f"{fork.state.created}.{inode}"
    return _ForkFiles(identity, grants_of(fork), None if endpoint is None else endpoint.port)


def identity_of(fork: Fork) -> ForkIdentity:
    """Return the fork as consent knows it. Raise ForkGone, or MudroomError if it is damaged."""
    return side_of(fork).fork


def side_of(fork: Fork, reading: FileReader = ANEW) -> ConsentSide:
    """Return the fork's side of a consent. ``reading``: may return earlier directory contents if their stamps are
    unchanged. Raise as ``identity_of`` does."""
    files = reading.of(fork.path, _files_of)
    identity = ForkIdentity(label_of(fork.name), files.identity, fork.agent)  # the agent is written in place
    return ConsentSide(identity, files.grants, files.endpoint, fork.name)


def _names_in(forks: bytes) -> tuple[str, ...]:
    with os.scandir(forks) as scan:
        return tuple(os.fsdecode(item.name) for item in scan)


def fork_labelled(vault: Vault, label: str, reading: FileReader = ANEW) -> Fork:
    """Return the fork whose name has this label. ``reading``: as for ``side_of``. Raise UsageError if there is none, or
    several."""
    names = names_of(label, reading.of(vault.path + b"/forks", _names_in))
    if len(names) > 1:
        listed, hint = " and ".join(sorted(names)), f"mudroom fork rename {min(names)} NEW-NAME"
        raise UsageError(f"the forks {listed} have the same name {label} for each other, so none has it", hint)
    fork = vault.find(names[0]) if names else None
    if fork is None:
        raise UsageError(f"there is no fork named {label}", "mudroom ls shows the forks of this project")
    return fork
