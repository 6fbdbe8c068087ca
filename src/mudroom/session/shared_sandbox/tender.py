"""A sandbox that several commands in a fork share, and the thread that tends it.

Rules in this file:
1. The sandbox holds the fork's lock from before the mount until its mounts are gone and its changes are collected.
   Meanwhile every other command in the fork joins it, because an upper layer can be mounted only once.
2. One thread, the tender, does all periodic work: it reads background commands' output, serves the gate, pauses for a
   process that has the vault alone, ends commands that have timed out, admits other processes (``visitor.py``), and
   ends the sandbox when no command needs it any more. A command that joins is attended to by the thread that started
   it.
3. Changes are collected only while every process in the sandbox is stopped: the layer belongs to a live mount, and
   directories without permissions are opened for a moment (``loosened``). Originals are trusted by the sandbox's start
   time, not by the command's.
4. While a thread waits for a turn, ``_turning`` is the only lock in this file that it holds.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from mudroom.core.background import BackgroundEnd, BackgroundStart
from mudroom.core.clock import CommandStart
from mudroom.core.confinement.fallback import Mode
from mudroom.core.result import exit_code_of
from mudroom.core.tree import stack
from mudroom.core.tree.change import Changeset
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.capture import GRACE, SIGKILL, SIGTERM
from mudroom.sandbox.client.connection import wait_readable
from mudroom.sandbox.client.held import ENDING, HeldSandbox
from mudroom.sandbox.client.invocation import Invocation
from mudroom.session.shared_sandbox.visitor import OTHER_TERMS, Visitors
from mudroom.stage.views.overlay import OverlayView
from mudroom.typing import TYPE_CHECKING, NamedTuple
from mudroom.vault.forks.background import Book, Ring
from mudroom.vault.forks.collection import CollectedCommand, changed_paths, gather, recorded_changes, view_of
from mudroom.vault.forks.live_checkpoint import checkpoint_copy
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault
from mudroom.vault.turn import LOOK

if TYPE_CHECKING:
    from mudroom.core.network.flow import Flow
    from mudroom.sandbox.client.client import Running
    from mudroom.sandbox.limits.cgroup import Leaf
    from mudroom.session.confinement.agent_home import SharedFiles
    from mudroom.session.confinement.command_gate import CommandGate

JUST_ENDED = ("the background commands of this fork have just ended", "try again")
"""Message and hint for a command that wants to join them."""


class Basis(NamedTuple):
    """A sandbox's fork and vault, and the settings it was made with."""

    vault: Vault
    """With its commands' mask."""
    fork: Fork
    mode: Mode
    started: CommandStart
    terms: Callable[[], str]
    """Return its commands' terms (``machine.py:Machine.terms``)."""
    environment: dict[bytes, bytes]
    """Environment variables for TLS inspection at the gate, in addition to the plan's."""
    port: int
    clock: Callable[[], int]
    give_back: Callable[[], list[str]]
    """Publish new entries in the fork's caches and return notes. Called when every process is gone."""
    remark: Callable[[list[str]], None]
    """Keep notes for the session's next result."""
    end_live: Callable[[], None]
    """End the file tools' use of the mount. They wait until the resources are released."""
    hides: Callable[[bytes], bool]
    """Return whether a path is a secret."""


