"""Forks of several projects that one command has changed: the fork of the first knows the others.

``forks/<name>/roots`` in the first vault lists the others, ``forks/<name>/first`` in theirs names the first. All
have one name, and their vaults lie in one state directory. The first is made before the others, and discarded after
them: a mudroom that is killed meanwhile leaves a fork that the first one names, or an ordinary fork.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import safe_open
from mudroom.typing import Any, NamedTuple
from mudroom.vault.store.fork import Fork, fork_directory

ROOTS, FIRST = b"/roots", b"/first"


class Tie(NamedTuple):
    """Another project in which a fork has a part."""

    vault: bytes
    """Name of its vault's directory."""
    path: bytes
    """The project's path."""
    is_home: bool = False
    """Whether it is the user's home directory, which is no project else."""

    def label(self) -> str:
        return "your home" if self.is_home else show(self.path)

    def fork(self, first: Fork) -> Fork:
        """Return the part there of the fork ``first``. Raise MudroomError if it is missing."""
        vault = os.path.dirname(first.vault) + b"/" + self.vault
        fork = Fork(first.name, vault + b"/forks/" + fork_directory(first.name), vault)
        if not os.path.isdir(fork.path):
            raise MudroomError(
                f"the part of {first.name} in {self.label()} is missing",
                f"put {show(vault)} back, or give the rest up: mudroom discard {first.name}",
            )
        return fork


def tie(path: bytes, ties: Sequence[Tie]) -> None:
    """Write a fork's list of other projects (``ROOTS``), or the first one (``FIRST``), durably."""
    import json

    from mudroom.vault.record import write

    rows = [{"vault": os.fsdecode(one.vault), "path": os.fsdecode(one.path), "home": one.is_home} for one in ties]
    write(path, json.dumps(rows).encode(), durable=True)


def ties_of(fork: Fork) -> tuple[Tie, ...]:
    """Return the other projects in which a fork has a part, in the order in which they were named."""
    return _read(fork.path + ROOTS)


def first_of(fork: Fork) -> Tie | None:
    """Return the project whose fork this one is a part of; None if there is none, or that fork is gone."""
    for one in _read(fork.path + FIRST):
        beside = os.path.dirname(fork.vault) + b"/" + one.vault + b"/forks/" + fork_directory(fork.name)
        if any(tied.vault == os.path.basename(fork.vault) for tied in _read(beside + ROOTS)):
            return one
    return None


def require_single(fork: Fork, verb: str) -> None:
    """Raise UsageError if a fork has parts in other projects, or is such a part: ``verb`` would do half of it."""
    require_first(fork, verb)
    if ties := ties_of(fork):
        places = ", ".join(one.label() for one in ties)
        raise UsageError(
            f"{fork.name} also has changes in {places}: {verb} is for a fork of one project",
            f"mudroom diff {fork.name}, mudroom apply {fork.name}, mudroom discard {fork.name}",
        )


def require_first(fork: Fork, verb: str) -> None:
    """Raise UsageError if a fork is a part of another project's fork."""
    if (first := first_of(fork)) is not None:
        raise UsageError(
            f"{fork.name} is a part of the fork {fork.name} of {show(first.path)}",
            f"cd {show(first.path)} && mudroom {verb} {fork.name}",
        )


def _read(path: bytes) -> tuple[Tie, ...]:
    try:
        data = safe_open.read(path)
    except FileNotFoundError:
        return ()
    import json

    try:
        rows: list[dict[str, Any]] = json.loads(data)
        return tuple(Tie(os.fsencode(row["vault"]), os.fsencode(row["path"]), bool(row["home"])) for row in rows)
    except (ValueError, KeyError, TypeError) as error:
        raise MudroomError(f"{show(path)} is damaged: {error}", "mudroom vault check says what is") from error
