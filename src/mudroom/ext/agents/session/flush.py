"""Flush a file tool's write to disk at once."""

from __future__ import annotations

import time

from mudroom.session.forks import Forks
from mudroom.vault.store.fork import mount_note
from mudroom.vault.turn import LOOK


def flush_write(forks: Forks, name: str, patience: float | None = None) -> bool:
    """Flush a file tool's last write. Return whether it is on disk. ``patience``: seconds to wait; None: until the end
    of a command that was started between the choice of the buffer and the write."""
    fork = forks.vault.fork(name)
    until = None if patience is None else time.monotonic() + patience
    while forks.tools.has_unflushed(name) and mount_note(fork) is None:
        if forks.exclusive.is_ours:
            with forks.at_rest(name):
                return True
        # Tried, not waited for: a thread of this session that begins a command holds the lock from before its own flush
        # until the command has ended.
        with fork.lock_if_free("mudroom") as is_free:
            if is_free:
                with forks.at_rest(name, held=fork):
                    return True
        # A write that came between is flushed when the command ends. Later writes go to the command's mount.
        if until is not None and (forks.tools.is_live(name) or time.monotonic() >= until):
            return False
        time.sleep(LOOK)
    return True
