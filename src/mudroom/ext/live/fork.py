"""A fork of a fork while commands run there, also one in the foreground, such as an agent.

All that runs in the project is stopped while the files are copied, as for an apply: the new fork has the files of one
moment, as a disk has them after a power cut. A program that survives a power cut survives this. Processes, memory,
/tmp and /dev/shm are not copied.

The process that runs the command holds the fork's lock, and may know its state by heart: the parent's list of layers is
not changed. Nothing but the record and originals is written there, which that process writes again itself.
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.clock import CommandStart
from mudroom.errors import ForkExists
from mudroom.session import Session
from mudroom.session.forks import Forks
from mudroom.stage.views.overlay import OverlayView
from mudroom.vault.forks.collection import CollectedCommand, gather, view_of
from mudroom.vault.forks.live_checkpoint import layers_now
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork, mount_note

_WHAT = "mudroom fork new --live"


def fork_live(session: Session, name: str, parent: str, waiting: Callable[[str], None] = lambda _who: None) -> Fork:
    """Return a new fork of ``parent`` as it is now. Stop its commands meanwhile instead of waiting for their end.
    ``waiting`` is called with the holder if another process has the vault alone. Raise UsageError if the name is
    taken."""
    forks = session.forks
    if forks.vault.find(name) is not None:
        raise ForkExists(name)  # before anything is stopped
    fork = forks.vault.fork(parent)
    if _start_of_running(fork) is None:
        return forks.new(name, parent=parent)
    forks.secrets.look()
    with forks.exclusive.taken(_WHAT, waiting, lambda: None, session.sandboxes.aside):
        started = _start_of_running(fork)
        made = _copied(forks, fork, name, started) if started is not None else forks.new(name, parent=parent)
    if started is not None:
        forks.journal("fork", name, {"parent": parent, "at": None})
    return made


def _start_of_running(fork: Fork) -> CommandStart | None:
    """Return when the fork's running command, or its shared sandbox, began. Return None if none runs, and for a mounted
    fork, whose files the user writes, too."""
    started = fork.interrupted
    if started is None or mount_note(fork) is not None:
        return None
    with fork.lock_if_free(_WHAT, standing=True) as free:
        return None if free else started


def _copied(forks: Forks, fork: Fork, name: str, started: CommandStart) -> Fork:
    """Return a new fork with a copy of the running fork's files. The vault is held alone, so its commands are stopped,
    and their process waits for the end of that."""
    vault = forks.secrets.masked_vault(fork)
    with OpenFork(vault, fork) as opened:
        view = view_of(vault, fork, opened, "copy" if fork.is_copy else "overlay")
        if isinstance(view, OverlayView):
            view.is_live = True
        gather(fork, opened, view, CollectedCommand((b"mudroom", b"fork"), 0, forks.clock()), started)
    layers = layers_now(vault, fork)
    try:
        return forks.made_of(fork, name, layers)
    except BaseException:
        if layers != fork.state.layers:
            vault.throw_away(vault.layer(layers[-1]))
        raise
