"""A fork with its parts in other projects, at rest: all are frozen, forked and rolled back under the same names.

The fork itself is changed last: mudroom can be killed meanwhile, and then the fork has not got the checkpoint. A
checkpoint of a part that the fork has not got is dropped before the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from mudroom.core.tree import stack
from mudroom.core.tree.stack import Checkpoint
from mudroom.typing import NamedTuple
from mudroom.vault.forks import stacking
from mudroom.vault.forks.ties import FIRST, Tie, tie, tie_to
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault


class Part(NamedTuple):
    vault: Vault
    fork: Fork
    tied: Tie


class TiedForks:
    """Owner: the thread that holds the locks of the fork and its parts."""

    def __init__(self, vault: Vault, fork: Fork, parts: list[Part]) -> None:
        self._vault, self._fork, self._parts = vault, fork, parts

    def checkpoint(self, name: str, time: int, *, automatic: bool = False) -> Checkpoint:
        stacking.require_free(self._fork, name)
        self.freeze(name, time, automatic=automatic)
        return stacking.checkpoint(self._vault, self._fork, name, time, automatic=automatic)

    def freeze(self, name: str, time: int, *, automatic: bool) -> None:
        """Make a checkpoint of the parts alone."""
        for vault, part, _tied in self._parts:
            known, state = self._fork.state, part.state
            if any(known.checkpoint(point.name) is None for point in state.checkpoints):
                points = (point for point in state.checkpoints if known.checkpoint(point.name) is not None)
                part.save(state._replace(checkpoints=tuple(points)))
            stacking.checkpoint(vault, part, name, time, automatic=automatic)

    def rollback(self, name: str, time: int) -> Checkpoint | None:
        """Do as ``stacking.rollback`` does. What was dropped is kept under one name."""
        if not self._parts:
            return stacking.rollback(self._vault, self._fork, name, time)
        forks = [*((vault, part) for vault, part, _tied in self._parts), (self._vault, self._fork)]
        points = [stacking.find_checkpoint(fork, name) for _vault, fork in forks]
        before = None
        if not all(stacking.is_standing_on(fork, point) for (_vault, fork), point in zip(forks, points, strict=True)):
            before = self.checkpoint(stack.free_name(self._fork.state, "rollback"), time, automatic=True)
        for vault, fork in forks:
            stacking.rollback(vault, fork, name, time)
        return before

    def fork(self, name: str, time: int, at: str | None, *, named: bool, carry: Callable[[Fork], None]) -> Fork:
        """Do as ``stacking.fork_of`` does."""
        made: list[tuple[Vault, Fork, Tie]] = []
        try:
            for vault, part, tied in self._parts:
                own = free_part_name(vault, name)
                below = stacking.fork_of(vault, part, own, time, at, named=False)
                tie(below.path + FIRST, [tie_to(self._vault)._replace(name=name)])
                made.append((vault, below, tied._replace(name=own)))
            ties = [tied for _vault, _fork, tied in made]
            return stacking.fork_of(self._vault, self._fork, name, time, at, named=named, ties=ties, carry=carry)
        except BaseException:
            for vault, below, _tied in made:
                vault.discard(below)
            raise


def free_part_name(vault: Vault, name: str) -> str:
    """Return the name of a new part: that of the first project's fork, or with a number behind it."""
    names = itertools.chain((name,), (f"{name[:56]}-{number}" for number in itertools.count(2)))
    return next(one for one in names if vault.find(one) is None)


def new_part(vault: Vault, name: str, first: Vault, fork: Fork, time: int) -> Fork:
    """Make a part of ``fork``, in which nothing has changed, at none of its checkpoints either."""

    def complete(made: Fork) -> None:
        points = (one._replace(layers=(), automatic=True) for one in fork.state.checkpoints)
        made.save(made.state._replace(checkpoints=tuple(points)))
        tie(made.path + FIRST, [tie_to(first)._replace(name=fork.name)])

    return vault.new_fork(name, time=time, complete=complete)
