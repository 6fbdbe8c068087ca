"""A worker's sessions: one for each base, settings and agent, kept for the next errand.

A session has its host rules and its approver for hosts for all its commands (``session/machine.py``). Errands with
other settings therefore have another session, on the same vault.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.fleet.wire import settings as wire_settings
from mudroom.ext.fleet.wire.message import Errand
from mudroom.ext.fleet.worker.base_cache import BaseCache
from mudroom.ext.fleet.worker.tighten import tightened
from mudroom.policy.parse import GivenSetting
from mudroom.session import Session
from mudroom.session.confinement.host_approver import HostAnswers
from mudroom.session.upkeep import remove_vault, vaults_of
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.session.confinement.dialler import Dialler
    from mudroom.session.confinement.host_approver import Approver

MOST_IDLE = 4
"""Sessions that wait for their next errand."""


class WorkerEnvironment(NamedTuple):
    """A worker's directories, variables and policy."""

    state: bytes
    """The directory with this origin's vaults."""
    variables: Mapping[bytes, bytes]
    """This process's environment. Commands get the variables that the allowlist names."""
    policy: Sequence[GivenSetting] = ()
    """This user's policy."""


class _Key(NamedTuple):
    base: bytes
    settings: bytes
    agent: str
    through_origin: bool


class _CachedSession:
    """``lock`` guards the making of the session, the lock of the cache everything else."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: Session | None = None
        self.users = 0


class SessionCache:
    """``_lock`` guards the open sessions."""

    def __init__(
        self, environment: WorkerEnvironment, bases: BaseCache, approver: Approver, dialler: Callable[[str], Dialler]
    ) -> None:
        """``dialler``: returns the dialler for a command in a fork, for connections that leave from the origin."""
        self._environment, self._bases, self._approver, self._dialler = environment, bases, approver, dialler
        self._lock = threading.Lock()
        self._sessions: dict[_Key, _CachedSession] = {}

    @contextmanager
    def use(self, errand: Errand) -> Iterator[Session]:
        """Yield a session for an errand. Raise LinkError if the settings cannot be read, MudroomError if the base
        cannot be had, OSError as the disk does."""
        key = _Key(errand.base, errand.settings, errand.agent, errand.through_origin)
        with self._lock:
            opened = self._sessions.pop(key, None) or _CachedSession()
            self._sessions[key] = opened  # the last used is evicted last
            opened.users += 1
        try:
            with opened.lock:  # a snapshot may take long to make; errands on other bases go on
                session = opened.session = opened.session or self._open(key)
            yield session
        finally:
            self._close(self._release(opened))

    def close(self) -> None:
        with self._lock:
            sessions, self._sessions = list(self._sessions.items()), {}
        self._close(sessions)

    def _release(self, opened: _CachedSession) -> list[tuple[_Key, _CachedSession]]:
        """Return the sessions to close."""
        with self._lock:
            opened.users -= 1
            idle = [(key, other) for key, other in self._sessions.items() if not other.users]
            surplus = idle[: max(len(idle) - MOST_IDLE, 0)]
            surplus += [(key, other) for key, other in idle if other.session is None and (key, other) not in surplus]
            for key, _other in surplus:
                del self._sessions[key]
            return surplus

    def _close(self, sessions: Sequence[tuple[_Key, _CachedSession]]) -> None:
        for key, opened in sessions:
            if opened.session is not None:
                opened.session.close()
                self._bases.release(key.base)

    def _open(self, key: _Key) -> Session:
        settings = (
            tightened(wire_settings.decode(key.settings), self._environment.policy) if key.settings else Settings()
        )
        base, snapshot = self._bases.get(key.base), self._bases.acquire(key.base)
        try:
            return Session.open(
                snapshot,
                appears_at=base.project,
                state=self._environment.state,
                home=base.home,
                umask=base.umask & 0o077,
                environ=self._environment.variables,
                settings=settings,
                hosts=HostAnswers(
                    rules=lambda: settings.hosts,
                    approver=self._approver,
                    dialler=lambda fork, _order: self._dialler(fork.name) if key.through_origin else None,
                ),
                agent=key.agent or None,
            )
        except BaseException:
            self._bases.release(key.base)
            raise


def remove_unused_vaults(state: bytes) -> None:
    """Remove the vaults whose snapshot was evicted and that have no fork. One that cannot be read or removed stays."""
    for vault in vaults_of(state):
        with closing(vault):
            try:
                if vault.source and not os.path.isdir(vault.source) and not vault.forks():
                    vault.lock.acquire("mudroom worker", lambda _holder: None)
                    try:
                        remove_vault(vault)
                    finally:
                        vault.lock.release()
            except (MudroomError, OSError) as error:
                print(f"mudroom worker: {os.fsdecode(vault.path)}: {error}", file=sys.stderr)  # noqa: T201
