"""What a file tool has written, brought to the disk at once."""

from __future__ import annotations

import time

from mudroom.session.forks import Forks
from mudroom.vault.store.fork import mount_note
from mudroom.vault.turn import LOOK


def flush_write(forks: Forks, name: str, patience: float | None = None) -> bool:
    """Flush what a file tool has just written. Return whether that is on disk. ``patience``: seconds to wait; None:
    until the end of a command that was started between the choice of the buffer and the write.

    The fork's lock is tried and not waited for: a thread of this session that begins a command holds it from before
    its own flush until the command has ended."""
    fork = forks.vault.fork(name)
    until = None if patience is None else time.monotonic() + patience
    while forks.tools.has_unflushed(name) and mount_note(fork) is None:
        if forks.exclusive.is_ours:
            with forks.at_rest(name):
                return True
        with fork.lock_if_free("mudroom") as is_free:
            if is_free:
                with forks.at_rest(name, held=fork):
                    return True
        # A write that came between is flushed when the command ends. Those after it are in the command's mount.
        if until is not None and (forks.tools.is_live(name) or time.monotonic() >= until):
            return False
        time.sleep(LOOK)
    return True
