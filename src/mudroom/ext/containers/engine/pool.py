"""A pool of warm containers: a container lives longer than the command in it.

A command acquires a container and gives it back. The command's writes are in its fork, not in the container, and its
leftover processes ended with it. A container is closed when it is unfit for another use, has been used often enough, is
old, or has been idle for long.

Rules of this file:
1. A container is used by one command at a time, or by one sandbox's commands: its limits are theirs.
2. A container used for one fork is never used for another: its mounts are the fork's. If commands in it have no
   namespaces (``Container.nested``), their leftovers are the container's, which is then used only once.
3. Containers started ahead are of the kind requested last. Separate threads start them, so no caller waits for them.
   After a failure none is started ahead until a caller has received a container.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from mudroom.core.tree.path import is_below
from mudroom.errors import MudroomError
from mudroom.ext.containers.core.container import Container, ContainerMount
from mudroom.ext.containers.engine.box import Box
from mudroom.typing import NamedTuple


class Rules(NamedTuple):
    """How long a container is kept."""

    most_idle: int = 4
    """Idle containers that are kept; the least recently used goes first."""
    uses: int = 500
    """Commands that may run in a container."""
    age: float = 12 * 3600.0
    """Seconds since its start, after which no further command is run in it."""
    idle: float = 600.0
    """Seconds for which an idle container is kept."""
    warm: int = 0
    """Containers that are kept ready beside those in use."""


RULES = Rules()


def covers(have: Iterable[ContainerMount], wanted: Iterable[ContainerMount]) -> bool:
    """Return whether all wanted mounts are visible, at the same path and with the same right to write."""
    mounts = sorted(have, key=lambda mount: len(mount.target), reverse=True)
    for mount in wanted:
        mount_above = next((mount_found for mount_found in mounts if is_below(mount.target, mount_found.target)), None)
        if mount_above is None or mount_above.source + mount.target[len(mount_above.target) :] != mount.source:
            return False
        if mount_above.writable != mount.writable:
            return False
    return True


def serves(box: Container, wanted: Container) -> bool:
    """Return whether a container made as ``box`` can be used in place of ``wanted``."""
    alike = all(getattr(box, name) == getattr(wanted, name) for name in _ALIKE)
    return alike and covers(box.mounts, wanted.mounts)


_ALIKE = tuple(name for name in Container._fields if name not in ("name", "entry", "mounts", "labels", "seccomp"))


class _PooledBox:
    """A container, with the facts that the rules need."""

    def __init__(self, box: Box, now: float) -> None:
        self.box, self.born, self.since, self.uses = box, now, now, 0
        self.fork: str | None = None
        """The fork that it has been used for."""


class Pool:
    """Safe to use from several threads. It has to be closed."""

    def __init__(
        self, make: Callable[[Container], Box], rules: Rules = RULES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``make`` starts a container, in any thread. ``clock`` returns seconds."""
        self._make, self.rules, self._clock = make, rules, clock
        self._changed = threading.Condition()
        self._idle: list[_PooledBox] = []
        """Ordered by last use; the most recent is the last."""
        self._used: dict[Box, _PooledBox] = {}
        self._starting = 0
        self._is_tended = self._is_closed = self._has_failed = False

    def acquire(self, wanted: Container, fork: str) -> Box:
        """Return a matching container for the caller alone, until ``release`` or ``discard``; start one if none
        matches. ``fork`` is the fork's name. Raise MudroomError if none can be started."""
        self.tidy()
        while (pooled := self._take(wanted, fork)) is not None:
            if pooled.box.is_healthy():
                break
            self.discard(pooled.box)
        if pooled is None:
            pooled = self._new(wanted)
            with self._changed:
                self._used[pooled.box] = pooled
        pooled.uses += 1
        pooled.fork = fork
        self._start_ahead(wanted)
        return pooled.box

    def keep_warm(self, count: int) -> None:
        """Set the number of warm containers, from the next command on."""
        with self._changed:
            self.rules = self.rules._replace(warm=count)

    def release(self, box: Box, *, fit: bool = True) -> None:
        """Give a container back. With ``fit`` false, no other command may run in it."""
        with self._changed:
            pooled = self._used.pop(box, None)
            if pooled is None:  # the pool was closed, and the container with it
                return
            pooled.since = self._clock()
            is_kept = fit and not self._is_closed and not self._is_worn(pooled) and box.is_healthy()
            if is_kept:
                self._idle.append(pooled)
        if not is_kept:
            box.close()
        self.tidy()

    def discard(self, box: Box) -> None:
        """Close a container that is unfit for another use."""
        with self._changed:
            self._used.pop(box, None)
        box.close()

    def tidy(self) -> float | None:
        """Close the containers that the rules do not keep. Return the seconds until the next may have to be closed, or
        None if none is idle."""
        now = self._clock()
        with self._changed:
            expired = [
                pooled for pooled in self._idle if self._is_worn(pooled) or now - pooled.since >= self.rules.idle
            ]
            kept = [pooled for pooled in self._idle if pooled not in expired]
            most = max(self.rules.most_idle, self.rules.warm)
            expired += kept[: max(0, len(kept) - most)]
            self._idle = kept[max(0, len(kept) - most) :]
            first = min((pooled.since for pooled in self._idle), default=None)
            if first is not None and not self._is_tended:
                self._is_tended = True
                threading.Thread(target=self._tend, name="mudroom-pool", daemon=True).start()
        for pooled in expired:
            pooled.box.close()
        return None if first is None else max(0.0, first + self.rules.idle - now)

    def close(self) -> None:
        """Close all containers, also those that are still being started."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._starting)
            boxes = [pooled.box for pooled in (*self._idle, *self._used.values())]
            self._idle, self._used = [], {}
        for box in boxes:
            box.close()

    def forget(self, fork: str) -> None:
        """Close a discarded fork's idle containers: no other fork could use them."""
        with self._changed:
            expired = [pooled for pooled in self._idle if pooled.fork == fork]
            self._idle = [pooled for pooled in self._idle if pooled.fork != fork]
        for pooled in expired:
            pooled.box.close()

    def _take(self, wanted: Container, fork: str) -> _PooledBox | None:
        """Take the container that this fork has used last, or an unused one."""
        with self._changed:
            fit = [candidate for candidate in reversed(self._idle) if serves(candidate.box.container, wanted)]
            pooled = next((candidate for name in (fork, None) for candidate in fit if candidate.fork == name), None)
            if pooled is not None:
                self._idle.remove(pooled)
                self._used[pooled.box] = pooled
            return pooled

    def _new(self, wanted: Container) -> _PooledBox:
        pooled = _PooledBox(self._make(wanted), self._clock())
        self._has_failed = False
        return pooled

    def _is_worn(self, pooled: _PooledBox) -> bool:
        if pooled.uses and not pooled.box.container.nested:
            return True
        return pooled.uses >= self.rules.uses or self._clock() - pooled.born >= self.rules.age

    def _start_ahead(self, wanted: Container) -> None:
        with self._changed:
            ready = sum(pooled.fork is None and serves(pooled.box.container, wanted) for pooled in self._idle)
            count = self.rules.warm - ready - self._starting
            if self._is_closed or self._has_failed or count <= 0:
                return
            self._starting += count
        for _number in range(count):
            threading.Thread(target=self._ahead, args=(wanted,), name="mudroom-pool", daemon=True).start()

    def _ahead(self, wanted: Container) -> None:
        pooled, late = None, True
        try:
            pooled = _PooledBox(self._make(wanted), self._clock())
        except MudroomError:
            self._has_failed = True
        finally:
            with self._changed:
                late = self._is_closed
                if pooled is not None and not late:
                    self._idle.insert(0, pooled)
            if pooled is not None and late:
                pooled.box.close()
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()

    def _tend(self) -> None:
        """Close idle containers in time even without further callers. End with the last container."""
        while True:
            rest = self.tidy()
            with self._changed:
                if not self._idle or self._is_closed:
                    self._is_tended = False
                    return
                self._changed.wait((rest or 0.0) + 0.01)
