"""Containers that are warm: the lifetime of a container is not that of what is done in it.

A command acquires one and gives it back; what it has written is in its fork, not in the container, and what it has left
behind there ended with it. One that is not fit to be used again is closed, and so is one that has been used often
enough, is old, or that nobody has asked for.

Rules of this file:
1. A container is used by one command at a time, or by the commands of one sandbox: its limits are theirs.
2. What commands leave in their /tmp is for those that come after them in the same fork: a container that has been used
   for one fork is never used for another one. Where a command has no namespaces of its own (``nested`` of the
   container), what it leaves is the container's, and that is used once.
3. What is started ahead is what was asked for last. It is started by a thread of its own, so nobody waits for it. If
   that fails nothing is started ahead until somebody who needs a container has got one, or has been told why not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mudroom.core.confinement.container import Container, ContainerMount
from mudroom.core.tree.path import is_below
from mudroom.errors import MudroomError
from mudroom.sandbox.container.box import Box


class Rules(NamedTuple):
    """How long a container is kept."""

    most_idle: int = 4
    """Containers that are kept though nobody uses them; the one that was used longest ago goes first."""
    uses: int = 500
    """Commands that are run in one."""
    age: float = 12 * 3600.0
    """Seconds since its start, after which no other command is run in it."""
    idle: float = 600.0
    """Seconds for which it is kept though nobody uses it."""
    warm: int = 0
    """Containers that are kept ready beside those that are in use."""


RULES = Rules()


def covers(have: Iterable[ContainerMount], wanted: Iterable[ContainerMount]) -> bool:
    """Whether all that is wanted is to be seen, at the same place and with the same right to write."""
    mounts = sorted(have, key=lambda mount: len(mount.target), reverse=True)
    for mount in wanted:
        found = next((one for one in mounts if is_below(mount.target, one.target)), None)
        if found is None or found.source + mount.target[len(found.target) :] != mount.source:
            return False
        if found.writable != mount.writable:
            return False
    return True


def serves(box: Container, wanted: Container) -> bool:
    """Whether a container that was made as ``box`` can be used where ``wanted`` would be made."""
    alike = all(getattr(box, name) == getattr(wanted, name) for name in _ALIKE)
    return alike and covers(box.mounts, wanted.mounts)


_ALIKE = tuple(name for name in Container._fields if name not in ("name", "entry", "mounts", "labels", "seccomp"))


class _Kept:
    """A container, and what the rules ask about it."""

    def __init__(self, box: Box, now: float) -> None:
        self.box, self.born, self.since, self.uses = box, now, now, 0
        self.whose: str | None = None
        """The fork that it has been used for."""


class Pool:
    """Safe to use from several threads. To be closed."""

    def __init__(
        self, make: Callable[[Container], Box], rules: Rules = RULES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``make`` starts a container, in whichever thread. ``clock``: seconds."""
        self._make, self.rules, self._clock = make, rules, clock
        self._changed = threading.Condition()
        self._idle: list[_Kept] = []
        """The one that was used last is the last."""
        self._used: dict[Box, _Kept] = {}
        self._starting = 0
        self._is_tended = self._is_closed = self._has_failed = False

    def acquire(self, wanted: Container, whose: str) -> Box:
        """One that serves, for the caller alone, until ``release`` or ``discard``; a new one if none does. ``whose``:
        the fork. Raises MudroomError if there can be none."""
        self.tidy()
        while (kept := self._take(wanted, whose)) is not None:
            if kept.box.is_healthy():
                break
            self.discard(kept.box)
        if kept is None:
            kept = self._new(wanted)
            with self._changed:
                self._used[kept.box] = kept
        kept.uses += 1
        kept.whose = whose
        self._start_ahead(wanted)
        return kept.box

    def keep_warm(self, count: int) -> None:
        """From the next command on."""
        with self._changed:
            self.rules = self.rules._replace(warm=count)

    def release(self, box: Box, *, fit: bool = True) -> None:
        """Give one back. ``fit``: whether another command may be run in it, for all that its user has seen."""
        with self._changed:
            kept = self._used.pop(box, None)
            if kept is None:  # the pool was closed, and the container with it
                return
            kept.since = self._clock()
            keep = fit and not self._is_closed and not self._is_worn(kept) and box.is_healthy()
            if keep:
                self._idle.append(kept)
        if not keep:
            box.close()
        self.tidy()

    def discard(self, box: Box) -> None:
        """Of one that is not fit to be used again."""
        with self._changed:
            self._used.pop(box, None)
        box.close()

    def tidy(self) -> float | None:
        """Close what the rules do not keep. Seconds until there may be something to do again; None: nothing is idle."""
        now = self._clock()
        with self._changed:
            over = [one for one in self._idle if self._is_worn(one) or now - one.since >= self.rules.idle]
            kept = [one for one in self._idle if one not in over]
            most = max(self.rules.most_idle, self.rules.warm)
            over += kept[: max(0, len(kept) - most)]
            self._idle = kept[max(0, len(kept) - most) :]
            first = min((one.since for one in self._idle), default=None)
            if first is not None and not self._is_tended:
                self._is_tended = True
                threading.Thread(target=self._tend, name="mudroom-pool", daemon=True).start()
        for one in over:
            one.box.close()
        return None if first is None else max(0.0, first + self.rules.idle - now)

    def close(self) -> None:
        """Close them all, also those that are still being started."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._starting)
            boxes = [one.box for one in (*self._idle, *self._used.values())]
            self._idle, self._used = [], {}
        for box in boxes:
            box.close()

    def forget(self, whose: str) -> None:
        """Close those that nobody but a fork could use, which is no more."""
        with self._changed:
            over = [one for one in self._idle if one.whose == whose]
            self._idle = [one for one in self._idle if one.whose != whose]
        for one in over:
            one.box.close()

    def _take(self, wanted: Container, whose: str) -> _Kept | None:
        """The one that this fork has used last, or one that nobody has used."""
        with self._changed:
            fit = [one for one in reversed(self._idle) if serves(one.box.container, wanted)]
            found = next((one for name in (whose, None) for one in fit if one.whose == name), None)
            if found is not None:
                self._idle.remove(found)
                self._used[found.box] = found
            return found

    def _new(self, wanted: Container) -> _Kept:
        kept = _Kept(self._make(wanted), self._clock())
        self._has_failed = False
        return kept

    def _is_worn(self, kept: _Kept) -> bool:
        if kept.uses and not kept.box.container.nested:
            return True
        return kept.uses >= self.rules.uses or self._clock() - kept.born >= self.rules.age

    def _start_ahead(self, wanted: Container) -> None:
        with self._changed:
            ready = sum(one.whose is None and serves(one.box.container, wanted) for one in self._idle)
            count = self.rules.warm - ready - self._starting
            if self._is_closed or self._has_failed or count <= 0:
                return
            self._starting += count
        for _number in range(count):
            threading.Thread(target=self._ahead, args=(wanted,), name="mudroom-pool", daemon=True).start()

    def _ahead(self, wanted: Container) -> None:
        kept, late = None, True
        try:
            kept = _Kept(self._make(wanted), self._clock())
        except MudroomError:
            self._has_failed = True
        finally:
            with self._changed:
                late = self._is_closed
                if kept is not None and not late:
                    self._idle.insert(0, kept)
            if kept is not None and late:
                kept.box.close()
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()

    def _tend(self) -> None:
        """Close what stays idle, also if nobody comes any more. Ends with the last of them."""
        while True:
            rest = self.tidy()
            with self._changed:
                if not self._idle or self._is_closed:
                    self._is_tended = False
                    return
                self._changed.wait((rest or 0.0) + 0.01)
