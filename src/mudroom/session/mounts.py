"""The forks that are mounted for the user's own tools: mount, settle, collect, checkpoint, unmount.

Each method is for the holder of the fork's lock.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from mudroom.core.settings import Settings
from mudroom.core.tree import stack
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.session.file_tools import FileTools
from mudroom.session.secrets import Secrets
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.store.fork import Fork, mount_note
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.core.tree.change import Changeset
    from mudroom.core.tree.stack import Checkpoint
    from mudroom.stage.views.mount import Kind
    from mudroom.vault.forks.collection import Progress
    from mudroom.vault.store.mount_note import MountNote


class Mounts:
    """Thread-safe: data on disk is guarded by each fork's lock, the rest by the locks of its objects."""

    def __init__(
        self,
        vault: Vault,
        settings: Settings,
        tools: FileTools,
        secrets: Secrets,
        clock: Callable[[], int],
        remarks: deque[str],
    ) -> None:
        self._vault, self._settings, self._clock = vault, settings, clock
        self._tools, self._secrets, self._remarks = tools, secrets, remarks

    def settled(self, fork: Fork) -> MountNote | None:
        """Return the mount of a fork, or None if there is none. One that has ended without mudroom is settled, with a
        remark."""
        if mount_note(fork) is None:
            return None
        from mudroom.vault.forks.mount import settled

        note = settled(self._vault, fork, self._clock())
        if note is None:
            record = fork.record
            changed = len(record.changeset.changes) if record is not None else 0
            data = {"changed": changed, "ended": True}
            self._vault.journal.append("unmount", fork.name, data, time=self._clock())
            self._remarks.append(f"the mount of {fork.name} had ended; what was done in it is in the fork")
            self._tools.refresh(fork)
        return note

    def listed(self) -> dict[str, MountNote]:
        """Return the mounted forks by name, also those whose mount has ended. No lock is needed."""
        from mudroom.vault.forks.damage import UNREADABLE

        notes = {}
        for fork in self._vault.forks():
            try:
                note = mount_note(fork)
            except UNREADABLE:
                continue  # lists of forks say why
            if note is not None:
                notes[fork.name] = note
        return notes

    def settle_if_free(self, fork: Fork) -> None:
        """Settle a mount that has ended, if nobody holds the fork's lock. The caller does not hold it."""
        if mount_note(fork) is not None:
            with fork.lock_if_free("mudroom") as free:
                if free:
                    self.settled(fork)

    def collect(self, fork: Fork) -> None:
        """Record what has been done in a fork that is mounted. Do nothing if it is not."""
        note = mount_note(fork)
        if note is not None and note.writable:
            from mudroom.vault.forks.mount import collect

            self._secrets.look()
            collect(self._vault, fork, note, self._clock())

    def checkpoint(self, fork: Fork, name: str, keep: int | None = None) -> Checkpoint | None:
        """Freeze the files of a mounted fork as they are now. Return None if it is not mounted. ``keep``: as for
        ``checkpoint_copy``; ``name`` is only a stem then."""
        note = self.settled(fork)
        if note is None or not note.writable:
            return None
        from mudroom.vault.forks.live_checkpoint import checkpoint_copy

        self.collect(fork)
        chosen = name if keep is None else stack.free_name(fork.state, name)
        return checkpoint_copy(self._vault, fork, chosen, self._clock(), keep)

    def present(self, fork: Fork, place: bytes | None, kind: Kind | None, *, writable: bool) -> MountNote | None:
        """Return the mount of a fork, or None if there is none. Raise UsageError if it is not as these."""
        note = self.settled(fork)
        if note is None:
            return None
        is_there = place is None or os.path.realpath(place) == note.place
        if is_there and note.writable == writable and kind in (None, note.kind):
            return note
        mode = "" if note.writable else ", read-only"
        name = fork.name
        raise UsageError(f"{name} is mounted at {show(note.place)} ({note.kind}{mode})", f"mudroom unmount {name}")

    def mount(
        self,
        fork: Fork,
        place: bytes | None,
        kind: Kind | None,
        *,
        writable: bool,
        called: int,
        progress: Progress | None,
    ) -> MountNote:
        """Mount a fork at rest. ``called``: the time of the request."""
        from mudroom.vault.forks.mount import default_place, mount
        from mudroom.vault.moment import command_start

        note = mount(
            self._vault,
            fork,
            place or default_place(self._vault, fork.name),
            writable=writable,
            now=command_start(self._vault.path, called),
            kind=kind,
            settings=self._settings,
            progress=progress,
        )
        data = {"kind": note.kind, "writable": writable}
        self._vault.journal.append("mount", fork.name, data, time=self._clock())
        return note

    def unmount(self, fork: Fork, *, lost: bool) -> Changeset:
        """Unmount a fork. Return its changes."""
        from mudroom.vault.forks.mount import unmount_fork

        changeset = unmount_fork(self._vault, fork, self._clock(), lost=lost)
        if fork.interrupted is not None:
            fork.end()
        self._tools.refresh(fork)
        data = {"changed": len(changeset.changes)}
        self._vault.journal.append("unmount", fork.name, data, time=self._clock())
        return changeset
