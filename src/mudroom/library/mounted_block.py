"""Blocks of a room that show a fork as a directory.

Rules of this file:
1. Blocks of one fork, nested or of several threads, share one mount. The last one unmounts it.
2. A mount that was there before the first block is the user's, or another program's, and stays.
3. A mount that somebody else has ended needs no end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.library.life import Life
    from mudroom.vault.store.mount_note import MountNote


class MountedBlocks:
    """The blocks of a room, by fork. Thread-safe: an entry is added atomically (dict.setdefault), and is used under its
    own lock."""

    def __init__(self) -> None:
        self._forks: dict[str, _MountedFork] = {}

    @contextmanager
    def block(self, life: Life, name: str, place: bytes | None, *, writable: bool) -> Iterator[MountNote]:
        """Yield the mount of a fork, which ends with the last block that has made or found it."""
        fork = self._forks.setdefault(name, _MountedFork())
        with life.call() as session, fork.lock:
            before = session.forks.mounts().get(name)
            note = session.forks.mount(name, place, writable=writable)
            fork.blocks += 1
            fork.is_ours = fork.is_ours or note != before
        try:
            yield note
        finally:
            with life.call() as session, fork.lock:
                fork.blocks -= 1
                if fork.is_ours and not fork.blocks:
                    if name in session.forks.mounts():
                        session.forks.unmount(name)
                    fork.is_ours = False


class _MountedFork:
    """``lock`` guards the other attributes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks = 0
        self.is_ours = False
        """Whether this room has mounted it. It stays so if the mount is in use at the end of the last block."""
