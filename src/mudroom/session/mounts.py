"""Forks that are mounted for the user's own tools: mount, settle, collect, checkpoint, unmount.

Hold the fork's lock for each method, unless it says otherwise.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from mudroom.core.settings import Settings
from mudroom.core.tree import stack
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.session.file_tools import FileTools
from mudroom.session.secrets import Secrets
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.forks.damage import UNREADABLE
from mudroom.vault.forks.stacking import require_idle
from mudroom.vault.moment import command_start
from mudroom.vault.store.fork import Fork, mount_note
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.core.clock import CommandStart
    from mudroom.core.tree.change import Changeset
    from mudroom.core.tree.stack import Checkpoint
    from mudroom.stage.views.mount import Kind
    from mudroom.vault.forks.collection import Progress
    from mudroom.vault.store.mount_note import MountNote


Locked = Callable[[Fork, str], AbstractContextManager[None]]
AtRest = Callable[[str], AbstractContextManager[Fork]]
"""``Forks.locked`` and ``Forks.at_rest``."""


class Mounts:
    """Thread-safe: each fork's lock guards its data on disk; the other objects have their own locks."""

    def __init__(
        self,
        vault: Vault,
        settings: Settings,
        tools: FileTools,
        secrets: Secrets,
        clock: Callable[[], int],
        remarks: deque[str],
        let_go: Callable[[str], None],
    ) -> None:
        self._vault, self._settings, self._clock = vault, settings, clock
        self._tools, self._secrets, self._remarks, self._let_go = tools, secrets, remarks, let_go

    def settled(self, fork: Fork) -> MountNote | None:
        """Return the fork's mount, or None. Settle a mount that ended without mudroom, and add a remark."""
        if mount_note(fork) is None:
            return None
        from mudroom.vault.forks.mount import settled

        note = settled(self._vault, fork, self._clock(), self._secrets.look)
        if note is None:
            record = fork.record
            changed = len(record.changeset.changes) if record is not None else 0
            data = {"changed": changed, "ended": True}
            self._vault.journal.append("unmount", fork.name, data, time=self._clock())
            self._remarks.append(f"the mount of {fork.name} had ended; what was done in it is in the fork")
            self._tools.refresh(fork)
        return note

    def listed(self) -> dict[str, MountNote]:
        """Return the mounted forks by name, including those whose mount has ended. No lock is needed."""
        notes = {}
        for fork in self._vault.forks():
            try:
                note = mount_note(fork)
            except UNREADABLE:
                continue  # lists of forks say why
            if note is not None:
                notes[fork.name] = note
        return notes

    def state(self, name: str) -> str:
        """Return the state of a fork's mount (``vault/forks/mount.py:State``). No lock is needed."""
        from mudroom.vault.forks.mount import state_of

        fork = self._vault.fork(name)
        note = mount_note(fork)
        return state_of(self._vault, fork, note) if note is not None else "ended"

    def settle_if_free(self, fork: Fork) -> None:
        """Settle a mount that has ended, if the fork's lock is free. The caller must not hold it."""
        if mount_note(fork) is not None:
            with fork.lock_if_free("mudroom") as free:
                if free:
                    self.settled(fork)

    def collect(self, fork: Fork) -> None:
        """Record the changes in a mounted fork. Do nothing if it is not mounted, or mounted read-only."""
        note = mount_note(fork)
        if note is not None and note.writable:
            from mudroom.vault.forks.mount import collect

            self._secrets.look()
            collect(self._vault, fork, note, self._clock())

    def checkpoint(self, fork: Fork, name: str, keep: int | None = None) -> Checkpoint | None:
        """Freeze a mounted fork's present files. Return None if it is not mounted, or mounted read-only. ``keep``: as
        for ``checkpoint_copy``; ``name`` is then only a stem."""
        note = self.settled(fork)
        if note is None or not note.writable:
            return None
        from mudroom.vault.forks.live_checkpoint import checkpoint_copy

        self.collect(fork)
        chosen = name if keep is None else stack.free_name(fork.state, name)
        return checkpoint_copy(self._vault, fork, chosen, self._clock(), keep)

    def present(self, fork: Fork, place: bytes | None, kind: Kind | None, *, writable: bool) -> MountNote | None:
        """Return the fork's mount, or None. Raise UsageError if it differs from these arguments. No lock is needed."""
        from mudroom.vault.forks.mount import state_of

        note = mount_note(fork)
        if note is None or state_of(self._vault, fork, note) != "mounted":
            return None
        is_there = place is None or os.path.realpath(place) == note.place
        if is_there and note.writable == writable and kind in (None, note.kind):
            return note
        mode = "" if note.writable else ", read-only"
        name = fork.name
        raise UsageError(f"{name} is mounted at {show(note.place)} ({note.kind}{mode})", f"mudroom unmount {name}")

    def mount(
        self,
        at_rest: AtRest,
        fork: Fork,
        place: bytes | None,
        kind: Kind | None,
        progress: Progress | None,
        *,
        writable: bool,
    ) -> MountNote:
        """Mount a fork, or return its existing mount. The caller must not hold the fork's lock."""
        called = time.time_ns()
        note = self.present(fork, place, kind, writable=writable)
        if note is not None:
            return note
        self._secrets.look()
        try:
            with at_rest(fork.name) as resting:
                start = command_start(self._vault.path, called)
                return self._mounted(resting, place, kind, start, progress, writable=writable)
        except MudroomError:
            note = self.present(fork, place, kind, writable=writable)
            if note is None:
                raise
            return note  # another process was first

    def _mounted(
        self,
        fork: Fork,
        place: bytes | None,
        kind: Kind | None,
        start: CommandStart,
        progress: Progress | None,
        *,
        writable: bool,
    ) -> MountNote:
        from mudroom.vault.forks.mount import default_place, mount

        chosen, settings = place or default_place(self._vault, fork.name), self._settings
        note = mount(
            self._vault, fork, chosen, writable=writable, now=start, kind=kind, settings=settings, progress=progress
        )
        data = {"kind": note.kind, "writable": writable}
        self._vault.journal.append("mount", fork.name, data, time=self._clock())
        return note

    @contextmanager
    def aside(self, fork: Fork) -> Iterator[None]:
        """Unmount a fork for the block, and mount it again afterwards. The lock stays held: a waiting command that got
        it in between would delay the new mount until it ends."""
        note = self._set_aside(fork)
        try:
            yield
        finally:
            if note is not None:
                self._bring_back(fork, note)

    @contextmanager
    def to_read(self, locked: Locked, at_rest: AtRest, fork: Fork) -> Iterator[Fork]:
        """Yield a fork with its changes recorded: while it is mounted, or at rest if its mount has ended. Raise
        MudroomError if the mount is a copy, because its changes are in no layer yet."""
        with locked(fork, "mudroom"):
            note = self.settled(fork)
            if note is not None and note.kind == "copy":
                require_idle(fork)
            if note is not None:
                self.collect(fork)
                yield fork
                return
        with at_rest(fork.name) as resting:
            yield resting

    def _set_aside(self, fork: Fork) -> MountNote | None:
        """Unmount a fork until ``_bring_back``, and return the mount. Return None if the fork is not mounted, or only
        the user may unmount it: read-only, or as a copy. Raise MudroomError if the mount is in use."""
        from mudroom.vault.forks.mount import close_place

        note = self.settled(fork)
        # A copy is an ordinary directory: mudroom cannot tell whether somebody works in it.
        if note is None or not note.writable or note.kind == "copy":
            return None
        self._secrets.look()
        self.unmount(fork, lost=False)
        close_place(note.place)
        return note

    def _bring_back(self, fork: Fork, note: MountNote) -> None:
        """Mount a fork again. Add a remark if that fails."""
        from mudroom.vault.forks.mount import open_place

        try:
            open_place(note.place)
            start = command_start(self._vault.path, time.time_ns())
            self._mounted(fork, note.place, note.kind, start, None, writable=True)
        except (MudroomError, OSError) as error:
            reason = error.message if isinstance(error, MudroomError) else (error.strerror or "")
            self._remarks.append(f"{fork.name} is not mounted any more: {reason} (mudroom mount {fork.name})")

    def unmount(self, fork: Fork, *, lost: bool) -> Changeset:
        from mudroom.vault.forks.mount import unmount_fork

        self._let_go(fork.name)
        self._secrets.look()
        changeset = unmount_fork(self._vault, fork, self._clock(), lost=lost)
        if fork.interrupted is not None:
            fork.end()
        self._tools.refresh(fork)
        data = {"changed": len(changeset.changes)}
        self._vault.journal.append("unmount", fork.name, data, time=self._clock())
        return changeset


def not_shown(fork: Fork) -> MudroomError:
    """Return the error for a mounted fork whose directory cannot be shown to a command."""
    return MudroomError(
        f"the mount of {fork.name} has just ended, or something is mounted in it",
        "take away what is mounted in it, and try again",
    )