class BackgroundCommand:
    """One background command: read its output, and wait for its end."""

    def __init__(
        self, started: BackgroundStart, running: Running, place: bytes, streams: Sequence[int], before: Changeset
    ) -> None:
        """``streams``: the read ends of its stdout and stderr; none if the caller reads them itself. ``before``: the
        fork's changes as recorded at its start."""
        self.started, self.running, self._place, self.before = started, running, place, before
        self.streams = {
            descriptor: Ring(place + b"/" + name)
            for descriptor, name in zip(streams, (b"stdout", b"stderr"), strict=False)
        }
        self.deadline = None if started.timeout is None else time.monotonic() + started.timeout
        self.timed_out = self.asked = False
        """``asked``: whether it was asked to end."""
        self.ended: BackgroundEnd | None = None
        """Set when it has ended. Waiters are released (``end``) once its changes are collected."""
        self._over = _thread.allocate_lock()
        self._over.acquire()

    def wait(self, timeout: float | None) -> BackgroundEnd | None:
        """Block until the command has ended and its end is recorded. Return None after ``timeout`` seconds."""
        if not self._over.acquire(timeout=-1 if timeout is None else timeout):
            return None
        self._over.release()
        return self.ended

    def end(self) -> None:
        self._over.release()

    def take(self, descriptor: int) -> bool:
        """Read the available output. Return False at end of file."""
        try:
            chunk = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return True
        if chunk:
            self.streams[descriptor].write(chunk)
            return True
        self.streams.pop(descriptor).close()
        os.close(descriptor)
        return False

    def say(self, message: str) -> None:
        """Append a message from mudroom to the command's stderr."""
        with open(self._place + b"/stderr", "ab") as stream:
            stream.write(f"mudroom: {message}\n".encode("utf-8", "replace"))

    def drain(self) -> None:
        """Read the rest of the pipes after the command has ended, and close them."""
        for descriptor in list(self.streams):
            # Not until end of file: another process may have inherited the pipe and keep it open.
            while wait_readable([descriptor], 0.0) and self.take(descriptor):
                pass
            if descriptor in self.streams:
                self.streams.pop(descriptor).close()
                os.close(descriptor)


