"""A session's sandboxes: acquire one for a command, list background commands, interrupt and end them.

A fork is mounted once. The first background command makes a shared sandbox (``shared_sandbox/tender.py``). Until the
last background command has ended, every command in the fork runs in that sandbox: from this process or, through a
socket in the vault (``shared_sandbox/remote.py``), from another. All of them have the same view, /tmp, network,
processes and permissions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from mudroom.core.tree.change import Changeset
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, SandboxAlive, UsageError
from mudroom.sandbox.client.capture import GRACE, SIGTERM
from mudroom.session.forks import Forks
from mudroom.session.machine import Machine
from mudroom.session.order import CommandEnd, Order, Outcome
from mudroom.session.own_sandbox import OwnSandbox, may_stand, settled_vault
from mudroom.session.users import Occupied, RunningCommands, is_shared, remote_of
from mudroom.typing import TYPE_CHECKING, NamedTuple, Protocol
from mudroom.vault.forks.collection import CollectedCommand
from mudroom.vault.forks.damage import UNREADABLE
from mudroom.vault.forks.live_output import PLACE
from mudroom.vault.lock import sign_again
from mudroom.vault.store.fork import Fork, interrupted_forks, last_holder, mount_note

if TYPE_CHECKING:
    from mudroom.core.background import BackgroundEnd, BackgroundStart
    from mudroom.sandbox.host.processes import ProcessUsage
    from mudroom.session.joined_sandbox import JoinedSandbox
    from mudroom.session.users import Standing
    from mudroom.vault.forks.background import StreamPart

_TRIES = 3
"""Attempts to find the fork's sandbox: another thread may open it before this thread has the fork's lock."""


_DYING = 2.0
"""Seconds to wait until the sandbox processes of a killed mudroom have ended."""
_GLANCE = 0.2
"""Seconds for a foreground command's host process to hand out its namespaces, for a list."""
_LOOK = 0.02


class CutOffCommand(NamedTuple):
    """A command that was running when mudroom was killed. Its changes have been collected now."""

    fork: str
    holder: str
    """The lock holder's description of itself, such as the command."""
    changed: int
    """Number of changes in the fork."""


class Sandbox(Protocol):
    """One command's sandbox: its own, or a place in a shared sandbox of this process or another."""

    def checkpoint_before(self) -> str | None:
        """Freeze the fork's files before the command, under a name made from the command. Return the name."""

    def run(self, order: Order, outcome: Outcome) -> CommandEnd:
        """Run the command and attend to it until it ends."""

    def collect(self, command: CollectedCommand) -> Changeset:
        """Record the fork's changes after the command."""


