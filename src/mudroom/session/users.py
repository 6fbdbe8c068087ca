"""A fork's users: this session's commands, its shared sandbox, or another process's shared sandbox."""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mudroom.core.tree.quote import show_words
from mudroom.errors import UsageError
from mudroom.session.exclusive import Exclusive
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.core.background import BackgroundStart
    from mudroom.sandbox.client.client import Running
    from mudroom.session.order import Outcome
    from mudroom.session.shared_sandbox.remote import RemoteSandbox
    from mudroom.session.shared_sandbox.tender import SharedSandbox

    Standing = SharedSandbox | RemoteSandbox
    """A shared sandbox in this process or in another."""


class Occupied(UsageError):
    """A background command is running in the fork."""


class RunningCommand:
    """A foreground command, from its first attempt to start until its end."""

    def __init__(self, fork: str) -> None:
        self.fork = fork
        self.running: Running | None = None
        """None while it is being started, or started again after a failed attempt."""
        self.told: list[int] = []
        """Signals sent to it so far. Each attempt to start it gets all of them."""

    def signal(self, number: int) -> None:
        self.told.append(number)
        if self.running is not None:
            self.running.signal(number)


class RunningCommands:
    """A session's foreground commands. Lock-free, with single dict operations only, because a signal handler uses it.
    ``has_run`` is never reset."""

    def __init__(self) -> None:
        self._commands: dict[int, RunningCommand] = {}
        self.has_run = False

    def start(self, outcome: Outcome, fork: Fork, begin: Callable[[], Running]) -> Running:
        """Start a command with ``begin``. Signals that arrive meanwhile are sent to it afterwards."""
        command = self._commands.setdefault(id(outcome), RunningCommand(fork.name))
        self.has_run = True
        running = command.running = begin()
        for number in command.told:
            running.signal(number)
        cancellation = outcome.cancellation
        if cancellation is not None and not cancellation.is_attached(command.signal):
            cancellation.attach(command.signal)
        return running

    def failed(self, outcome: Outcome) -> None:
        """Note that an attempt to start the command has failed; another attempt may follow."""
        if id(outcome) in self._commands:
            self._commands[id(outcome)].running = None

    def remove(self, outcome: Outcome) -> None:
        command = self._commands.pop(id(outcome), None)
        if command is not None and outcome.cancellation is not None:
            outcome.cancellation.detach(command.signal)

    def signal(self, number: int, fork: str | None) -> bool:
        """Send a signal to a fork's commands, or to all commands. Return whether there are any."""
        meant = [command for command in list(self._commands.values()) if fork is None or command.fork == fork]
        for command in meant:
            command.signal(number)
        return bool(meant)


class Users:
    """``lock`` guards the command counts, and forks being made or taken back; it is held only briefly. ``_shared``
    changes by single dict operations: the thread that opens a shared sandbox adds it, its tender removes it. A fork's
    lock in ``_openings`` is held while a thread looks for its shared sandbox and opens it."""

    def __init__(self, exclusive: Exclusive) -> None:
        self._exclusive = exclusive
        self.lock = _thread.allocate_lock()
        self._commands: dict[str, int] = {}
        self._shared: dict[str, SharedSandbox] = {}
        self._openings: dict[str, _thread.LockType] = {}

    # --- this session's commands ---

    def add(self, name: str) -> None:
        """Count a command that takes the fork. Hold ``lock``."""
        self._commands[name] = self._commands.get(name, 0) + 1

    def remove(self, name: str) -> None:
        with self.lock:
            self._commands[name] -= 1
            if not self._commands[name]:
                del self._commands[name]

    def count(self, name: str) -> int:
        """Return how many commands in this session have taken the fork. Hold ``lock``."""
        return self._commands.get(name, 0)

    def is_shared_out(self, name: str) -> bool:
        """Return whether several commands in this session have taken the fork."""
        with self.lock:
            return self.count(name) > 1

    # --- shared sandboxes ---

    @contextmanager
    def opening(self, name: str) -> Iterator[None]:
        """Keep other threads from opening a shared sandbox for this fork during the block. The fork's lock cannot serve
        for this: a second thread would wait for it until the first thread's sandbox has ended."""
        with self._openings.setdefault(name, _thread.allocate_lock()):
            yield

    def share(self, sandbox: SharedSandbox) -> None:
        self._shared[sandbox.fork.name] = sandbox

    def over(self, sandbox: SharedSandbox) -> None:
        """Remove an ended shared sandbox."""
        self._shared.pop(sandbox.fork.name, None)

    def shared(self, name: str) -> SharedSandbox | None:
        """Return the fork's shared sandbox in this session, or None."""
        return self._shared.get(name)

    def all_shared(self) -> list[SharedSandbox]:
        return list(self._shared.values())

    @contextmanager
    def beside(self, fork: Fork) -> Iterator[Standing | None]:
        """Yield the fork's shared sandbox, kept alive for the block, or None."""
        shared = self._shared.get(fork.name)
        if shared is not None:
            with shared.guest() as welcome:
                if welcome:
                    yield shared
                    return
            shared.wait()
        # If we have the vault alone, the other process is paused and would not answer.
        remote = None if self._exclusive.is_ours else remote_of(fork)
        if remote is None:
            yield None
            return
        with remote:
            yield remote

    def end_companions(self, fork: Fork) -> bool:
        """Ask the fork's background commands to end if all of them are companions of agents. Return whether they
        are."""
        rows = [] if self._exclusive.is_ours else _running(fork)
        remote = remote_of(fork) if rows and all(row.companion for row in rows) else None
        if remote is None:
            return False
        with remote:
            remote.end([row.id for row in rows])
        return True

    def require_free(self, fork: Fork) -> None:
        """Raise Occupied if a background command is running in the fork."""
        rows = _running(fork)
        if not rows:
            return
        with fork.lock_if_free("looking at what is left", standing=True) as free:
            if free:  # the holder was killed, or is about to release it
                return
        commands = ", ".join(f"{row.id}: {show_words(row.command)}" for row in rows)
        raise Occupied(
            f"a command is running in the background of the fork {fork.name} ({commands})",
            f"mudroom ps --end {rows[0].id} ends it",
        )


def _running(fork: Fork) -> list[BackgroundStart]:
    """Return the background commands of the fork's shared sandbox."""
    if not is_shared(fork):
        return []
    from mudroom.vault.forks.background import Book

    return [started for started, ended in Book(fork).rows() if ended is None]


def is_shared(fork: Fork) -> bool:
    """Return whether a shared sandbox is noted for the fork; its process may have been killed."""
    return os.path.exists(fork.path + b"/background/sandbox")


def remote_of(fork: Fork) -> RemoteSandbox | None:
    """Return a connection to the fork's shared sandbox in another process, or None."""
    if not is_shared(fork):
        return None
    from mudroom.session.shared_sandbox.remote import connect

    return connect(fork)
