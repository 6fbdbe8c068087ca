"""The user's consent to connections between forks, kept beside each fork: ``net show`` and ``net reach``.

Rules of this file: a grant goes with the fork that it is for: it ends with that fork, and a new fork of the name has
none. Commands cannot see it, as all of the vault. A file that cannot be read grants nothing. Writers wait for each
other; a reader sees the file before or after a change.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from mudroom.core.network.fork_consent import MOST_GRANTS, ConsentSide, ForkGrants, ForkIdentity
from mudroom.core.network.fork_host import label_of, names_of
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import safe_open
from mudroom.vault.forks.endpoint import endpoint_of
from mudroom.vault.lock import Lock
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
    """Change the grants of a fork. Return whether that changed anything. Raise MudroomError if they are too many, or
    cannot be written."""
    try:
        with Lock(fork.path + _LOCK, "consent"):
            before = grants_of(fork)
            after = edit(before)
            if after == before:
                return False
            if max(map(len, after)) > MOST_GRANTS:
                raise MudroomError(f"the fork {fork.name} has {MOST_GRANTS} grants", "write them into network.forks")
            mark_grants(vault.path)
            with open(fork.path + _NAME + b".new", "wb") as stream:
                stream.write(msgspec.json.encode(after))
            os.rename(fork.path + _NAME + b".new", fork.path + _NAME)
            return True
    except OSError as error:
        raise MudroomError(f"the grants of the fork {fork.name} cannot be written: {error.strerror}") from error


def identity_of(fork: Fork) -> ForkIdentity:
    """Return the fork as consent knows it. Raise ForkGone, or MudroomError if it is damaged.

    The time of its creation comes with an imported fork, and an inode's number is used again: both together are this
    fork's alone."""
    try:
        inode = os.stat(fork.path).st_ino
    except FileNotFoundError:
        raise MudroomError(f"there is no fork named {fork.name}") from None
    return ForkIdentity(label_of(fork.name), f"{fork.state.created}.{inode}", fork.agent)


def side_of(fork: Fork) -> ConsentSide:
    """Return the fork's side of a consent. Raise as ``identity_of``."""
    endpoint = endpoint_of(fork)
    return ConsentSide(identity_of(fork), grants_of(fork), None if endpoint is None else endpoint.port, fork.name)


def fork_labelled(vault: Vault, label: str) -> Fork:
    """Return the fork whose name has this label. Raise UsageError if there is none, or several."""
    with os.scandir(vault.path + b"/forks") as scan:
        names = names_of(label, [os.fsdecode(item.name) for item in scan])
    if len(names) > 1:
        listed = " and ".join(sorted(names))
        raise UsageError(f"the forks {listed} have the same name {label} for each other, so none has it", "rename one")
    fork = vault.find(names[0]) if names else None
    if fork is None:
        raise UsageError(f"there is no fork named {label}", "mudroom ls shows the forks of this project")
    return fork
