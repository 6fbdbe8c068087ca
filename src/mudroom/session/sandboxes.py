"""The sandboxes of a session: acquired for a command, opened for the background, found again, interrupted.

A fork is mounted once. The first background command makes a sandbox that stays (``shared_sandbox/tender.py``); until
the last one has ended every command of the fork is run in there, from this process or, by a socket in the vault
(``shared_sandbox/remote.py``), from another one. What they see is the same view, /tmp, network and processes; what they
may do is the same, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from mudroom.core.tree.change import Changeset
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.capture import GRACE, SIGTERM
from mudroom.session.forks import Forks
from mudroom.session.machine import Machine
from mudroom.session.order import CommandEnd, Order, Outcome
from mudroom.session.own_sandbox import OwnSandbox, RunningCommands
from mudroom.session.users import Occupied, is_shared, remote_of
from mudroom.vault.forks import stacking
from mudroom.vault.forks.collection import CollectedCommand
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.core.background import BackgroundEnd, BackgroundStart
    from mudroom.sandbox.host.processes import ProcessUsage
    from mudroom.session.joined_sandbox import JoinedSandbox
    from mudroom.session.users import Standing
    from mudroom.vault.forks.background import StreamPart

_TRIES = 3
"""Times that a command looks for the sandbox of its fork, where one is opened between a look and the fork's lock."""


class Sandbox(Protocol):
    """The sandbox of one command: its own, or a place in one that others are in (of this process, or of another)."""

    def checkpoint_before(self) -> str:
        """Freeze what the fork holds before the command, under a name made of the command. Return that."""

    def run(self, order: Order, outcome: Outcome) -> CommandEnd:
        """Run the command and attend to it until it ends."""

    def collect(self, command: CollectedCommand) -> Changeset:
        """Write down what the fork holds after the command."""


