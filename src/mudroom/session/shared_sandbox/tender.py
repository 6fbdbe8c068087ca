"""A fork's sandbox that lives longer than one command, and the thread that looks after it.

Rules of this file:
1. It holds the fork's lock from before it is mounted until its mounts are gone and what it has left is collected. As
   long as it is there every other command of the fork joins it: an upper is mounted once.
2. One thread, the tender, does all that goes on by itself: it takes what background commands print, answers at the
   gate, stands aside for who has the vault alone, ends what has run out of time, admits other processes
   (``visitor.py``), and ends the sandbox when nobody needs it any more. Who joins attends to a command in a thread of
   their own.
3. What the fork holds is collected only while every process of the sandbox is stopped: the layer is that of a live
   mount, and closed directories are opened for a moment (``loosened``). Originals are believed by the start of the
   sandbox, not of the command.
4. No lock of this file but ``_turning`` is held while anybody waits for a turn.
"""

from __future__ import annotations

import _thread
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.background import BackgroundEnd, BackgroundStart
from mudroom.core.confinement.fallback import Mode
from mudroom.core.tree import stack
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.capture import GRACE, SIGKILL, SIGTERM
from mudroom.sandbox.client.held import ENDING, HeldSandbox, JoinedCommand
from mudroom.stage.views.overlay import OverlayView
from mudroom.vault.forks.background import Book, Ring
from mudroom.vault.forks.collection import CollectedCommand, gather, view_of
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault
from mudroom.vault.turn import LOOK

if TYPE_CHECKING:
    from mudroom.core.network.flow import Flow
    from mudroom.sandbox.host.mirror import Mirror
    from mudroom.sandbox.limits.cgroup import Leaf
    from mudroom.session.confinement.gateway import Doorkeeper
    from mudroom.session.shared_sandbox.visitor import Visitors


class Basis(NamedTuple):
    """Where a sandbox is, and what it was made with."""

    vault: Vault
    """Under the mask that its commands have."""
    fork: Fork
    mode: Mode
    started: int
    """By the clock that file systems stamp with."""
    terms: Callable[[], str]
    """What its commands may see and do (``machine.py:Machine.terms``)."""
    environment: dict[bytes, bytes]
    """What it takes to reach the gate from inside, beyond the plan's own."""
    port: int
    clock: Callable[[], int]


class Behind:
    """One background command: its streams are taken here, its end is noted in the vault."""

    def __init__(self, started: BackgroundStart, running: JoinedCommand, place: bytes, streams: Sequence[int]) -> None:
        self.started, self.running, self._place = started, running, place
        self.streams = {
            descriptor: Ring(place + b"/" + name)
            for descriptor, name in zip(streams, (b"stdout", b"stderr"), strict=True)
        }
        self.deadline = None if started.timeout is None else time.monotonic() + started.timeout
        self.timed_out = self.asked = False
        """``asked``: to end."""
        self.ended: BackgroundEnd | None = None
        """That it has ended; it is told (``end``) once what it has changed is collected."""
        self._over = _thread.allocate_lock()
        self._over.acquire()

    def wait(self, timeout: float | None) -> BackgroundEnd | None:
        """Until it has ended and all about it is written down, or for so many seconds: None then."""
        if not self._over.acquire(timeout=-1 if timeout is None else timeout):
            return None
        self._over.release()
        return self.ended

    def end(self) -> None:
        self._over.release()

    def take(self, descriptor: int) -> bool:
        """Read what is there; False at the end."""
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
        """What there is to say instead of the command, where it would have."""
        with open(self._place + b"/stderr", "ab") as stream:
            stream.write(f"mudroom: {message}\n".encode("utf-8", "replace"))

    def drain(self) -> None:
        """After the end: what is left in the pipes. Their end need not have come: the command may have handed them on
        to another one."""
        for descriptor in list(self.streams):
            while _readable([descriptor], 0) and self.take(descriptor):
                pass
            if descriptor in self.streams:
                self.streams.pop(descriptor).close()
                os.close(descriptor)