class Sandboxes:
    """Thread-safe: its attributes are, and none belongs to a single command."""

    def __init__(self, machine: Machine, forks: Forks) -> None:
        self._machine, self._forks = machine, forks
        self._running = RunningCommands()

    def close(self) -> None:
        """End this session's background commands."""
        shared = self._forks.users.all_shared()
        for sandbox in shared:
            sandbox.end()
        for sandbox in shared:
            sandbox.wait()

    # --- for a command ---

    @contextmanager
    def acquire(self, fork: Fork, order: Order, outcome: Outcome) -> Iterator[Sandbox]:
        """Yield the sandbox for a command: the fork's shared sandbox, or the command's own, with the fork locked. Raise
        Occupied if the command cannot run in the shared sandbox."""
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
                    continue  # a background command was started meanwhile
                yield own
                return

    @contextmanager
    def joined(self, fork: Fork, order: Order, outcome: Outcome) -> Iterator[JoinedSandbox | None]:
        """Yield a place for the command in the fork's shared sandbox, or None if there is none. One that the command
        does not fit, and that only serves what agents have left there, is ended. Raise Occupied if others run there."""
        with ExitStack() as stack:
            standing = stack.enter_context(self._forks.users.beside(fork))
            place = None if standing is None else self.place_in(standing, fork, order, outcome)
            if place is not None:
                stack.callback(place.close)
                try:
                    place.require_same()  # before a checkpoint is made for it
                except Occupied:
                    stack.close()  # a guest would keep the sandbox
                    if not self._forks.end_companions(fork):
                        raise
                    place = None
            yield place

    def place_in(self, standing: Standing, fork: Fork, order: Order, outcome: Outcome) -> JoinedSandbox:
        from mudroom.session.joined_sandbox import JoinedSandbox

        return JoinedSandbox(self._machine, self._forks, fork, standing, order, outcome, self._running)

    def _own(self, fork: Fork, order: Order, outcome: Outcome, stack: ExitStack) -> OwnSandbox:
        """Return the command's own sandbox. ``stack`` receives its resources: the fork's lock, a turn, a slot."""
        forks = self._forks
        shown = _shown(order, forks)
        stack.enter_context(forks.locked(fork, shown, standing=True))
        if order.cancellation is not None:
            order.cancellation.require_unset()  # the lock may have been waited for
        is_users = order.quiet is not None
        stack.enter_context(forks.exclusive.turn(alone=order.alone, waiting=forks.waiting, is_users=is_users))
        slot = self._machine.crowd.slot()
        stack.callback(slot.give)
        slot.take()  # after the locks: a command that waits for a lock must not occupy a slot
        noted = mount_note(fork)
        permitted = noted is None and may_stand(fork, order)
        place = stack.enter_context(self._machine.standing.claimed(fork, permitted=permitted))
        if forks.tools.has_unflushed(fork.name):
            place.outdated()
        vault = settled_vault(forks, fork, noted, order, outcome, stack, repairs=True)
        if forks.vault.mask.paths and _shown(order, forks) != shown:  # it has a value from a file found just now
            sign_again(fork.path + b"/lock", _shown(order, forks))
        own = OwnSandbox(self._machine, forks, fork, vault, order, outcome, self._running, place, slot)
        stack.callback(own.close)
        return own

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Stop all this session's shared sandboxes for the block, and give up their turns."""
        with ExitStack() as stack:
            for sandbox in self._forks.users.all_shared():
                stack.enter_context(sandbox.aside())
            yield

    # --- running commands ---

    def interrupt(self, number: int = SIGTERM, fork: str | None = None) -> bool:
        """Send a signal to running commands (SIGTERM: ask them to end; SIGKILL: end all their processes), from a signal
        handler or another thread. ``fork``: only its commands; None: all this session's foreground commands. Return
        whether any runs."""
        return self._running.signal(number, fork)

    @property
    def has_run(self) -> bool:
        """Whether a command has been started."""
        return self._running.has_run or bool(self._forks.users.all_shared())

    def foreground(self) -> list[tuple[str, str, int]]:
        """Return the foreground commands in all forks: the fork's name, its lock holder's description of itself, and
        the start in nanoseconds since 1970."""
        commands = []
        for fork in self._forks.vault.forks():
            try:
                command = _foreground(fork)
            except UNREADABLE:
                continue  # lists of forks say why
            if command is not None:
                commands.append((fork.name, *command))
        return commands

    def foreground_ports(self, name: str) -> tuple[int, ...]:
        """Return the ports that a fork's command listens on in a network of its own. A host process that does not
        answer at once tells none."""
        from mudroom.session.confinement.namespace_listener import ports_behind

        try:
            return ports_behind(self._forks.vault.fork(name).namespace_listener, _GLANCE)
        except OSError:
            return ()

    def collect_cut_off(self) -> list[CutOffCommand]:
        """Collect the changes of commands that were running when mudroom was killed, and return these commands. A fork
        that cannot be read or collected now is left for its next command."""
        collected = []
        for fork in interrupted_forks(self._forks.vault.path):
            try:
                command = self._collected(fork)
            except (*UNREADABLE, MudroomError, OSError):
                continue
            if command is not None:
                collected.append(command)
        return collected

    def _collected(self, fork: Fork) -> CutOffCommand | None:
        """Return None if the command is still running or another process has collected it, or without a lock file."""
        if not os.path.lexists(fork.path + b"/lock"):  # never locked: mudroom notes a start only under the lock
            return None
        holder = last_holder(fork)
        until = time.monotonic() + _DYING
        with fork.lock_if_free(holder) as free:
            while free and fork.interrupted is not None:
                try:
                    self._forks.settle(fork)
                except SandboxAlive:  # the kernel is still ending the killed sandbox's processes
                    if time.monotonic() >= until:
                        raise
                    time.sleep(_LOOK)
                    continue
                record = fork.record
                return CutOffCommand(fork.name, holder, len(record.changeset.changes) if record is not None else 0)
        return None

    def printed(
        self, name: str, marks: Sequence[str] = ("", ""), limit: int = 1 << 16
    ) -> tuple[StreamPart, StreamPart]:
        """Return the captured output of a fork's running or last foreground command since an earlier answer's
        ``marks``, or its end."""
        from mudroom.vault.forks.background import read_part

        place = self._forks.vault.fork(name).path + PLACE
        out, err = marks
        return read_part(place + b"/stdout", out, limit), read_part(place + b"/stderr", err, limit)

    # --- in the background ---

    def backgrounds(self, name: str | None = None) -> list[tuple[BackgroundStart, BackgroundEnd | None]]:
        """Return a fork's background commands, or those in all forks, oldest first. Includes the latest that have
        ended."""
        vault = self._forks.vault
        if name is not None:
            return self._backgrounds_of(vault.fork(name))
        commands = []
        for fork in vault.forks():
            try:
                commands += self._backgrounds_of(fork)
            except UNREADABLE:
                continue  # lists of forks say why
        return sorted(commands, key=lambda row: row[0].time)

    def _backgrounds_of(self, fork: Fork) -> list[tuple[BackgroundStart, BackgroundEnd | None]]:
        from mudroom.vault.forks.background import Book

        rows = Book(fork).rows()
        if any(ended is None for _started, ended in rows):
            with fork.lock_if_free("looking at what is left") as free:
                if free:  # its holder was killed
                    self._forks.settle(fork)
                    rows = Book(fork).rows()
        return rows

    def started(self, identity: str) -> BackgroundStart:
        """Return the start of the background command with this id, in any session. Raise UsageError if there is
        none."""
        for started, _ended in self.backgrounds():
            if started.id == identity:
                return started
        raise UsageError(f"there is no background command {identity}", "mudroom ps --all shows those of this project")

    def usages(self) -> dict[str, ProcessUsage]:
        """Return the background commands' present resource use, by id."""
        from mudroom.sandbox.host.processes import usages
        from mudroom.session.joined_sandbox import MARK

        running = [started for started, ended in self.backgrounds() if ended is None]
        roots = {self._root(started) for started in running}
        return {name: usage for root in roots for name, usage in usages(root, MARK).items()}

    def _root(self, started: BackgroundStart) -> int:
        """Return the pid from which a command's processes descend: the process that holds it, or its container's first
        process."""
        from mudroom.vault.forks.background import Book

        common = Book(self._forks.vault.fork(started.fork)).common() or {}
        return int(common.get("root", started.keeper))

    def keep(self) -> None:
        """Block until this session's background commands have ended."""
        while shared := self._forks.users.all_shared():
            shared[0].wait()

    def end(self, name: str, identities: Sequence[str] | None = None, grace: float = GRACE) -> None:
        """End a fork's background commands: SIGTERM, after ``grace`` seconds SIGKILL. ``identities`` None: end all, and
        block until the fork is free again."""
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
            pass  # the holder is gone, and its commands with it
        if identities is None:
            with fork.lock("waiting for the end of what runs in the background"):
                pass

    def wait_for_ended(self, name: str) -> None:
        """If all commands in the fork's shared sandbox have ended, wait until the sandbox is gone. Otherwise the
        vault's holder would stop it before it has given up its fork."""
        shared = self._forks.users.shared(name)
        if shared is not None and all(command.ended is not None for command in list(shared.backgrounds.values())):
            shared.wait()

    def waited(
        self, started: BackgroundStart, timeout: float | None, later: Callable[[], BackgroundEnd | None]
    ) -> BackgroundEnd | None:
        """Wait until a background command has ended: on the tender if this session holds it, otherwise by ``later``."""
        shared = self._forks.users.shared(started.fork)
        background = shared.backgrounds.get(started.id) if shared is not None else None
        return background.wait(timeout) if background is not None else later()

    def place(self, started: BackgroundStart) -> bytes:
        """Return the vault directory with a background command's output."""
        from mudroom.vault.forks.background import Book

        return Book(self._forks.vault.fork(started.fork)).place(started.id)


def _shown(order: Order, forks: Forks) -> str:
    """Return the command as its fork's lock file shows it: without secrets."""
    from mudroom.core.text.redaction import redact_argv

    return show_words(redact_argv(order.argv, forks.vault.secrets()))


def _foreground(fork: Fork) -> tuple[str, int] | None:
    """Return a fork's foreground command as its lock holder's description and its start, or None."""
    since = fork.interrupted
    if since is None or is_shared(fork):
        return None
    with fork.lock_if_free(last_holder(fork), standing=True) as free:
        return None if free else (last_holder(fork), since.time)