class SharedSandbox:
    """Thread-safe. Made when the sandbox is ready. The tender's thread closes ``resources`` after the sandbox has
    ended."""

    is_elsewhere = False
    """Whether another process holds it."""

    def __init__(
        self,
        basis: Basis,
        held: HeldSandbox,
        gate: CommandGate | None,
        leaf: Leaf | None,
        resources: ExitStack,
        over: Callable[[SharedSandbox], None],
        files: SharedFiles | None = None,
    ) -> None:
        self.basis, self.held, self.gate, self.leaf, self.files = basis, held, gate, leaf, files
        self.fork, self.vault = basis.fork, basis.vault
        self.book = Book(self.fork)
        self.backgrounds: dict[str, BackgroundCommand] = {}
        self.notes: list[str] = []
        self._ended_with_sandbox: list[BackgroundCommand] = []
        """Commands that ended with the sandbox. Their waiters are released when the last changes are collected."""
        self.is_over = False
        self._resources, self._over = resources, over
        self._lock = _thread.allocate_lock()
        """Guards the attributes below; held only briefly."""
        self._collecting = _thread.allocate_lock()
        """Held while changes are collected and recorded."""
        self._turning = _thread.allocate_lock()
        """Held while our turn is given up and taken again. Waiting for this lock means waiting for another process."""
        self._pauses = self._guests = 0
        self._closing = self._is_collected = False
        self._last: CollectedCommand | None = None
        """The command whose changes were recorded last."""
        self._wake, self._poke = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._finished = _thread.allocate_lock()
        self._finished.acquire()
        self.mode, self.port, self.environment = basis.mode, basis.port, basis.environment
        self.masked = self.vault.mask.paths
        self.visitors: Visitors | None = None

    def begin(self) -> None:
        """Start the tender, and let other processes join."""
        try:
            self.visitors = Visitors(self)
            self._note_facts()
        except OSError as error:  # the sandbox works without visitors
            self.notes.append(f"no other mudroom can join the commands of this fork: {error.strerror}")
        finally:
            _thread.start_new_thread(self._tend, ())

    def _note_facts(self) -> None:
        """Note in the vault the facts that another process needs to join."""
        self.book.note(
            {
                "mode": self.basis.mode,
                "port": self.basis.port,
                "environment": [[os.fsdecode(name), os.fsdecode(word)] for name, word in self.environment.items()],
                "masked": [os.fsdecode(path) for path in self.masked],
                "keeper": os.getpid(),
                "root": self.held.peer or os.getpid(),
            }
        )

    # --- from any thread ---

    @contextmanager
    def guest(self) -> Iterator[bool]:
        """Keep the sandbox for the block. Yield False if it is about to end."""
        with self._lock:
            welcome = self._stays_open()
            self._guests += welcome
        try:
            yield welcome
        finally:
            if welcome:
                with self._lock:
                    self._guests -= 1
                self._wake_up()

    def admits(self) -> bool:
        """Return whether another process may join. Without a command, visitor or guest the sandbox closes here."""
        with self._lock:
            return self._stays_open()

    def _stays_open(self) -> bool:
        """Return whether the sandbox takes others. Close it for good if nobody uses it. Hold the lock.

        A guest after the last command's end would otherwise keep the sandbox, and find the fork in use by itself.
        """
        alive = any(background.ended is None for background in self.backgrounds.values())
        visited = self.visitors is not None and self.visitors.are_there
        self._closing |= bool(self.backgrounds) and not (alive or visited or self._guests)  # without any it begins
        return not self._closing

    def require_terms(self, terms: str) -> None:
        """Raise UsageError if a command with these terms cannot run here."""
        if terms != self.basis.terms():
            raise UsageError(OTHER_TERMS, ENDING)

    def flows(self) -> list[Flow]:
        """Return all commands' flows so far."""
        return self.gate.flows() if self.gate is not None else []

    def join(self, invocation: Invocation, cwd: bytes, _terms: str) -> Running:
        """Start a command. The caller is a guest and has checked the terms (``require_terms``). Raise UsageError if the
        sandbox has been ended meanwhile."""
        return run_in(self.held, invocation, cwd)

    def start(
        self,
        started: BackgroundStart,
        environment: Mapping[bytes, bytes],
        _terms: str,
        pipes: tuple[int, int, int] | None = None,
    ) -> None:
        """Start a background command. The caller is a guest, or has not called ``begin`` yet. The program is looked up
        inside the sandbox: if it does not exist, the command ends with 127 at once. ``pipes``: the command's
        descriptors, which stay the caller's; None: no input, and output kept in the vault."""
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        kept = [os.pipe2(os.O_CLOEXEC) for _stream in range(0 if pipes is not None else 2)]
        try:
            place, before = self.book.begin(started), recorded_changes(self.fork)
            stdio = pipes if pipes is not None else (null, kept[0][1], kept[1][1])
            running = run_in(self.held, Invocation(started.command, environment, stdio), started.cwd)
        except BaseException:
            for read, _write in kept:
                os.close(read)
            raise
        finally:
            for descriptor in (null, *(write for _read, write in kept)):
                os.close(descriptor)
        for read, _write in kept:
            os.set_blocking(read, False)
        background = BackgroundCommand(started, running, place, [read for read, _write in kept], before)
        with self._lock:
            self.backgrounds[started.id] = background
        self._wake_up()

    def checkpoint(self, name: str, time: int, *, keep: int | None = None, terms: str | None = None) -> str:
        """Freeze the fork's files under a name while its commands run, and return the name. The commands are stopped
        while the files are copied. ``keep``: see ``checkpoint_copy``; ``name`` is then only a stem, since a name chosen
        outside the lock could be taken meanwhile. ``terms``: the terms of the command that the checkpoint is made for;
        None: no command. Raise UsageError if the name is taken or the terms differ."""
        if terms is not None:
            self.require_terms(terms)
        with self._collecting, self.stopped():
            if self._is_collected:
                raise UsageError(*JUST_ENDED)
            self._gather(live=True)
            chosen = name if keep is None else stack.free_name(self.fork.state, name)
            return checkpoint_copy(self.vault, self.fork, chosen, time, keep).name

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop every process in the sandbox for the block."""
        self._stop()
        try:
            yield
        finally:
            self._resume()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Stop the sandbox and give up its turn for the block, while our own process has the vault alone."""
        with self._turning, self.stopped():
            self.vault.turn.end()
            try:
                yield
            finally:
                self.vault.turn.begin(is_users=True)  # do not wait here: the tender pauses them at its next look

    def collect(self, command: CollectedCommand | None) -> None:
        """Record the fork's present changes as made by ``command`` (None: by the last command). Do nothing if the
        sandbox has ended and recorded them."""
        with self._collecting:
            if self._is_collected:
                return
            with self.stopped():
                self._last = command or self._last
                if self.files is not None:
                    self.files.look(has_ended=True)
                self._gather(live=True)

    def end(self, identities: Sequence[str] | None = None, grace: float = GRACE) -> None:
        """Send SIGTERM to background commands (None: to all, and end the sandbox), then SIGKILL after ``grace``
        seconds."""
        with self._lock:
            self._closing |= identities is None
            for background in self.backgrounds.values():
                if background.ended is None and (identities is None or background.started.id in identities):
                    background.deadline, background.asked = time.monotonic() + grace, True
                    self._ask_to_end(background)
        self._wake_up()

    def _ask_to_end(self, background: BackgroundCommand) -> None:
        with suppress(MudroomError):  # the sandbox has just ended, and the command with it
            background.running.signal(SIGTERM)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the sandbox is gone and its changes are recorded. Return False after ``timeout`` seconds."""
        if self._finished.acquire(timeout=-1 if timeout is None else timeout):
            self._finished.release()
            return True
        return False

    def _wake_up(self) -> None:
        with self._lock:
            if not self.is_over:
                with suppress(BlockingIOError):  # the pipe is full: the tender will wake up
                    os.write(self._poke, b"x")

    # --- the tender's thread ---

    def _tend(self) -> None:
        try:
            while not self._is_unneeded():
                self._poll()
        except (MudroomError, OSError) as error:
            self.notes.append(str(error))
        finally:
            self._finish()

    def _is_unneeded(self) -> bool:
        with self._lock:
            if self._is_gone():
                self._closing = True
            alive = any(background.ended is None for background in self.backgrounds.values())
            return not alive and not (self.backgrounds and self._stays_open())

    def _is_gone(self) -> bool:
        return self.held.fileno() < 0 or self.held.running.has_report()

    def _poll(self) -> None:
        gate = self.gate.descriptors() if self.gate is not None else ()
        visits = self.visitors.descriptors() if self.visitors is not None else ()
        with self._lock:
            alive = [background for background in self.backgrounds.values() if background.ended is None]
        streams = {descriptor: background for background in alive for descriptor in background.streams}
        reports = {background.running.fileno(): background for background in alive}
        watched = [self._wake, self.held.fileno(), *streams, *reports, *gate, *visits]
        ready = wait_readable(watched, time.monotonic() + LOOK)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self.files is not None:
            self.files.look()
        if self.gate is not None:
            self.gate.look()
            if any(descriptor in gate for descriptor in ready):
                self._extend_deadlines(alive, self.gate.attend(ready))
        # Do not wait: ``aside`` keeps this lock while its process has the vault alone, and the tender must still be
        # able to end the sandbox meanwhile.
        if self._turning.acquire(blocking=False):
            try:
                held_up = self.vault.turn.stand_aside(self._stop, self._resume)
            finally:
                self._turning.release()
            self._extend_deadlines(alive, held_up)
        for descriptor in ready:
            if descriptor in streams:
                streams[descriptor].take(descriptor)
            elif descriptor in visits and self.visitors is not None:
                self.visitors.attend(descriptor)
        for background in alive:
            if background.running.fileno() in ready:
                self._end_command(background)
            else:
                self._enforce_deadline(background)

    def _extend_deadlines(self, alive: Sequence[BackgroundCommand], seconds: float) -> None:
        """Extend deadlines by the time that commands have waited for us, which does not count towards their timeout."""
        for background in alive:
            if background.deadline is not None:
                background.deadline += seconds

    def _stop(self) -> None:
        with self._lock:
            if not self._pauses:
                self.held.running.pause()
            self._pauses += 1

    def _resume(self) -> None:
        with self._lock:
            self._pauses -= 1
            if not self._pauses:
                self.held.running.resume()

    def _enforce_deadline(self, background: BackgroundCommand) -> None:
        if background.deadline is None or time.monotonic() < background.deadline:
            return
        background.running.signal(SIGKILL if background.asked else SIGTERM)
        background.timed_out, background.asked = background.timed_out or not background.asked, True
        background.deadline = time.monotonic() + GRACE

    def _end_command(self, background: BackgroundCommand) -> None:
        """Note a background command's end and collect its changes."""
        try:
            status = background.running.wait().status
        except MudroomError as error:  # it never started: the program does not exist
            status = getattr(error, "exit_code", 125) << 8
            background.say(error.message)
        background.running.close()
        background.drain()
        code, now = exit_code_of(status, timed_out=background.timed_out), self.basis.clock()
        ended = BackgroundEnd(code, (status & 0x7F) or None, background.timed_out, now)
        command = CollectedCommand(background.started.command, code, now, background.started.level)
        background.ended = ended
        if self._is_gone():
            self._last = command
            self._ended_with_sandbox.append(background)
            return
        try:
            self.collect(command)
        except (MudroomError, OSError) as error:  # collected with the next command, or at the end
            self.notes.append(str(error))
        finally:
            self._record_end(background)

    def _record_end(self, background: BackgroundCommand) -> None:
        """Record a command's end and release its waiters, after its changes have been collected."""
        ended = background.ended
        assert ended is not None
        try:
            self.book.write(background.started, ended)
            data = {"id": background.started.id, "exit_code": ended.exit_code, "timed_out": ended.timed_out}
            now = recorded_changes(self.fork)
            data |= changed_paths(self.vault, self.fork, background.before, now, self.basis.hides)
            self.vault.journal.append("background_end", self.fork.name, data, time=ended.time)
        except (MudroomError, OSError) as error:
            self.notes.append(str(error))
        finally:
            background.end()

    def _finish(self) -> None:
        """End the sandbox, collect its changes, then release all resources, even after an error."""
        with self._lock:
            self._closing = True
        try:
            if self.visitors is not None:
                self.visitors.close()
            self.held.end()
            unkept = self.files.close() if self.files is not None else []
            self.notes += unkept
            self.basis.remark(unkept)
            for background in self.backgrounds.values():
                if background.ended is None:
                    self._end_command(background)
            self.basis.end_live()  # a later write would be in the layer, and in no record
            with self._collecting:
                self._is_collected = True
                self._gather(live=False)
                self.notes += self.basis.give_back()
                self.fork.end()
        except (MudroomError, OSError) as error:  # the fork's next command recovers as after a crash
            self.notes.append(str(error))
        finally:
            for background in self._ended_with_sandbox:
                self._record_end(background)
            self._release()

    def _journal_notes(self) -> None:
        """Journal the notes, because no command is left that could show them."""
        notes = [*self.notes, *self.held.notes]
        if notes:
            data = {"notes": notes}
            self.vault.journal.append("background_notes", self.fork.name, data, time=self.basis.clock())

    def _release(self) -> None:
        try:
            self.book.note(None)
            self._journal_notes()
        finally:
            try:
                self._resources.close()
            finally:
                with self._lock:
                    self.is_over = True
                os.close(self._wake)
                os.close(self._poke)
                self._over(self)
                self._finished.release()

    def _gather(self, *, live: bool) -> None:
        with self._lock:
            command = self._last or _of_first(self.backgrounds.values())
        with OpenFork(self.vault, self.fork) as opened:
            view = view_of(self.vault, self.fork, opened, "copy" if self.basis.mode != "overlay" else "overlay")
            if isinstance(view, OverlayView):
                view.is_live = live
            gather(self.fork, opened, view, command, self.basis.started)
            if isinstance(view, OverlayView) and not live:
                view.unmounted()


def _of_first(backgrounds: Iterable[BackgroundCommand]) -> CollectedCommand:
    """Return the command that the fork's record names before any has ended: the first that was started. A record
    without a command would mean an interrupted command (``vault/forks/fork_summary.py``), and a checkpoint takes the
    record to other forks."""
    first = next((background.started for background in backgrounds), None)
    return CollectedCommand(first.command, 0, first.time, first.level) if first else CollectedCommand((), 0, 0)


def run_in(held: HeldSandbox, invocation: Invocation, cwd: bytes) -> Running:
    """Start a command in a shared sandbox. Raise UsageError if the sandbox was ended, which does not wait for
    guests."""
    try:
        return held.run(invocation, cwd)
    except MudroomError as error:
        if held.door.is_closed:
            raise UsageError(*JUST_ENDED) from error
        raise
