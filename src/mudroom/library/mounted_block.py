"""A room's blocks that show a fork as a directory.

Rules of this file:
1. Blocks on the same fork, nested or in several threads, share one mount. The last block unmounts it.
2. A mount that existed before the first block belongs to the user or another program, and stays.
3. A mount that was ended elsewhere meanwhile is not unmounted again.
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
    """The room's blocks, by fork. Thread-safe: an entry is added atomically (dict.setdefault), and is used under its
    own lock."""

    def __init__(self) -> None:
        self._forks: dict[str, _MountedFork] = {}

    @contextmanager
    def block(self, life: Life, name: str, place: bytes | None, *, writable: bool) -> Iterator[MountNote]:
        """Yield the fork's mount. It ends with the last block if this room has mounted it."""
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
        """Whether this room has mounted it. Stays set if it is still in use when the last block ends."""
