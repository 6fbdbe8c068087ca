"""Exclusive use of a vault, as a token that one thread holds.

Rules in this file:
1. The token belongs to one thread and its calls. Another thread in the same session waits as another process would, and
   its commands are paused as another process's are.
2. So each acquisition opens the lock files again: flock(2) excludes open files, not processes. A second lock through
   the same open file would convert the first lock without waiting.
3. The vault's lock is taken first: only its holder stops this session's sandboxes.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

from mudroom.vault.lock import PATIENCE, Lock, holder_of
from mudroom.vault.store.store import Vault
from mudroom.vault.turn import Turn


class Exclusive:
    """``_holder`` is written only by the thread that holds the vault's lock."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._holder = 0

    @property
    def is_ours(self) -> bool:
        """Whether the calling thread has the vault alone."""
        return self._holder == _thread.get_ident()

    @contextmanager
    def turn(
        self, *, alone: bool, waiting: Callable[[str], None] = lambda _holder: None, is_users: bool = False
    ) -> Iterator[None]:
        """Hold a turn beside other commands for the block. If ``alone``, do nothing: this thread already has the vault.
        ``waiting`` is called with the lock holder's description if the turn has to wait. ``is_users``: as for
        ``Turn.begin``."""
        if alone:
            yield
            return
        self._vault.turn.begin(lambda path: waiting(self._holder_text(path)), is_users=is_users)
        try:
            yield
        finally:
            self._vault.turn.end()

    def _holder_text(self, path: bytes) -> str:
        """Return the holder's text for a turn's lock. A landing has signed the vault's lock."""
        signed = path if path.endswith(b"/quiet") else self._vault.path + b"/lock"
        with open(signed, "rb") as stream:
            return holder_of(stream.fileno())

    @contextmanager
    def taken(
        self,
        what: str,
        waiting: Callable[[str], None],
        stopping: Callable[[], None],
        aside: Callable[[], AbstractContextManager[None]],
    ) -> Iterator[None]:
        """Have the vault alone for the block. ``aside`` stops this session's shared sandboxes; their tenders must still
        be able to end them meanwhile."""
        lock = Lock(self._vault.path + b"/lock")
        lock.acquire(what, waiting, PATIENCE)
        try:
            with closing(Turn(self._vault.path)) as turn, aside():
                turn.take(stopping)
                self._holder = _thread.get_ident()
                try:
                    yield
                finally:
                    self._holder = 0
                    turn.give()
        finally:
            lock.forget()  # its text may hold a command with a masked file's value that was not known yet
            lock.release()
