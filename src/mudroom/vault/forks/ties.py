"""Forks of several projects that one command has changed: the fork of the first knows the others.

``forks/<name>/roots`` in the first vault lists the others, ``forks/<name>/first`` in theirs names the first. A part
has the name that the first had when it was made, or another if that was taken there. All vaults lie in one state
directory. The first is made before the others, and discarded after them: a mudroom that is killed meanwhile leaves a
fork that the first one names, or an ordinary fork.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import safe_open
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple
from mudroom.vault.store.fork import Fork, fork_directory

if TYPE_CHECKING:
    from mudroom.vault.store.store import Vault

ROOTS, FIRST = b"/roots", b"/first"


class Tie(NamedTuple):
    """Another project in which a fork has a part."""

    vault: bytes
    """Name of its vault's directory."""
    path: bytes
    """The project's path."""
    is_home: bool = False
    """Whether it is the user's home directory, which is no project else."""
    name: str = ""
    """The part's name as a fork there; empty: it is not made."""

    def label(self) -> str:
        return "your home" if self.is_home else show(self.path)

    def fork(self, first: Fork) -> Fork:
        """Return the part there of the fork ``first``. Raise MudroomError if it is missing."""
        part = self._part(first)
        if not self.is_there(first):
            raise MudroomError(
                f"the part of {first.name} in {self.label()} is missing",
                f"put {show(part.vault)} back, or give the rest up: mudroom discard {first.name}",
            )
        return part

    def is_there(self, first: Fork) -> bool:
        """Return whether the fork ``first`` has a part there."""
        return any(_leads_to(one, first) for one in _read(self._part(first).path + FIRST, self.name))

    def _part(self, first: Fork) -> Fork:
        vault = os.path.dirname(first.vault) + b"/" + self.vault
        return Fork(self.name, vault + b"/forks/" + fork_directory(self.name), vault)


def tie_to(vault: Vault, *, is_home: bool = False) -> Tie:
    return Tie(os.path.basename(vault.path), vault.project, is_home)


def tie(path: bytes, ties: Sequence[Tie]) -> None:
    """Write a fork's list of other projects (``ROOTS``), or the first one (``FIRST``), durably."""
    import json

    from mudroom.vault.record import write

    rows = [
        {"vault": os.fsdecode(one.vault), "path": os.fsdecode(one.path), "home": one.is_home, "fork": one.name}
        for one in ties
    ]
    write(path, json.dumps(rows).encode(), durable=True)


def ties_of(fork: Fork) -> tuple[Tie, ...]:
    """Return the other projects in which a fork has a part, in the order in which they were named."""
    return _read(fork.path + ROOTS, fork.name)


def parts_of(fork: Fork) -> list[Fork]:
    """Return a fork's parts in other projects. Raise MudroomError if one is missing."""
    return [tied.fork(fork) for tied in ties_of(fork)]


@contextmanager
def renaming(fork: Fork, name: str) -> Iterator[None]:
    """Rename a fork in the block: its parts know both names meanwhile. Hold its lock."""
    parts = parts_of(fork)
    rows = [_read(part.path + FIRST, part.name)[:1] for part in parts]
    for part, (first,) in zip(parts, rows, strict=True):
        tie(part.path + FIRST, [first._replace(name=fork.name), first._replace(name=name)])
    yield
    for part, (first,) in zip(parts, rows, strict=True):
        tie(part.path + FIRST, [first._replace(name=name)])


def first_of(fork: Fork) -> Tie | None:
    """Return the project whose fork this one is a part of; None if there is none, or that fork is gone."""
    for one in _read(fork.path + FIRST, fork.name):
        beside = os.path.dirname(fork.vault) + b"/" + one.vault + b"/forks/" + fork_directory(one.name)
        if any(_leads_to(tied, fork) for tied in _read(beside + ROOTS, one.name)):
            return one
    return None


def _leads_to(tied: Tie, fork: Fork) -> bool:
    return (tied.vault, tied.name) == (os.path.basename(fork.vault), fork.name)


def require_single(fork: Fork, verb: str) -> None:
    """Raise UsageError if a fork has parts in other projects, or is such a part: ``verb`` would do half of it."""
    require_first(fork, verb)
    if ties := ties_of(fork):
        places = ", ".join(one.label() for one in ties)
        raise UsageError(
            f"{fork.name} also has changes in {places}: mudroom {verb} is for a fork of one project",
            f"mudroom diff {fork.name}, mudroom apply {fork.name}, mudroom discard {fork.name}",
        )


def require_first(fork: Fork, verb: str) -> None:
    """Raise UsageError if a fork is a part of another project's fork. ``verb``: words before the fork's name."""
    if (first := first_of(fork)) is not None:
        raise UsageError(
            f"{fork.name} is a part of the fork {first.name} of {show(first.path)}",
            f"cd {show_words((first.path,))} && mudroom {verb} {first.name}",
        )


def _read(path: bytes, name: str) -> tuple[Tie, ...]:
    """``name``: of the other fork, where the record does not say."""
    try:
        data = safe_open.read(path)
    except FileNotFoundError:
        return ()
    import json

    try:
        rows: list[dict[str, Any]] = json.loads(data)
        return tuple(
            Tie(os.fsencode(row["vault"]), os.fsencode(row["path"]), bool(row["home"]), str(row.get("fork", name)))
            for row in rows
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MudroomError(f"{show(path)} is damaged: {error}", "mudroom vault check says what is") from error