class Sandboxes:
    """Thread-safe: it holds what is thread-safe itself, and nothing of a command."""

    def __init__(self, machine: Machine, forks: Forks) -> None:
        self._machine, self._forks = machine, forks
        self._running = RunningCommands()

    def close(self) -> None:
        """End what runs in the background."""
        shared = self._forks.users.all_shared()
        for sandbox in shared:
            sandbox.end()
        for sandbox in shared:
            sandbox.wait()

    # --- for a command ---

    @contextmanager
    def acquire(self, fork: Fork, order: Order, outcome: Outcome) -> Iterator[Sandbox]:
        """The sandbox for a command, the fork being ours meanwhile: the one that the fork has, or one of its own. Raise
        UsageError if the command cannot be run in the one that the fork has."""
        for is_last in (*[False] * (_TRIES - 1), True):
            with ExitStack() as stack:
                if not order.alone:
                    joined = stack.enter_context(self.joined(fork, order, outcome))
                    if joined is not None:
                        yield joined
                        return
                try:
                    own = self._own(fork, order, outcome, stack)
                except Occupied:
                    if is_last or order.alone:
                        raise
                    continue  # something has been started in its background meanwhile
                yield own
                return

    @contextmanager
    def joined(self, fork: Fork, order: Order, outcome: Outcome) -> Iterator[JoinedSandbox | None]:
        """A place for the command in the sandbox that the fork has; None if it has none."""
        with self._forks.users.beside(fork) as standing:
            if standing is None:
                yield None
                return
            place = self.place_in(standing, fork, order, outcome)
            try:
                place.require_same()  # before a checkpoint is made for it
                yield place
            finally:
                place.close()

    def place_in(self, standing: Standing, fork: Fork, order: Order, outcome: Outcome) -> JoinedSandbox:
        from mudroom.session.joined_sandbox import JoinedSandbox

        return JoinedSandbox(self._machine, self._forks, fork, standing, order, outcome, self._running)

    def _own(self, fork: Fork, order: Order, outcome: Outcome, stack: ExitStack) -> OwnSandbox:
        """``stack``: where what is held for the command is entered: the fork's lock, and a turn."""
        from mudroom.core.tree.path import show

        forks = self._forks
        stack.enter_context(forks.locked(fork, show(b" ".join(order.argv))))
        stack.enter_context(forks.exclusive.turn(alone=order.alone))
        stacking.require_idle(fork)
        mask, notes = forks.secrets.look(order.actor.settings)
        vault = forks.vault.masked(mask)
        forks.settle(fork, vault)
        outcome.notes += [*notes, *forks.tools.flush(fork)]
        own = OwnSandbox(self._machine, forks, fork, vault, order, outcome, self._running)
        stack.callback(own.close)
        return own

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Every sandbox that this session shares between commands stopped, and without a turn."""
        with ExitStack() as stack:
            for sandbox in self._forks.users.all_shared():
                stack.enter_context(sandbox.aside())
            yield

    # --- what runs ---

    def interrupt(self, number: int = SIGTERM, fork: str | None = None) -> bool:
        """Send running commands a signal (SIGTERM: ask them to end; SIGKILL: end all of them), from a signal handler or
        another thread. ``fork``: those of this fork; None: all that this session runs in the foreground. Return whether
        there was one."""
        meant = self._running.of(fork)
        for running in meant:
            running.signal(number)
        return bool(meant)

    @property
    def has_run(self) -> bool:
        """Whether a command has been started."""
        return self._running.has_run or bool(self._forks.users.all_shared())

    def foreground(self) -> list[tuple[str, str, int]]:
        """Return what else runs in forks just now: the fork, who has its lock, as that says itself, and since when, in
        nanoseconds since 1970."""
        found = []
        for fork in self._forks.vault.forks():
            since = fork.interrupted
            if since is None or is_shared(fork):
                continue
            with fork.lock_if_free("looking at what runs") as free:
                if free:
                    continue
            with open(fork.path + b"/lock", "rb") as stream:
                found.append((fork.name, stream.read(4096).decode("utf-8", "replace").strip(), since))
        return found

    def printed(
        self, name: str, marks: Sequence[str] = ("", ""), limit: int = 1 << 16
    ) -> tuple[StreamPart, StreamPart]:
        """Return what the command in the foreground of a fork has printed since the ``marks`` of an earlier answer, or
        the end of it, as far as it is captured; of the last one if none runs."""
        from mudroom.vault.forks.background import read_part
        from mudroom.vault.forks.live_output import PLACE

        place = self._forks.vault.fork(name).path + PLACE
        out, err = marks
        return read_part(place + b"/stdout", out, limit), read_part(place + b"/stderr", err, limit)

    def printed_at(self, name: str) -> int | None:
        """Return when that was printed last, in nanoseconds since 1970; None: nothing is there."""
        from mudroom.vault.forks.live_output import PLACE

        times = []
        for stream in (b"/stdout", b"/stderr"):
            try:
                times.append(os.stat(self._forks.vault.fork(name).path + PLACE + stream).st_mtime_ns)
            except FileNotFoundError:
                continue
        return max(times, default=None)

    # --- in the background ---

    def backgrounds(self, name: str | None = None) -> list[tuple[BackgroundStart, BackgroundEnd | None]]:
        """Return what has been started in the background of a fork, or of all, oldest first; the last of those that
        are over are among them."""
        from mudroom.vault.forks.background import Book

        vault = self._forks.vault
        forks = vault.forks() if name is None else [vault.fork(name)]
        found = []
        for fork in forks:
            rows = Book(fork).rows()
            if any(ended is None for _started, ended in rows):
                with fork.lock_if_free("looking at what is left") as free:
                    if free:  # whoever held it has been killed
                        self._forks.settle(fork)
                        rows = Book(fork).rows()
            found += rows
        return sorted(found, key=lambda row: row[0].time)

    def started(self, identity: str) -> BackgroundStart:
        """Return the start of the background command with this id, of any session. Raise UsageError if none has it."""
        for started, _ended in self.backgrounds():
            if started.id == identity:
                return started
        raise UsageError(f"there is no background command {identity}", "mudroom ps --all shows those of this project")

    def usages(self) -> dict[str, ProcessUsage]:
        """Return what the processes of background commands use just now, by id."""
        from mudroom.sandbox.host.processes import usages
        from mudroom.session.joined_sandbox import MARK

        running = [started for started, ended in self.backgrounds() if ended is None]
        roots = {self._root(started) for started in running}
        return {name: usage for root in roots for name, usage in usages(root, MARK).items()}

    def _root(self, started: BackgroundStart) -> int:
        """Return the process from which those of a command descend: the one that holds it, or the first of its
        container."""
        from mudroom.vault.forks.background import Book

        common = Book(self._forks.vault.fork(started.fork)).common() or {}
        return int(common.get("root", started.keeper))

    def keep(self) -> None:
        """Block until nothing is left in the background that this session holds."""
        while shared := self._forks.users.all_shared():
            shared[0].wait()

    def end(self, name: str, identities: Sequence[str] | None = None, grace: float = GRACE) -> None:
        """End background commands of a fork: SIGTERM, after ``grace`` seconds SIGKILL. None: all that runs there, and
        blocks until the fork is free again."""
        fork = self._forks.vault.fork(name)
        shared = self._forks.users.shared(name)
        if shared is not None:
            shared.end(identities, grace)
            if identities is None:
                shared.wait()
            return
        remote = remote_of(fork)
        if remote is None:
            return
        try:
            with remote:
                remote.end(identities, grace)
        except UsageError:
            raise
        except MudroomError:
            pass  # who held them is gone, and they with it
        if identities is None:
            with fork.lock("waiting for the end of what runs in the background"):
                pass

    def waited(
        self, started: BackgroundStart, timeout: float | None, later: Callable[[], BackgroundEnd | None]
    ) -> BackgroundEnd | None:
        """Wait for the end of a background command: of this session's by its tender, of others' by ``later``."""
        shared = self._forks.users.shared(started.fork)
        behind = shared.behind.get(started.id) if shared is not None else None
        return behind.wait(timeout) if behind is not None else later()

    def place(self, started: BackgroundStart) -> bytes:
        """Return where the vault keeps what a background command prints."""
        from mudroom.vault.forks.background import Book

        return Book(self._forks.vault.fork(started.fork)).place(started.id)