class SharedSandbox:
    """Thread-safe. Made when the sandbox is ready. ``resources``: let go of when it is over, in the tender's thread."""

    is_elsewhere = False
    """Whether another process holds it."""

    def __init__(
        self,
        basis: Basis,
        held: HeldSandbox,
        gate: Doorkeeper | None,
        leaf: Leaf | None,
        resources: ExitStack,
        over: Callable[[SharedSandbox], None],
        mirror: Mirror | None = None,
    ) -> None:
        self.basis, self.held, self.gate, self.leaf, self.mirror = basis, held, gate, leaf, mirror
        self.fork, self.vault = basis.fork, basis.vault
        self.book = Book(self.fork)
        self.behind: dict[str, Behind] = {}
        self.notes: list[str] = []
        self._late: list[Behind] = []
        """What has ended with the sandbox: that is told when what is left is collected."""
        self.is_over = False
        self._resources, self._over = resources, over
        self._lock = _thread.allocate_lock()
        """Of what follows; held for moments only."""
        self._books = _thread.allocate_lock()
        """Collecting and writing down."""
        self._turning = _thread.allocate_lock()
        """Letting go of our turn and taking it again. Who waits for it waits for another process."""
        self._pauses = self._guests = 0
        self._closing = self._is_collected = False
        self._last = CollectedCommand((), 0, 0)
        self._wake, self._poke = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._gone = _thread.allocate_lock()
        self._gone.acquire()
        self.mode, self.port, self.environment = basis.mode, basis.port, basis.environment
        self.masked = self.vault.mask.paths
        self.visitors: Visitors | None = None

    def begin(self) -> None:
        """From here on it is tended, and joined from other processes."""
        from mudroom.session.shared_sandbox.visitor import Visitors

        try:
            self.visitors = Visitors(self)
            self._tell()
        except (MudroomError, OSError) as error:  # it goes on without visitors
            self.notes.append(f"no other process can join: {error}")
        finally:
            _thread.start_new_thread(self._tend, ())

    def _tell(self) -> None:
        """What whoever wants to join has to know."""
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
        """While somebody has a command in it the sandbox stays. False if it is about to end."""
        with self._lock:
            welcome = not self._closing
            self._guests += welcome
        try:
            yield welcome
        finally:
            if welcome:
                with self._lock:
                    self._guests -= 1
                self._wake_up()

    def require_terms(self, terms: str) -> None:
        """Raise UsageError if a command on these terms cannot be run here."""
        if terms != self.basis.terms():
            from mudroom.session.shared_sandbox.visitor import OTHER_TERMS

            raise UsageError(OTHER_TERMS, ENDING)

    def flows(self) -> list[Flow]:
        """Return what the gate has seen of all commands until now."""
        return list(self.gate.flows) if self.gate is not None else []

    def join(
        self,
        argv: Sequence[bytes],
        environment: Mapping[bytes, bytes],
        cwd: bytes,
        stdio: tuple[int, int, int],
        terminal: Sequence[int],
        _terms: str,
    ) -> JoinedCommand:
        """Start a command; by a guest whose terms are the same (``require_terms``)."""
        return self.held.run(argv, environment, cwd, stdio, terminal)

    def start(self, started: BackgroundStart, environment: Mapping[bytes, bytes], _terms: str) -> None:
        """One more background command; by a guest, or before ``begin``. Its program is looked for inside: where there
        is none, it ends with 127 at once."""
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        pipes = [os.pipe2(os.O_CLOEXEC) for _stream in range(2)]
        try:
            place = self.book.begin(started)
            given = (null, pipes[0][1], pipes[1][1])
            running = self.held.run(started.command, environment, started.cwd, given)
        except BaseException:
            for read, _write in pipes:
                os.close(read)
            raise
        finally:
            for descriptor in (null, pipes[0][1], pipes[1][1]):
                os.close(descriptor)
        for read, _write in pipes:
            os.set_blocking(read, False)
        behind = Behind(started, running, place, [read for read, _write in pipes])
        with self._lock:
            self.behind[started.id] = behind
        self._wake_up()

    def checkpoint(self, name: str, time: int, *, keep: int | None = None, terms: str | None = None) -> str:
        """Freeze what the fork holds under a name, while its commands run: they are stopped as long as it takes to
        copy that. Returns the name. ``keep``: as ``checkpoint_copy`` has it; ``name`` is but a stem then, for whoever
        chose one outside could be too late. ``terms``: of the command that it is made for; None: it is for none. Raise
        UsageError if the name is taken, or the terms are others."""
        from mudroom.vault.forks.live_checkpoint import checkpoint_copy

        if terms is not None:
            self.require_terms(terms)
        with self._books, self.stopped():
            if self._is_collected:
                raise UsageError("what ran in the background has just ended", "try again")
            self._gather(self._last, live=True)
            chosen = name if keep is None else stack.free_name(self.fork.state, name)
            return checkpoint_copy(self.vault, self.fork, chosen, time, keep).name

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """No process of the sandbox can do anything meanwhile."""
        self._stop()
        try:
            yield
        finally:
            self._go_on()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While our own process has the vault alone: stopped, and without a turn."""
        with self._turning, self.stopped():
            self.vault.turn.end()
            try:
                yield
            finally:
                self.vault.turn.begin()

    def collect(self, command: CollectedCommand | None) -> None:
        """Write down what the fork holds now, as of ``command`` (None: of the last one). Nothing if the sandbox is
        over: that has been done then."""
        with self._books:
            if self._is_collected:
                return
            with self.stopped():
                self._last = command or self._last
                self._gather(self._last, live=True)

    def end(self, identities: Sequence[str] | None = None, grace: float = GRACE) -> None:
        """Ask background commands to end (None: all, and the sandbox), end what has not after ``grace`` seconds."""
        with self._lock:
            self._closing |= identities is None
            for behind in self.behind.values():
                if behind.ended is None and (identities is None or behind.started.id in identities):
                    behind.deadline, behind.asked = time.monotonic() + grace, True
                    self._ask(behind)
        self._wake_up()

    def _ask(self, behind: Behind) -> None:
        try:
            behind.running.signal(SIGTERM)
        except MudroomError:
            pass  # the sandbox has just ended, and it with that

    def wait(self, timeout: float | None = None) -> bool:
        """Until the sandbox is gone, and all is written down. False if that takes longer than ``timeout`` seconds."""
        if self._gone.acquire(timeout=-1 if timeout is None else timeout):
            self._gone.release()
            return True
        return False

    def _wake_up(self) -> None:
        with self._lock:
            if not self.is_over:
                try:
                    os.write(self._poke, b"x")
                except BlockingIOError:
                    pass  # it is awake

    # --- the tender's thread ---

    def _tend(self) -> None:
        try:
            while not self._nobody_needs_it():
                self._turn_round()
        except (MudroomError, OSError) as error:
            self.notes.append(str(error))
        finally:
            self._finish()

    def _nobody_needs_it(self) -> bool:
        with self._lock:
            if self._is_gone():
                self._closing = True
            alive = any(behind.ended is None for behind in self.behind.values())
            visited = self.visitors is not None and self.visitors.are_there
            self._closing |= not (alive or visited or self._guests)
            return self._closing and not alive

    def _is_gone(self) -> bool:
        return self.held.fileno() < 0 or self.held.running.has_report()

    def _turn_round(self) -> None:
        gate = self.gate.descriptors() if self.gate is not None else ()
        visits = self.visitors.descriptors() if self.visitors is not None else ()
        with self._lock:
            alive = [behind for behind in self.behind.values() if behind.ended is None]
        streams = {descriptor: behind for behind in alive for descriptor in behind.streams}
        reports = {behind.running.fileno(): behind for behind in alive}
        ready = _readable([self._wake, self.held.fileno(), *streams, *reports, *gate, *visits], LOOK)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self.mirror is not None:
            self.mirror.look()
        if self.gate is not None:
            self.gate.look()
            if any(descriptor in gate for descriptor in ready):
                self._wait_for(alive, self.gate.attend(ready))
        if self._turning.acquire(blocking=False):
            try:
                held_up = self.vault.turn.stand_aside(self._stop, self._go_on)
            finally:
                self._turning.release()
            self._wait_for(alive, held_up)
        for descriptor in ready:
            if descriptor in streams:
                streams[descriptor].take(descriptor)
            elif descriptor in visits and self.visitors is not None:
                self.visitors.attend(descriptor)
        for behind in alive:
            if behind.running.fileno() in ready:
                self._ended(behind)
            else:
                self._hurry(behind)

    def _wait_for(self, alive: Sequence[Behind], seconds: float) -> None:
        """What holds a command up does not count as its time."""
        for behind in alive:
            if behind.deadline is not None:
                behind.deadline += seconds

    def _stop(self) -> None:
        with self._lock:
            if not self._pauses:
                self.held.running.pause()
            self._pauses += 1

    def _go_on(self) -> None:
        with self._lock:
            self._pauses -= 1
            if not self._pauses:
                self.held.running.resume()

    def _hurry(self, behind: Behind) -> None:
        if behind.deadline is None or time.monotonic() < behind.deadline:
            return
        behind.running.signal(SIGKILL if behind.asked else SIGTERM)
        behind.timed_out, behind.asked = behind.timed_out or not behind.asked, True
        behind.deadline = time.monotonic() + GRACE

    def _ended(self, behind: Behind) -> None:
        """Note the end of a background command, and what it has changed."""
        try:
            status = behind.running.wait().status
        except MudroomError as error:  # it has never begun: the program is not there
            status = getattr(error, "exit_code", 125) << 8
            behind.say(error.message)
        behind.running.close()
        behind.drain()
        signal = status & 0x7F
        now = self.basis.clock()
        ended = BackgroundEnd(128 + signal if signal else status >> 8, signal or None, behind.timed_out, now)
        command = CollectedCommand(behind.started.command, status, now, behind.started.level)
        behind.ended = ended
        if self._is_gone():
            self._last = command
            self._late.append(behind)
            return
        try:
            self.collect(command)
        except (MudroomError, OSError) as error:  # what it has changed is collected with the next one, or at the end
            self.notes.append(str(error))
        finally:
            self._tell_end(behind)

    def _tell_end(self, behind: Behind) -> None:
        """Whoever waits for its end goes on, and finds what it has changed."""
        ended = behind.ended
        assert ended is not None
        try:
            self.book.write(behind.started, ended)
            data = {"id": behind.started.id, "exit_code": ended.exit_code, "timed_out": ended.timed_out}
            self.vault.journal.append("background_end", self.fork.name, data, time=ended.time)
        except (MudroomError, OSError) as error:
            self.notes.append(str(error))
        finally:
            behind.end()

    def _finish(self) -> None:
        """The sandbox ends, then what it has left is collected, then everything is let go, whatever goes wrong."""
        with self._lock:
            self._closing = True
        try:
            if self.visitors is not None:
                self.visitors.close()
            self.held.end()
            for behind in self.behind.values():
                if behind.ended is None:
                    self._ended(behind)
            with self._books:
                self._is_collected = True
                self._gather(self._last, live=False)
                self.fork.end()
        except (MudroomError, OSError) as error:  # the next command of the fork finds it as after a crash
            self.notes.append(str(error))
        finally:
            for behind in self._late:
                self._tell_end(behind)
            self._let_go()

    def _write_down(self) -> None:
        """What nobody was there to be told."""
        if self.notes:
            data = {"notes": self.notes}
            self.vault.journal.append("background_notes", self.fork.name, data, time=self.basis.clock())

    def _let_go(self) -> None:
        try:
            self.book.note(None)
            self._write_down()
        finally:
            try:
                self._resources.close()
            finally:
                with self._lock:
                    self.is_over = True
                os.close(self._wake)
                os.close(self._poke)
                self._over(self)
                self._gone.release()

    def _gather(self, command: CollectedCommand, *, live: bool) -> None:
        with OpenFork(self.vault, self.fork) as opened:
            view = view_of(self.vault, self.fork, opened, "copy" if self.basis.mode != "overlay" else "overlay")
            if isinstance(view, OverlayView):
                view.is_live = live
            gather(self.fork, opened, view, command, self.basis.started)


def _readable(descriptors: Sequence[int], seconds: float) -> list[int]:
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _event in poller.poll(int(seconds * 1000))]
